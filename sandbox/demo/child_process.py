"""The demo's own processes, the bridge and the writer: started in sessions of their own, measured, ended whole."""

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
    """A Python module that runs as a process, with whatever it starts; nothing of it outlives the `with` block.

    In its own session it gets no Ctrl-C of the terminal: who started it ends it, in the right order.
    """

    def __init__(
        self, what: str, module: str, arguments: Sequence[str], *, log: Path, output: Path | None = None
    ) -> None:
        """Start it.

        Args:
            what: its name in messages, as in "The bridge".
            module: to run, with this very interpreter.
            arguments: its command line.
            log: gets standard error, and standard output too unless `output` is given.
            output: gets standard output.
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
        """The exit status; None while it runs."""
        return self._process.poll()

    def require_running(self) -> None:
        """Do nothing, or say why it ended.

        Raises:
            DemoError: it has ended; with the end of its log.
        """
        if self.status is not None:
            raise DemoError(f"{self.what} ended with status {self.status}.{log_tail(self.log)}")

    def stop(self, within_s: float) -> int:
        """Ask it to end, with SIGTERM, and wait; gives the exit status.

        Raises:
            DemoError: it did not end in time, or not with status 0; with the end of its log.
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
        """End by force what still runs of it, descendants included."""
        self._process.poll()
        # Again, because one that is about to start another may be seen before and the other one not.
        while members := self.members():
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            self._process.wait()
            psutil.wait_procs(members, timeout=_KILL_GRACE_S)

    def members(self) -> list[psutil.Process]:
        """The processes of its session: itself and all that it started, also when their parents have ended."""
        found = []
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.pid and (member := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                    found.append(member)
        return found


class ProcessMeter:
    """CPU time and memory of a child with all its processes; `look` must be called now and then.

    Attributes:
        peak_memory_bytes: most memory seen at a time; where the system tells, pages that processes share count once.
    """

    def __init__(self, child: ChildProcess, *, every_s: float = 2.0) -> None:
        """Measure no more often than `every_s`."""
        self._child = child
        self._every_s = every_s
        self._next_s = 0.0
        self._cpu_s: dict[tuple[int, float], float] = {}
        self.peak_memory_bytes = 0

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far, of processes that have ended too (up to the last look at them)."""
        return sum(self._cpu_s.values())

    def look(self) -> None:
        """Measure, if it is time to."""
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
