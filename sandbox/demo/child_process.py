"""Runs and measures the demo's processes, the bridge and the writer, each in a session of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from sandbox.demo.errors import DemoError
from sandbox.stack.processes import log_tail

_KILL_GRACE_S: Final = 5.0


class ChildProcess:
    """A Python module that runs as a process. At the end of the `with` block all its processes are killed.

    In its own session the process receives no Ctrl-C from the terminal, so that the demo can end its processes in the
    right order.
    """

    def __init__(
        self, what: str, module: str, arguments: Sequence[str], *, log: Path, output: Path | None = None
    ) -> None:
        """Start the process.

        Args:
            what: its name in messages, as in "The bridge".
            module: the module to run with this interpreter.
            arguments: the module's command line.
            log: file for standard error, and for standard output unless `output` is given.
            output: file for standard output.
        """
        self.what = what
        self.log = log
        with log.open("wb") as errors, contextlib.ExitStack() as files:
            out = files.enter_context(output.open("wb")) if output is not None else errors
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        return self._process.poll()

    def require_running(self) -> None:
        """Check that the process runs.

        Raises:
            DemoError: it has ended. The message shows the end of its log.
        """
        if self.status is not None:
            raise DemoError(f"{self.what} ended with status {self.status}.{log_tail(self.log)}")

    def stop(self, within_s: float) -> int:
        """Send SIGTERM, wait, and return the exit status.

        Raises:
            DemoError: the process did not end in time, or not with status 0. The message shows the end of its log.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.what} did not stop within {within_s:.0f} s.{log_tail(self.log)}") from None
        if status != 0:
            raise DemoError(f"{self.what} stopped with status {status} instead of 0.{log_tail(self.log)}")
        return status

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        self._process.poll()
        # Repeat, because a process may start another one after `members` has listed it.
        while members := self.members():
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            self._process.wait()
            psutil.wait_procs(members, timeout=_KILL_GRACE_S)

    def members(self) -> list[psutil.Process]:
        """The processes of the session: the process and its descendants, even if their parents have ended."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.pid and (member := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                    found.append(member)
        return found


class ProcessMeter:
    """Measures CPU time and memory of a child with all its processes. The caller calls `sample` regularly.

    Attributes:
        peak_memory_bytes: largest total memory of a sample. If the system reports it, shared pages count once.
    """

    def __init__(self, child: ChildProcess, *, every_s: float = 2.0) -> None:
        """Measure at most once in `every_s` seconds."""
        self._child = child
        self._every_s = every_s
        self._next_s = 0.0
        self._cpu_s: dict[tuple[int, float], float] = {}
        self.peak_memory_bytes = 0

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far. An ended process counts with the time of its last sample."""
        return sum(self._cpu_s.values())

    def sample(self) -> None:
        """Measure, if the last sample is old enough."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._every_s
        memory = 0
        for member in self._child.members():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = member.cpu_times()
                self._cpu_s[member.pid, member.create_time()] = times.user + times.system
                used = member.memory_full_info()
                memory += getattr(used, "pss", used.rss)
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)
