"""The faults of a run. They depend on the seed only, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.chaos.fault_points import POINTS, Point

ISOLATED: Final = ("full disk", "read-only checkpoint", "slow network", "network stall")
"""Kinds of faults that need a mount or a network namespace."""

KINDS: Final = (
    "kill the JVM",
    "kill a worker",
    "kill the job",
    "die at a point",
    "err at a point",
    "stop a worker",
    "stop the job",
    "zombie job",
    "second job",
    "kill the broker",
    "kill the CQL server",
    "kill the registry",
    "checkpoint deleted",
    "other lanes",
    "clock jump",
    "hung task",
    "throttled broker",
    "slow CQL node",
    "lagging node",
    *ISOLATED,
)
_AT_A_POINT: Final = ("die at a point", "err at a point", "stop a worker", "zombie job", "hung task")
SECONDS_EACH: Final = 10


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        calm_s: seconds without faults before it.
        point: the point, for kinds that happen at a point.
        number: a random number, which the kind uses (seconds, lanes, which of several).
    """

    kind: str
    calm_s: float
    point: Point
    number: int

    def __str__(self) -> str:
        point = f"{self.point}, " if self.kind in _AT_A_POINT else ""
        return f"{self.kind} ({point}{self.number})"


def plan(seed: int, minutes: float, kinds: Collection[str] = KINDS, *, least: int = 5) -> list[Fault]:
    """Plan the faults of a run. No kind occurs again before all others have occurred.

    Args:
        seed: seed of all random choices.
        minutes: shortest duration of the run; one fault for every ten seconds.
        kinds: the possible kinds. Other kinds give another plan.
        least: smallest number of faults.
    """
    random = Random(f"{seed}/faults")
    pool: list[str] = []
    faults = []
    for _ in range(max(least, round(minutes * 60 / SECONDS_EACH))):
        if not pool:
            pool = random.sample(sorted(kinds), len(kinds))
        point = random.choice(POINTS)
        faults.append(Fault(pool.pop(), random.uniform(1, 6), point, random.randint(0, 1000)))
    return faults
