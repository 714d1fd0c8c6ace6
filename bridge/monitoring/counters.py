"""What tasks count, and how it adds up: plain values that travel from the workers' processes to the driver's.

A process counts into its own store (`tally`); what it has counted leaves with the next task that succeeds there, in its
report (`bridge.monitoring.reports`). So what a failed attempt counted is not lost with it. Reports arrive when the
whole micro-batch is done; of one that failed they are told again by the process's next task of it. A process that dies
takes figures along. Counting happens for each page, group and transaction, never for a change.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any, Final, Self

from bridge.errors import BridgeError

LATENCY_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram of requests, in s."""

DURATION_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histogram of micro-batches, in s."""

LaneKey = tuple[str, int]
"""Table, as in `keyspace.table`, and lane."""


@dataclass(slots=True)
class Histogram:
    """Counts by size.

    Attributes:
        bounds: upper bounds, inclusive, ascending; a last bucket without bound follows.
        counts: how many fell into each bucket, not accumulated.
        total: the sum of what was observed.
    """

    bounds: tuple[float, ...] = LATENCY_BOUNDS_S
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """Count all that the other has counted; both have the same bounds."""
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def copy(self) -> Histogram:
        """One that counts by itself."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(slots=True)
class LaneFigures:
    """What was counted of one lane of one table.

    Attributes:
        changes: published and committed; neither tombstones nor dead letters.
        value_bytes: bytes of their keys and values, framed, before compression.
        groups: committed, by their first record.
        transactions: committed, those with a cursor alone included.
        aborts: transactions that were given up.
        fencings: how often another process had taken the transactional id over, or Kafka had ended a transaction for
            its age: it does not tell these apart.
        pages: latency of requests to the log, failed ones included, in s.
        page_errors: those that failed.
        log_rows: rows in the pages.
        most_in_flight: most requests of a lane under way at once.
        registry: latency of the schema registry's answers, in s.
        registry_errors: calls that failed.
        unknown_operations: changes that were read with a `cdc$operation` which this release does not know.
        dead_letters: committed to the dead-letter topic.
        repeats: groups left out as repeats of an earlier one (`reading.deduplicate`).
        keys_checked: changes whose key was held against their stream.
        keys_misplaced: those of them whose key does not belong there.
        throttled_ms: how long brokers had the lane's producer wait for quotas.
    """

    changes: int = 0
    value_bytes: int = 0
    groups: int = 0
    transactions: int = 0
    aborts: int = 0
    fencings: int = 0
    pages: Histogram = field(default_factory=Histogram)
    page_errors: int = 0
    log_rows: int = 0
    most_in_flight: int = 0
    registry: Histogram = field(default_factory=Histogram)
    registry_errors: int = 0
    unknown_operations: int = 0
    dead_letters: int = 0
    repeats: int = 0
    keys_checked: int = 0
    keys_misplaced: int = 0
    throttled_ms: int = 0

    def add(self, other: LaneFigures) -> None:
        """Add another's counts to these; of `most_in_flight` the last that is known stays."""
        for one in fields(self):
            mine, theirs = getattr(self, one.name), getattr(other, one.name)
            if isinstance(mine, Histogram):
                mine.add(theirs)
            elif one.name == "most_in_flight":
                self.most_in_flight = theirs or mine
            else:
                setattr(self, one.name, mine + theirs)

    def copy(self) -> LaneFigures:
        """One that counts by itself."""
        made = LaneFigures()
        made.add(self)
        return made

    def to_json(self) -> dict[str, Any]:
        """What is not zero, as plain values."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Histogram):
                if value.count:
                    found[one.name] = [value.counts, value.total]
            elif value:
                found[one.name] = value
        return found

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Raises BridgeError when this is not what `to_json` gave."""
        made = cls()
        for name, found in value.items():
            match getattr(made, name, None), found:
                case Histogram() as histogram, [list(counts), (int() | float()) as total]:
                    histogram.add(Histogram(histogram.bounds, counts, total))
                case int(), int():
                    setattr(made, name, found)
                case _:
                    raise BridgeError(f"not a lane's figures: {name} is {found!r}")
        return made


Counted = list[tuple[str, int, LaneFigures]]
"""Figures by table and lane, as they travel."""


def to_json(counted: Counted) -> list[Any]:
    """Plain values."""
    return [[table, lane, figures.to_json()] for table, lane, figures in counted]


def from_json(value: Iterable[Any]) -> Counted:
    """Raises BridgeError when this is not what `to_json` gave."""
    found: Counted = []
    for one in value:
        match one:
            case [str(table), int(lane), dict(figures)]:
                found.append((table, lane, LaneFigures.from_json(figures)))
            case _:
                raise BridgeError(f"not a lane's figures: {one!r}")
    return found


Work = tuple[str, Hashable]
"""A table, and one of its micro-batches."""


@dataclass(slots=True)
class _Sent:
    work: Work
    attempt: str
    counted: Counted


class Store:
    """What this process has counted and not handed on yet. Thread-safe: a driver's threads count too."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pending: dict[LaneKey, LaneFigures] = {}
        self._sent: dict[str, _Sent] = {}

    def add(self, table: str, lane: int, figures: LaneFigures) -> None:
        """Count."""
        with self._lock:
            self._of(table, lane).add(figures)

    def absorb(self, counted: Counted) -> None:
        """Count what was counted elsewhere, or before."""
        for table, lane, figures in counted:
            self.add(table, lane, figures)

    def begin(self, work: Work, attempt: str) -> None:
        """A task begins: what was reported with an earlier attempt at the same micro-batch has not arrived.

        Args:
            work: the micro-batch.
            attempt: of the query that works it; all tasks of a micro-batch that succeeds have the same.
        """
        with self._lock:
            sent = self._sent.get(work[0])
            if sent is None or (sent.work, sent.attempt) == (work, attempt):
                return
            del self._sent[work[0]]
        if sent.work == work:
            self.absorb(sent.counted)

    def report(self, work: Work, attempt: str) -> Counted:
        """Hand on what was counted since the last time, with a task that succeeds; arguments as `begin`."""
        counted = self.take()
        with self._lock:
            self._sent.setdefault(work[0], _Sent(work, attempt, [])).counted.extend(counted)
        return counted

    def take(self) -> Counted:
        """Hand on what was counted since the last time, for good."""
        with self._lock:
            taken, self._pending = self._pending, {}
        return [(table, lane, figures) for (table, lane), figures in taken.items()]

    def page(self, table: str, lane: int, seconds: float, rows: int, in_flight: int, *, failed: bool) -> None:
        """Count a request for a page of the log."""
        with self._lock:
            of = self._of(table, lane)
            of.pages.observe(seconds)
            of.log_rows += rows
            of.page_errors += failed
            of.most_in_flight = max(of.most_in_flight, in_flight)

    def registry(self, table: str, lane: int, seconds: float, *, failed: bool) -> None:
        """Count a call of the schema registry."""
        with self._lock:
            of = self._of(table, lane)
            of.registry.observe(seconds)
            of.registry_errors += failed

    def _of(self, table: str, lane: int) -> LaneFigures:
        found = self._pending.get((table, lane))
        if found is None:
            found = self._pending[table, lane] = LaneFigures()
        return found


tally: Final = Store()
"""This process's."""
