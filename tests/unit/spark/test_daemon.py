"""What becomes of a worker when Spark no longer wants its answer."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import pytest
from pyspark import daemon, worker

from spark.daemon import ending_with_spark

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
