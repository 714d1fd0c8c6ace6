"""What a chaos run is to do, and its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.chaos.plan import KINDS, Fault
from tests.chaos.witness import Counts


@dataclass(frozen=True, slots=True)
class Leg:
    """A part of a run with its own seed.

    Attributes:
        seed: seed of the faults and of the writes.
        minutes: shortest duration; one fault for every ten seconds.
        kinds: kinds of faults.
        least: smallest number of faults.
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
    """The result of a leg.

    Attributes:
        planned: number of planned faults.
        faults: faults that hit something, each with the seconds from its end to the next published change; None if
            none came.
        unmet: faults that hit nothing in several tries. No kind of fault may be missing.
        counts: the witness's counts of all changes so far.
        problems: other faults that were found.
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
        """Whether no fault was found, changes were written, and every planned fault hit something."""
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
