"""The local stack that the integration tests share: brought up once, on ports and data of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.stack.jars import JARS_VARIABLE
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession

_REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Undo what a shell does to background jobs: they ignore SIGINT, and so would the commands under test."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _quick_processes() -> Iterator[None]:
    """Have the many short-lived processes start quickly: half of a run's CPU time is their start.

    What lives for minutes never earns back what Java's second compiler costs.
    """
    with pytest.MonkeyPatch.context() as environment:
        if "JDK_JAVA_OPTIONS" not in os.environ:
            environment.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="session")
def shared_jars() -> Path:
    """Where the servers' jars are kept between runs, so that only the first one downloads them."""
    named = os.environ.get(JARS_VARIABLE)
    return Path(named) if named else _REPOSITORY / ".local-stack" / "jars"


@pytest.fixture(scope="session")
def local_stack(tmp_path_factory: pytest.TempPathFactory, shared_jars: Path) -> Iterator[LocalStack]:
    """A running stack. A test that stops a server of it starts it again."""
    stack = LocalStack.up(tmp_path_factory.mktemp("local-stack"), report=print, jars=shared_jars)
    yield stack
    stack.down()


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[WritingSession]:
    """A session to the stack's CQL server."""
    made = local_stack.cql_session()
    yield made
    made.close()
