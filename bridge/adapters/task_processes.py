"""Which processes of this machine work on a table's lanes: each task announces its process by a file while it runs.

The job needs this to name and to end the process of a task that hangs. Tasks on other machines announce nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PREFIX: Final = "task-"
_AFTER_NAME: Final = ")"
_START_TIME: Final = 19
"""The field of /proc/PID/stat, counted from the one behind the process's name."""
_ENDED: Final = ("Z", "X")
"""The states of processes that have ended."""


@dataclass(frozen=True, slots=True)
class TaskProcess:
    """A process that works on a lane.

    Attributes:
        lane: number of the lane.
        pid: id of the process.
        started: when the process started, in the kernel's ticks: ids are used again.
    """

    lane: int
    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Whether that very process still runs."""
        return _start_time(self.pid) == self.started

    def kill(self) -> None:
        """End the process at once, even if it is stopped or blocked."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class TaskProcesses:
    """The processes that work on one table's lanes.

    Args:
        path: `bridge.adapters.planner_signals.SignalFolder.path`; None where there is no job.
    """

    def __init__(self, path: str | None) -> None:
        self._folder = None if path is None else Path(path).parent

    @contextmanager
    def announce(self, lane: int) -> Iterator[None]:
        """Announce that this process works on a lane; does nothing on a machine other than the job's."""
        pid = os.getpid()
        started = None if self._folder is None else _start_time(pid)
        if self._folder is None or started is None:
            yield
            return
        file = self._folder / f"{_PREFIX}{pid}"
        with suppress(OSError):
            file.write_text(f"{lane} {started}", "ascii")
        try:
            yield
        finally:
            with suppress(OSError):
                file.unlink(missing_ok=True)

    def find(self) -> list[TaskProcess]:
        """Return the processes that work on lanes now, by lane."""
        if self._folder is None:
            return []
        found = [one for file in self._folder.glob(f"{_PREFIX}*") if (one := _read(file)) is not None]
        return sorted((one for one in found if one.is_alive), key=lambda one: one.lane)


def _read(file: Path) -> TaskProcess | None:
    try:
        lane, started = map(int, file.read_text("ascii").split())
        return TaskProcess(lane, int(file.name.removeprefix(_PREFIX)), started)
    except (OSError, ValueError):
        # The task is just beginning, or has ended.
        return None


def _start_time(pid: int) -> int | None:
    """Return when a process started; None if it does not run, or where the kernel does not tell it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(_AFTER_NAME)[2].split()
    except OSError:
        return None
    return None if fields[0] in _ENDED else int(fields[_START_TIME])
