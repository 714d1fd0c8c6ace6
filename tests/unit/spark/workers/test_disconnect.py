"""How a worker ends when Spark closes its connection."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO

import pytest

from spark.workers.disconnect import tolerate_disconnect_here, tolerating_disconnect

WORKER = "pyspark_worker_of_this_test"
"""PySpark's daemon imports the worker's module by the name in its arguments, if the name begins with `pyspark`."""
HANDLED = (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)


def answers(_infile: BinaryIO, outfile: BinaryIO) -> None:
    """Answer as the end of a task does."""
    outfile.write(b"the end of a task")


@pytest.fixture
def daemon() -> Any:
    """A copy of PySpark's daemon, which runs a worker of this test."""
    spec = find_spec("pyspark.daemon")
    assert spec is not None
    assert spec.loader is not None
    copy: Any = module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy.sys = SimpleNamespace(argv=["daemon", WORKER], stderr=sys.stderr)
    return copy


@pytest.fixture
def disconnected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs a worker loop of PySpark's with a connection that the other side has closed."""
    monkeypatch.setitem(sys.modules, WORKER, SimpleNamespace(main=answers))
    monkeypatch.setenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE", "1")
    handlers = {number: signal.getsignal(number) for number in HANDLED}
    mine, sparks = socket.socketpair()
    sparks.close()
    with mine:
        yield lambda run: run(mine, True)  # as PySpark calls it
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_closed_connection_is_no_error(disconnected: Any, daemon: Any) -> None:
    """PySpark's own loop raises an error, and its process prints a traceback."""
    with pytest.raises(BrokenPipeError):
        disconnected(daemon.worker)
    assert disconnected(tolerating_disconnect(daemon.worker)) != 0


def test_other_errors_are_raised(disconnected: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one of a worker that can't start."""

    def fails(*_: object) -> None:
        raise ImportError("no such module")

    monkeypatch.setitem(sys.modules, WORKER, SimpleNamespace(main=fails))
    monkeypatch.delenv("PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE")
    with pytest.raises(ImportError, match="no such module"):
        disconnected(tolerating_disconnect(daemon.worker))


def test_worker_of_pysparks_own_daemon_ends_quietly(disconnected: Any, daemon: Any) -> None:
    """A second call changes nothing."""
    tolerate_disconnect_here(daemon)
    quiet = daemon.worker
    tolerate_disconnect_here(daemon)
    assert daemon.worker is quiet
    assert disconnected(quiet) != 0


def test_other_programs_are_left_alone() -> None:
    """A program with a function of that name, and a script, whose main module has no specification."""
    for spec in (ModuleSpec("other", None), None):
        other: Any = ModuleType("__main__")
        other.__spec__, other.worker = spec, answers
        tolerate_disconnect_here(other)
        assert other.worker is answers
