"""How a worker ends when Spark closes its connection."""

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

from spark.workers.disconnect import tolerate_disconnect_here, tolerating_disconnect

HANDLED = (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


def answers(_infile: BinaryIO, outfile: BinaryIO) -> None:
    """Answer as the end of a task does."""
    outfile.write(b"the end of a task")


@pytest.fixture
def disconnected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a worker loop of PySpark's with a connection that the other side has closed."""
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


def test_closed_connection_is_no_error(disconnected: Any) -> None:
    """PySpark's own loop raises an error, and its process prints a traceback."""
    with pytest.raises(BrokenPipeError):
        disconnected(daemon.worker)
    assert disconnected(tolerating_disconnect(daemon.worker)) != 0


def test_other_errors_are_raised(disconnected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of a worker that can't start."""

    def fails(*_: object) -> None:
        raise ImportError("no such module")

    monkeypatch.setattr(worker, "main", fails)
    monkeypatch.delenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE")
    with pytest.raises(ImportError, match="no such module"):
        disconnected(tolerating_disconnect(daemon.worker))


def test_worker_of_pysparks_own_daemon_ends_quietly(disconnected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call changes nothing."""
    monkeypatch.setattr(daemon, "worker", daemon.worker)
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    tolerate_disconnect_here()
    quiet = daemon.worker
    tolerate_disconnect_here()
    assert daemon.worker is quiet
    assert disconnected(quiet) != 0


def test_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with a function of that name, and a script, whose main module has no specification."""
    for spec in (ModuleSpec("other", None), None):
        other: Any = ModuleType("__main__")
        other.__spec__, other.worker = spec, answers
        monkeypatch.setitem(sys.modules, "__main__", other)
        tolerate_disconnect_here()
        assert other.worker is answers
