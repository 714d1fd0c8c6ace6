"""Starts, recognises and ends server processes.

A process is identified by its pid together with its start time. If the system has given the pid to another program,
that program is never mistaken for a server of the stack.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import LocalStackError

_POLL_S = 0.05
_PROC = Path("/proc")

# Children of this interpreter, kept so that they can be reaped when they end: a zombie would count as alive.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The identity of a process: its pid, and a start mark that no later process with that pid has."""

    pid: int
    start_mark: str

    def is_alive(self) -> bool:
        """Whether this process still runs. A process that has ended and is not reaped yet does not."""
        child = _children.get(self.pid)
        if child is not None and child.poll() is not None:
            del _children[self.pid]
        return start_mark(self.pid) == self.start_mark

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process. Does nothing if the process has ended."""
        if self.is_alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return  # It ended between the check and the signal.

    def wait_gone(self, timeout_s: float) -> bool:
        """Wait until the process has ended; False if it still runs after `timeout_s`."""
        return wait_until(lambda: not self.is_alive(), timeout_s)


def start_mark(pid: int) -> str | None:
    """Return the start mark of a running process, or None if no process with that pid runs."""
    if not _PROC.joinpath("self", "stat").exists():
        return _start_mark_from_ps(pid)
    try:
        stat = _PROC.joinpath(str(pid), "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name in parentheses may hold spaces and parentheses, so count fields after the last parenthesis.
    fields = stat.rpartition(")")[2].split()
    state, start_ticks = fields[0], fields[19]
    if state in "ZX":
        return None
    # Ticks count from boot: the boot id keeps marks of different boots apart.
    boot_id = _PROC.joinpath("sys", "kernel", "random", "boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id}/{start_ticks}"


def _start_mark_from_ps(pid: int) -> str | None:
    """Return the start mark of a running process where there is no /proc (macOS), or None."""
    answer = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607 (ps stands in different places)
        capture_output=True,
        text=True,
        check=False,
    )
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def start(
    command: Sequence[str], *, log: Path, cwd: Path, environment: Mapping[str, str] | None = None
) -> ProcessIdentity:
    """Start a server in a session of its own and append its output to `log`.

    In its own session the server receives no Ctrl-C from the terminal and outlives this program.

    Raises:
        LocalStackError: the server could not be started, or ended at once.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
            )
        except OSError as error:
            message = f"Cannot start {command[0]}: {error}"
            raise LocalStackError(message) from error
    _children[child.pid] = child
    mark = start_mark(child.pid)
    if mark is None:
        message = f"{command[0]} ended at once.{log_tail(log)}"
        raise LocalStackError(message)
    return ProcessIdentity(child.pid, mark)


def stop(process: ProcessIdentity, *, grace_s: float) -> bool:
    """End a process with SIGTERM, and with SIGKILL after `grace_s` seconds.

    Returns:
        False if SIGKILL was needed.

    Raises:
        LocalStackError: the process did not end after SIGKILL.
    """
    process.signal(signal.SIGTERM)
    if process.wait_gone(grace_s):
        return True
    kill(process)
    return False


def kill(process: ProcessIdentity) -> None:
    """End a process with SIGKILL and wait until it has ended.

    Raises:
        LocalStackError: the process did not end.
    """
    process.signal(signal.SIGKILL)
    if not process.wait_gone(10.0):
        message = f"Process {process.pid} does not end although it was killed; look at it with `ps -fp {process.pid}`"
        raise LocalStackError(message)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll a condition until it holds; False if it does not hold within `timeout_s` seconds."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(_POLL_S)
    return True


def log_tail(log: Path, *, lines: int = 20) -> str:
    """Return the last lines of a log file and its path, as text that follows a sentence."""
    if not log.exists():
        return f" It wrote no log ({log})."
    tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    return f" The end of its log, {log}:\n" + "\n".join(f"    {line}" for line in tail)
