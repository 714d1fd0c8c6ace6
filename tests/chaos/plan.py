"""The faults of a run, drawn from its seed alone, so that a seed replays."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.chaos.fault_points import POINTS, Point

ISOLATED: Final = ("full disk", "read-only checkpoint", "slow network", "network stall")
"""What needs a mount or a network of its own."""

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
    *ISOLATED,
)
_AT_A_POINT: Final = ("die at a point", "err at a point", "stop a worker", "zombie job")
SECONDS_EACH: Final = 10


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: one of `KINDS`.
        calm_s: how long the job runs undisturbed before it.
        point: for those that happen at a point.
        number: what the kind makes of it (seconds, lanes, which of several).
    """

    kind: str
    calm_s: float
    point: Point
    number: int

    def __str__(self) -> str:
        point = f"{self.point}, " if self.kind in _AT_A_POINT else ""
        return f"{self.kind} ({point}{self.number})"


def plan(seed: int, minutes: float, kinds: Collection[str] = KINDS, *, least: int = 5) -> list[Fault]:
    """The faults of a run: no kind comes again before all others came.

    Args:
        seed: decides everything.
        minutes: how long the run is to be at least; one fault for every ten seconds.
        kinds: those that can be done here. Leaving some out changes the plan.
        least: faults, however short the run.
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
