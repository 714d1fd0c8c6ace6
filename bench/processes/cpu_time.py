"""CPU time and memory of a process tree, from Linux's /proc.

When a process ends, the kernel adds its times to the parent that waits for it (`cutime`, `cstime`). So the sum of own
and inherited times over a tree is the time that the tree has used, including ended processes, with two exceptions. The
times of orphans are lost; `adopt_orphans` prevents that. A process that ignores SIGCHLD, such as PySpark's daemon, does
not inherit the times of its children; `CpuTotal` keeps the last values that it saw.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.errors import BenchError

_PROC: Final = Path("/proc")
_PLANNER: Final = "pyspark.sql.str"
"""The name of the planner process, as Linux shortens it."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_NS_PER_S: Final = 1_000_000_000
_NUMBER_AT_END: Final = re.compile(r"(?:[-_ #]?\d+)+$")
OTHER_PYTHON: Final = "other Python"
"""The name that `ThreadTimes` gives to all threads of a Python process except its first."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One line of /proc/<pid>/stat.

    Attributes:
        start_ticks: start time; together with the pid it identifies a process.
        own_s: CPU time of the process itself, user and system.
        inherited_s: CPU time of the ended children that it has waited for, including their children.
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
    rss_bytes = int(fields[21]) * _PAGE_BYTES
    return ProcessStat(int(pid), int(fields[1]), int(fields[19]), user + system, child_user + child_system, rss_bytes)


def descendants(root: int, everyone: Iterable[ProcessStat]) -> list[ProcessStat]:
    """Return the processes below `root`, parents before children, without `root`."""
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
    """Return every visible process of the machine."""
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            text = _read(_PROC / entry.name / "stat")
            if text:
                found.append(parse_stat(text))
    return found


def ended_children_s() -> float:
    """CPU time of the children that this process has waited for, and of all that those had waited for."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime


def machine_busy_s() -> float:
    """CPU time that the whole machine has used since it was started, all cores together."""
    _, user, nice, system, _, _, irq, soft_irq, *_ = _read(_PROC / "stat").splitlines()[0].split()
    return sum(map(int, (user, nice, system, irq, soft_irq))) / _TICKS_PER_S


class CpuTotal:
    """The CPU time of a process tree, from frequent samples.

    The result is exact for processes that are alive or that a parent has waited for. For other ended processes, the
    time after the last sample is missing.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], ProcessStat] = {}
        self._counted_s = 0.0
        self._lost_s = 0.0
        self._in_doubt_s = 0.0

    def look(self, tree: Iterable[ProcessStat], ended_s: float) -> float:
        """Add a sample, and return the CPU seconds used so far.

        Args:
            tree: every process below the counting process.
            ended_s: CPU time that the counting process has inherited from its children.
        """
        now = {(one.pid, one.start_ticks): one for one in tree}
        counted_s = ended_s + sum(one.own_s + one.inherited_s for one in now.values())
        used_s = 0.0
        for name, one in now.items():
            before = self._last.get(name)
            used_s += one.own_s + one.inherited_s if before is None else one.own_s - before.own_s
        surplus_s = counted_s - (self._counted_s + used_s)
        if surplus_s < 0:
            # Processes have ended and no parent has inherited their times.
            self._in_doubt_s = -surplus_s
            self._lost_s += self._in_doubt_s
        else:
            # A sample is not atomic: a parent may be read before it inherits, and its child after it has ended.
            self._lost_s -= min(self._in_doubt_s, surplus_s)
            self._in_doubt_s = 0.0
        self._last, self._counted_s = now, counted_s
        return counted_s + self._lost_s


def pss_bytes(one: ProcessStat) -> int:
    """Return a process's memory; a page that n processes share counts as 1/n. Takes the kernel some ms per GiB."""
    for line in _read(_PROC / str(one.pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def role(one: ProcessStat, main: int) -> str:
    """Return the role of a process: `driver` (the job), `jvm`, `workers`, `planner`, `other`; empty if it has ended."""
    if one.pid == main:
        return "driver"
    command = _read(_PROC / str(one.pid) / "cmdline").replace("\0", " ")
    program = Path(command.partition(" ")[0]).name
    if program == "java":
        return "jvm"
    if not command:
        return ""
    if "spark.workers.fork_server" in command:
        # Forks of the job's fork server have its command line, but a name of their own.
        return "planner" if _read(_PROC / str(one.pid) / "comm").startswith(_PLANNER) else "workers"
    if "python_streaming_source_runner" in command:
        return "planner"
    # The project's daemon, or PySpark's (`pyspark.daemon`).
    return "workers" if "spark.workers.daemon" in command else "other"


class RoleTimes:
    """CPU time by role, from the last sample of each process. A process between two samples counts as `other`."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], tuple[str, float]] = {}

    def look(self, tree: Sequence[ProcessStat], main: int) -> None:
        """Take the tree as it is now."""
        for one in tree:
            name = (one.pid, one.start_ticks)
            former = self._seen.get(name, ("other", 0.0))[0]
            self._seen[name] = (role(one, main) or former, one.own_s)

    def role(self, one: ProcessStat) -> str:
        """The role of a process in its last sample."""
        return self._seen[one.pid, one.start_ticks][0]

    def counts(self) -> dict[str, int]:
        """The number of processes of each role."""
        names = [name for name, _ in self._seen.values()]
        return {name: names.count(name) for name in sorted(set(names))}

    def shares(self, total_s: float) -> dict[str, float]:
        """CPU seconds of each role; they add up to `total_s`."""
        found: dict[str, float] = {}
        for name, seconds in self._seen.values():
            found[name] = found.get(name, 0.0) + seconds
        found["other"] = max(0.0, total_s - sum(seconds for name, seconds in found.items() if name != "other"))
        return found


class ThreadTimes:
    """CPU time by role and thread, from the last sample of each thread.

    The time between a thread's last sample and its end is missing, so sample often, or only long-lived processes.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int, int], tuple[tuple[str, str], float]] = {}
        self._roles: dict[tuple[int, int], str] = {}

    def look(self, tree: Sequence[ProcessStat], main: int) -> None:
        """Take the tree as it is now; `main` as of `role`."""
        for one in tree:
            process = (one.pid, one.start_ticks)
            # The role never changes, but it is unknown while a process starts or ends.
            if self._roles.get(process, "other") == "other":
                self._roles[process] = role(one, main) or "other"
            for thread, name, seconds in _threads(one):
                self._seen[(*process, thread)] = ((self._roles[process], name), seconds)

    def totals(self) -> dict[tuple[str, str], float]:
        """CPU seconds so far, by role and thread; numbers at the ends of names are left out."""
        found: dict[tuple[str, str], float] = {}
        for name, seconds in self._seen.values():
            found[name] = found.get(name, 0.0) + seconds
        return found


def _threads(one: ProcessStat) -> Iterator[tuple[int, str, float]]:
    folder = _PROC / str(one.pid) / "task"
    try:
        threads = list(folder.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return
    own_name = _read(folder / str(one.pid) / "comm").strip()
    for thread in threads:
        name, times = _read(thread / "comm"), _read(thread / "schedstat")
        if name and times:
            number, name = int(thread.name), _NUMBER_AT_END.sub("", name.strip())
            # Python does not tell the kernel its threads' names.
            shown = "main" if number == one.pid else OTHER_PYTHON if name == own_name else name
            yield number, shown, int(times.split()[0]) / _NS_PER_S


def adopt_orphans() -> None:
    """Become the parent of every descendant whose parent ends, so that its times are not lost.

    Raises:
        BenchError: this is not Linux.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Receive SIGTERM when the parent ends for any reason.

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
