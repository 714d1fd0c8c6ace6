"""A short run of `make live` on the local stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.stack.stack import LocalStack
from tests.live.run import Plan, Run
from tests.live.server import LocalServer

pytestmark = pytest.mark.integration


def test_a_short_run(local_stack: LocalStack, tmp_path: Path) -> None:
    """Random statements on two tables each of vnodes and tablets, an ALTER TABLE and a kill: no difference is found."""
    plan = Plan(
        seed=7,
        statements=300,
        minutes=1.0,
        rate_per_s=0,
        shapes=("collections", "full_images"),
        keyspaces=("vnodes", "tablets"),
        replicas=1,
        kills=1,
        alters=3,
        log_switches=0,
        switch=None,
        switch_every_s=60,
        confidence_ms=2000,
        lanes=1,
        keep=False,
    )
    server = LocalServer(local_stack.cql)
    try:
        outcome = Run(local_stack, server, [local_stack.cql], tmp_path, plan, print).carry_out()
        left = [row["keyspace_name"] for row in server.rows("SELECT keyspace_name FROM system_schema.keyspaces")]
    finally:
        server.close()
    findings = [finding for _, _, finding in outcome.tables]
    assert outcome.is_clean, [outcome.problems, *(finding.examples for finding in findings)]
    assert len(findings) == 4
    assert outcome.total["kills"] == 1
    assert outcome.total["alters"] >= 1
    assert sum(finding.rows for finding in findings) > 50
    assert not [name for name in left if name.startswith("live_")]
