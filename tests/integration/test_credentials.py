"""A cluster that wants a password."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bridge.local.stack import LocalStack

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[2]
PASSWORD = "cassandra"


@pytest.fixture(scope="module")
def locked_stack(tmp_path_factory: pytest.TempPathFactory, shared_jars: Path):
    """A stack whose CQL server knows one role."""
    stack = LocalStack.up(tmp_path_factory.mktemp("locked"), report=print, jars=shared_jars, cql_password=True)
    yield stack
    stack.down()


def validate(stack: LocalStack, folder: Path, password: str) -> subprocess.CompletedProcess[str]:
    """Look at everything with a password from the environment."""
    path = folder / "bridge.yaml"
    settings = {
        "name": "locked",
        "scylla": {"contact_points": stack.cql, "username": PASSWORD, "password": {"env": "CQL_PASSWORD"}},
        "kafka": {"bootstrap_servers": stack.kafka},
        "registry": {"url": stack.registry},
        "tables": ["locked.nowhere"],
        "startup": {"patience_s": 20},
    }
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "bridge.cli", "validate", "-c", str(path), "--online"],
        cwd=REPOSITORY,
        env={**os.environ, "CQL_PASSWORD": password},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def test_wrong_password_is_refused_at_once(locked_stack: LocalStack, tmp_path: Path) -> None:
    """A refused password is not tried again; the error names the address and never the password."""
    refused = validate(locked_stack, tmp_path, "not-this-one")
    assert refused.returncode == 2
    assert f"ScyllaDB at {locked_stack.cql} refused the username or password" in refused.stderr
    assert "try 2" not in refused.stdout + refused.stderr
    assert "not-this-one" not in refused.stdout + refused.stderr


def test_right_password_gets_further(locked_stack: LocalStack, tmp_path: Path) -> None:
    """With the right password only the table is missing."""
    refused = validate(locked_stack, tmp_path, PASSWORD)
    assert refused.returncode == 2
    assert "there is no keyspace 'locked'" in refused.stderr
