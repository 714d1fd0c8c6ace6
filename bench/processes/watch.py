"""Measures the CPU time of processes that do not run below the meter."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final, Self

from bench.figures import value_at
from bench.processes.cpu_time import CpuTotal, ProcessStat, RoleTimes, descendants, everyone, machine_busy_s, pss_bytes

_LOOK_EVERY_S: Final = 0.25
_WEIGH_EVERY_LOOKS: Final = 8
_ENDS_WITHIN_S: Final = 10.0
_NOT_ONE_OF_THEM: Final = -1
_MIB: Final = 1024 * 1024

MACHINE: Final = "machine"
"""The name of the whole machine's CPU time."""


class Watch:
    """Samples processes in a thread of its own during the `with` block."""

    def __init__(self, *, below: Mapping[str, Iterable[int]], of: Mapping[str, Iterable[int]]) -> None:
        """Name the processes to measure.

        Args:
            below: by name, processes whose descendants are measured, without the processes themselves.
            of: by name, processes that are measured themselves.
        """
        self._below = {name: frozenset(pids) for name, pids in below.items()}
        self._of = {name: frozenset(pids) for name, pids in of.items()}
        self._totals = {name: CpuTotal() for name in self._below}
        self._roles = {name: RoleTimes() for name in self._below}
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self._weights: list[tuple[float, float]] = []
        self._stopped = threading.Event()
        self._looks = 0

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(_ENDS_WITHIN_S)

    def cpu_s_between(self, name: str, start_s: float, end_s: float) -> float:
        """CPU seconds between two times in Unix s. `name.role` is a role's part of the processes below `name`."""
        points = self._samples.get(name, [(start_s, 0.0)])
        return value_at(points, end_s) - value_at(points, start_s)

    def cores_between(self, start_s: float, end_s: float) -> dict[str, float]:
        """The average number of cores that each name used, including the whole machine."""
        names = (*self._below, *self._of, MACHINE)
        return {name: self.cpu_s_between(name, start_s, end_s) / (end_s - start_s) for name in names}

    def peak_pss_mib(self, start_s: float, end_s: float) -> float:
        """The largest memory of all processes of `below`; a page that n processes share counts as 1/n."""
        return max((mib for at, mib in self._weights if start_s <= at <= end_s), default=0.0)

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self._look()
            self._stopped.wait(_LOOK_EVERY_S)

    def _look(self) -> None:
        all_, now_s = everyone(), time.time()
        by_pid = {one.pid: one for one in all_}
        self._note(MACHINE, now_s, machine_busy_s())
        for name, pids in self._of.items():
            self._note(name, now_s, sum(by_pid[pid].own_s for pid in pids if pid in by_pid))
        followed: list[ProcessStat] = []
        for name, pids in self._below.items():
            tree = [one for pid in pids for one in descendants(pid, all_)]
            ended_s = sum(by_pid[pid].inherited_s for pid in pids if pid in by_pid)
            total_s = self._totals[name].look(tree, ended_s)
            self._note(name, now_s, total_s)
            self._roles[name].look(tree, _NOT_ONE_OF_THEM)
            for role, seconds in self._roles[name].shares(total_s).items():
                self._note(f"{name}.{role}", now_s, seconds)
            followed += tree
        if self._looks % _WEIGH_EVERY_LOOKS == 0:
            self._weights.append((now_s, sum(map(pss_bytes, followed)) / _MIB))
        self._looks += 1

    def _note(self, name: str, at_s: float, seconds: float) -> None:
        self._samples.setdefault(name, []).append((at_s, seconds))
