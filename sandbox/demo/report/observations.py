"""Rates, lag, latency and percentiles of the demo's changes. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bridge.model.times import UnixMicros, UnixMillis

_SECOND_US: Final = 1_000_000
PERCENTILES: Final = (50, 90, 95, 99)


class Point(NamedTuple):
    """A value at a time, in seconds since the writer began."""

    at_s: float
    value: float


@dataclass(slots=True)
class GenerationMark:
    """A generation that began while the writer ran.

    Attributes:
        start_ms: start of the generation, in Unix ms.
        published_us: time of the publication, in Unix us; None before it.
    """

    start_ms: UnixMillis
    published_us: UnixMicros | None = None

    @property
    def late_s(self) -> float | None:
        """Seconds from the generation's start to its publication; negative if it was published before its start."""
        return None if self.published_us is None else (self.published_us - self.start_ms * 1000) / _SECOND_US


@dataclass(slots=True)
class Observations:
    """Measurements of the time in which the writer ran. Times are Unix us.

    Attributes:
        begin_us: the writer's beginning; None before it.
        end_us: the writer's end; None before it.
        written_us: write timestamps of the acknowledged changes.
        arrived_us: arrival time of each arrived change.
        arrived_written_us: write timestamp of each arrived change.
        generations: generations that began meanwhile, by their start.
    """

    begin_us: UnixMicros | None = None
    end_us: UnixMicros | None = None
    written_us: array[int] = field(default_factory=lambda: array("q"))
    arrived_us: array[int] = field(default_factory=lambda: array("q"))
    arrived_written_us: array[int] = field(default_factory=lambda: array("q"))
    generations: dict[UnixMillis, GenerationMark] = field(default_factory=dict)

    def arrive(self, at_us: UnixMicros, written_us: UnixMicros) -> None:
        """Add the arrival of a change."""
        self.arrived_us.append(at_us)
        self.arrived_written_us.append(written_us)

    @property
    def latencies_ms(self) -> list[float]:
        """Milliseconds from write timestamp to arrival, for each arrived change."""
        return [
            (at_us - written_us) / 1000
            for at_us, written_us in zip(self.arrived_us, self.arrived_written_us, strict=True)
        ]

    def calm_latencies_ms(self, settle_us: int) -> list[float]:
        """The latencies in ms of the changes that no generation change delayed.

        Args:
            settle_us: changes are left out until this time after a generation's start, or after its publication if
                that is later.
        """
        held = [
            (mark.start_ms * 1000, max(mark.start_ms * 1000, mark.published_us or 0) + settle_us)
            for mark in self.generations.values()
        ]
        return [
            (at_us - written_us) / 1000
            for at_us, written_us in zip(self.arrived_us, self.arrived_written_us, strict=True)
            if not any(start <= written_us < end for start, end in held)
        ]

    @property
    def changes_per_s(self) -> float:
        """Arrivals per second, from the first arrival to the last."""
        if len(self.arrived_us) < 2:
            return 0.0
        duration_us = max(self.arrived_us) - min(self.arrived_us)
        return len(self.arrived_us) * _SECOND_US / duration_us if duration_us else 0.0

    def seconds_after_begin(self, instant_us: float) -> float:
        """Convert a time in Unix us to seconds since the writer began."""
        return (instant_us - (self.begin_us or 0)) / _SECOND_US

    def rate(self, instants_us: Iterable[int]) -> list[Point]:
        """Count the times that lie in each second, including seconds with none.

        Args:
            instants_us: times in Unix us.
        """
        counts: dict[int, int] = {}
        for instant_us in instants_us:
            second = int(self.seconds_after_begin(instant_us) // 1)
            counts[second] = counts.get(second, 0) + 1
        if not counts:
            return []
        return [Point(second + 0.5, counts.get(second, 0)) for second in range(min(counts), max(counts) + 1)]

    def lag(self, step_s: float = 0.25) -> list[Point]:
        """Number of changes that were written and had not arrived yet, every `step_s` seconds."""
        if not self.written_us or self.begin_us is None:
            return []
        written, arrived = sorted(self.written_us), sorted(self.arrived_us)
        last_us = max(written[-1], arrived[-1] if arrived else 0)
        found, at_us = [], self.begin_us
        while at_us <= last_us + step_s * _SECOND_US:
            outstanding = bisect_right(written, at_us) - bisect_right(arrived, at_us)
            found.append(Point(self.seconds_after_begin(at_us), max(0, outstanding)))
            at_us = UnixMicros(at_us + int(step_s * _SECOND_US))
        return found

    def latency(self, percent: float, step_s: float = 0.5) -> list[Point]:
        """A percentile of the latency in seconds, by the time of the write, for each interval of `step_s` seconds."""
        pairs = sorted(zip(self.arrived_written_us, self.arrived_us, strict=True))
        if not pairs:
            return []
        writes = [written_us for written_us, _ in pairs]
        step_us = int(step_s * _SECOND_US)
        found = []
        for from_us in range(self.begin_us or writes[0], writes[-1] + 1, step_us):
            part = pairs[bisect_left(writes, from_us) : bisect_left(writes, from_us + step_us)]
            if part:
                value = percentile([at_us - written_us for written_us, at_us in part], percent)
                found.append(Point(self.seconds_after_begin(from_us + step_us / 2), value / _SECOND_US))
        return found


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` percent of the values do not exceed.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    rank = -(-len(values) * percent // 100)
    return sorted(values)[max(0, int(rank) - 1)]


def latency_summary(latencies_ms: Sequence[float]) -> dict[str, float | None]:
    """Percentiles and maximum of latencies in ms, rounded to 0.1; all None if there are no latencies."""
    ordered = sorted(latencies_ms)
    summary: dict[str, float | None] = {
        f"p{percent}": round(percentile(ordered, percent), 1) if ordered else None for percent in PERCENTILES
    }
    summary["max"] = round(ordered[-1], 1) if ordered else None
    return summary
