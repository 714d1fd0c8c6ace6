"""CPU time and memory of a process tree, from Linux's /proc.

A process's own times leave with it, but the kernel adds them to the parent that waits for it (`cutime`, `cstime`). So at
any instant the sum over a tree of own and inherited times is all that the tree has used so far, processes that ended
included, provided that nobody leaves the tree: `adopt_orphans` sees to that.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.errors import BenchError

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/<pid>/stat.

    Attributes:
        start_ticks: when it started; with the pid it names a process for certain.
        own_s: CPU time that it used itself, user and system.
        inherited_s: CPU time of children that ended and that it waited for, theirs included.
    """

    pid: int
    parent: int
    start_ticks: int
    own_s: float
    inherited_s: float
    rss_bytes: int


def parse_stat(text: str) -> ProcessStat:
    """The fields of a /proc/<pid>/stat line that matter here."""
    pid, _, rest = text.partition(" ")
    # The command may hold spaces and parentheses itself: fields count from behind the last one.
    fields = rest.rpartition(")")[2].split()
    user, system, child_user, child_system = (int(fields[place]) / _TICKS_PER_S for place in (11, 12, 13, 14))
    return ProcessStat(
        int(pid), int(fields[1]), int(fields[19]), user + system, child_user + child_system, int(fields[21]) * _PAGE_BYTES
    )


def descendants(root: int, everyone: Iterable[ProcessStat]) -> list[ProcessStat]:
    """The processes below `root`, parents before children; `root` itself is not among them."""
    children: dict[int, list[ProcessStat]] = {}
    for one in everyone:
        children.setdefault(one.parent, []).append(one)
    found: list[ProcessStat] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [one.pid for one in below]
    return found


def everyone() -> list[ProcessStat]:
    """Every process of the machine that can be seen now."""
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            text = _read(_PROC / entry.name / "stat")
            if text:
                found.append(parse_stat(text))
    return found


def cpu_s(tree: Iterable[ProcessStat]) -> float:
    """CPU time used so far below this process: by a tree of its descendants, and by children that it waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.own_s + one.inherited_s for one in tree) + ended.ru_utime + ended.ru_stime


def pss_bytes(tree: Iterable[ProcessStat]) -> int:
    """Memory of a tree with shared pages counted once; reading it takes the kernel some ms for each GiB."""
    total = 0
    for one in tree:
        for line in _read(_PROC / str(one.pid) / "smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def role(one: ProcessStat, main: int) -> str:
    """What a process of the bridge is: `driver` (the job), `jvm`, `workers`, `planner`, or `other`."""
    if one.pid == main:
        return "driver"
    command = _read(_PROC / str(one.pid) / "cmdline").replace("\0", " ")
    program = Path(command.partition(" ")[0]).name
    if program == "java":
        return "jvm"
    if "pyspark.daemon" in command or "pyspark/daemon" in command:
        return "workers"
    return "planner" if program.startswith("python") else "other"


class RoleTimes:
    """CPU time by role, from what was last seen of each process; what ran between two looks only is `other`."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[str, float]] = {}

    def look(self, tree: Sequence[ProcessStat], main: int) -> None:
        """Take the tree as it is now."""
        for one in tree:
            self._seen[one.pid, one.start_ticks] = (role(one, main), one.own_s)

    def shares(self, total_s: float) -> dict[str, float]:
        """CPU seconds of each role; they add up to `total_s`."""
        found: dict[str, float] = {}
        for name, seconds in self._seen.values():
            found[name] = found.get(name, 0.0) + seconds
        found["other"] = max(0.0, total_s - sum(seconds for name, seconds in found.items() if name != "other"))
        return found


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that its times can't get lost.

    Raises:
        BenchError: this is not Linux.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Get SIGTERM when the parent ends, however it ends.

    Raises:
        BenchError: this is not Linux.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        raise BenchError("the benchmark needs Linux: it reads /proc, and adopts orphaned processes to count their CPU")
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise BenchError(f"prctl({option}) failed: {os.strerror(number)}")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""  # It has ended, or is not ours.
