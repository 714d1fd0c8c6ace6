"""What one task counts of a lane: plain values, added up on their way from the workers to the driver. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from bridge.errors import BridgeError

LATENCY_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histograms of requests, in s."""


DURATION_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper bounds of the histogram of micro-batch durations, in s."""


LaneKey = tuple[str, int]
"""A table as `keyspace.table`, and the number of a lane."""


@dataclass(slots=True)
class Histogram:
    """Counts values by size.

    Attributes:
        bounds: inclusive upper bounds of the buckets, ascending; one more bucket has no bound.
        counts: number of values in each bucket, not accumulated.
        total: sum of the values.
    """

    bounds: tuple[float, ...] = LATENCY_BOUNDS_S
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram with the same bounds."""
        self.counts = [ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def copy(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.bounds, list(self.counts), self.total)


@dataclass(slots=True)
class LaneCounters:
    """Counts of one lane of one table.

    Attributes:
        changes: committed changes, without tombstones and dead letters.
        value_bytes: bytes of their framed keys and values, before compression.
        groups: committed groups, counted with their first record.
        transactions: committed transactions, including those that only move the cursor.
        aborts: aborted transactions.
        fencings: how often Kafka fenced the lane, because another process had taken over the transactional id or a
            transaction had timed out; Kafka does not distinguish these.
        pages: durations of requests to the log, including failed ones, in s.
        page_errors: failed requests to the log.
        log_rows: rows in the pages.
        most_in_flight: maximum number of requests under way at once.
        registry: durations of calls of the schema registry, in s.
        registry_errors: failed calls of the schema registry.
        unknown_operations: changes with a `cdc$operation` that this release does not know.
        dead_letters: records committed to the dead-letter topic.
        repeats: groups left out because they repeat an earlier one (`reading.deduplicate`).
        keys_checked: changes whose key was compared with their stream.
        keys_misplaced: checked changes whose key does not belong to their stream.
        throttled_ms: time for which brokers throttled the lane's producer because of quotas.
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

    def add(self, other: LaneCounters) -> None:
        """Add the counts of another; `most_in_flight` takes the other's value unless that is 0."""
        for counter in fields(self):
            ours, theirs = getattr(self, counter.name), getattr(other, counter.name)
            if isinstance(ours, Histogram):
                ours.add(theirs)
            elif counter.name == "most_in_flight":
                self.most_in_flight = theirs or ours
            else:
                setattr(self, counter.name, ours + theirs)

    def copy(self) -> LaneCounters:
        """Return an independent copy."""
        copied = LaneCounters()
        copied.add(self)
        return copied

    def to_json(self) -> dict[str, Any]:
        """Return the counts that are not zero as JSON values."""
        found: dict[str, Any] = {}
        for counter in fields(self):
            value = getattr(self, counter.name)
            if isinstance(value, Histogram):
                if value.count:
                    found[counter.name] = [value.counts, value.total]
            elif value:
                found[counter.name] = value
        return found

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Return the counts that `to_json` returned.

        Raises:
            BridgeError: the value has another form.
        """
        counters = cls()
        for name, found in value.items():
            match getattr(counters, name, None), found:
                case Histogram() as histogram, [list(counts), (int() | float()) as total]:
                    histogram.add(Histogram(histogram.bounds, counts, total))
                case int(), int():
                    setattr(counters, name, found)
                case _:
                    raise BridgeError(f"not the counters of a lane: {name} is {found!r}")
        return counters


CountersByLane = list[tuple[str, int, LaneCounters]]
"""Table, lane and their counters, as a report has them."""


def to_json(counted: CountersByLane) -> list[Any]:
    """Return the counters of lanes as JSON values."""
    return [[table, lane, counters.to_json()] for table, lane, counters in counted]


def from_json(value: Iterable[Any]) -> CountersByLane:
    """Return the counters that `to_json` returned.

    Raises:
        BridgeError: the value has another form.
    """
    found: CountersByLane = []
    for item in value:
        match item:
            case [str(table), int(lane), dict(counters)]:
                found.append((table, lane, LaneCounters.from_json(counters)))
            case _:
                raise BridgeError(f"not the counters of a lane: {item!r}")
    return found
