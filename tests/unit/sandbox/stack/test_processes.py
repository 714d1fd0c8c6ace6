"""Processes are recognised by pid and start, ended, and never mistaken for others."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from sandbox.errors import LocalStackError
from sandbox.stack import processes
from sandbox.stack.processes import ProcessIdentity

_FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
_STUBBORN = [
    sys.executable,
    "-c",
    "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()",
]


def _start(command: list[str], folder: Path) -> ProcessIdentity:
    log = folder / "out.log"
    identity = processes.start(command, log=log, cwd=folder)
    assert processes.wait_until(lambda: "up" in log.read_text(encoding="utf-8"), 30)
    return identity


def test_a_process_is_alive_until_it_is_stopped(tmp_path: Path) -> None:
    """SIGTERM ends a process. A child that has ended is not alive, even before it is waited for."""
    identity = _start(_FOREVER, tmp_path)
    assert identity.is_alive()
    assert processes.stop(identity, grace_s=30)
    assert not identity.is_alive()


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    """After the grace period the process is killed, and the caller gets to know."""
    identity = _start(_STUBBORN, tmp_path)
    assert not processes.stop(identity, grace_s=0.2)
    assert not identity.is_alive()


def test_a_recycled_pid_is_left_alone(tmp_path: Path) -> None:
    """A process with the same pid but another start time does not count as alive and gets no signal."""
    identity = _start(_FOREVER, tmp_path)
    former = ProcessIdentity(identity.pid, "another boot/1")
    assert not former.is_alive()
    former.signal(signal.SIGKILL)
    processes.kill(former)
    assert identity.is_alive()
    processes.kill(identity)


def test_a_command_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    """The message names the command."""
    with pytest.raises(LocalStackError, match="no-such-command"):
        processes.start([str(tmp_path / "no-such-command")], log=tmp_path / "log", cwd=tmp_path)


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    """The last lines and the path, or that there is no log."""
    log = tmp_path / "server.log"
    assert "no log" in processes.log_tail(log)
    log.write_text("\n".join(f"line {number}" for number in range(100)), encoding="utf-8")
    tail = processes.log_tail(log, lines=2)
    assert str(log) in tail
    assert tail.endswith("    line 98\n    line 99")
