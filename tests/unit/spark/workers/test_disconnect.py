"""What becomes of a worker when Spark no longer wants its answer."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, BinaryIO

import pytest
from pyspark import daemon, worker

from spark.workers.disconnect import ending_with_spark, let_go_quietly

HANDLED = (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


def answers(_infile: BinaryIO, outfile: BinaryIO) -> None:
    """What a task comes to."""
    outfile.write(b"the end of a task")


@pytest.fixture
def left_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """PySpark's worker of a connection that the other side has closed, as Spark has it started."""
    monkeypatch.setattr(worker, "main", answers)
    monkeypatch.setattr(sys, "argv", ["daemon"])
    monkeypatch.setenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "1")
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    mine, sparks = socket.socketpair()
    sparks.close()
    with mine:
        yield lambda run: run(mine, True)  # as PySpark calls it
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_a_connection_that_spark_has_closed_is_no_error(left_alone: Any) -> None:
    """Without us it is one: the process prints a traceback."""
    with pytest.raises(BrokenPipeError):
        left_alone(daemon.worker)
    assert left_alone(ending_with_spark(daemon.worker)) != 0


def test_what_else_goes_wrong_is_told(left_alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that can't even begin."""

    def fails(*_: object) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(worker, "main", fails)
    monkeypatch.delenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE")
    with pytest.raises(ImportError, match="no such module"):
        left_alone(ending_with_spark(daemon.worker))


def test_worker_of_pysparks_own_daemon_is_let_go_quietly(left_alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ours is loaded in one, and only there; once is enough."""
    monkeypatch.setattr(daemon, "worker", daemon.worker)
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    let_go_quietly()
    quiet = daemon.worker
    let_go_quietly()
    assert daemon.worker is quiet
    assert left_alone(quiet) != 0


def test_no_other_program_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose main module has a function of that name, and one that has no specification, as a script."""
    for spec in (ModuleSpec("other", None), None):
        other: Any = ModuleType("__main__")
        other.__spec__, other.worker = spec, answers
        monkeypatch.setitem(sys.modules, "__main__", other)
        let_go_quietly()
        assert other.worker is answers
