"""What a chaos run is to do, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.chaos.plan import KINDS, Fault
from tests.chaos.witness import Counts


@dataclass(frozen=True, slots=True)
class Leg:
    """What a seed decides: the faults of so many minutes, and what is written meanwhile.

    Attributes:
        seed: decides both.
        minutes: as of `tests.chaos.plan.plan`.
        kinds: the same.
        least: the same.
    """

    seed: int
    minutes: float
    kinds: Collection[str] = KINDS
    least: int = 5

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.kinds) - set(KINDS)):
            raise ValueError(f"no such fault: {', '.join(unknown)}")


@dataclass(slots=True)
class Outcome:
    """What a leg came to.

    Attributes:
        planned: faults that were to be.
        faults: those that something met, each with the seconds from its end to the next published change; None when
            none came.
        unmet: those that nothing met, however often they were tried: there is no kind that may be missed.
        counts: the witness's, of all that was written so far.
        problems: what else was wrong.
    """

    seed: int
    planned: int = 0
    faults: list[tuple[Fault, float | None]] = field(default_factory=list)
    unmet: list[Fault] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    generations: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, though there were changes and every fault that was planned."""
        disturbed = 0 < self.planned == len(self.faults)
        return self.counts.clean and not self.problems and self.counts.written > 0 and disturbed

    def __str__(self) -> str:
        slowest = max((took for _, took in self.faults if took is not None), default=0.0)
        missed = Counter(fault.kind for fault in self.unmet)
        by_kind = f" (not met: {', '.join(f'{kind} {number}' for kind, number in missed.items())})" if missed else ""
        return (
            f"chaos seed={self.seed}: {self.seconds:.0f} s, {len(self.faults)} of {self.planned} faults met{by_kind}, "
            f"{self.generations} generations, {self.counts}, "
            f"{len(self.problems)} other problems; slowest recovery {slowest:.1f} s"
        )
