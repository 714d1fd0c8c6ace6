"""The simulated scenario: its size, its clocks and its generations."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.errors import BenchError
from bridge.config.document import ReadingSettings
from bridge.model.times import UnixMillis
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.poll_rate import load_interval_s

SECOND: Final = 1_000_000
FIRST: Final = UnixMillis(1_700_000_000_000)
LEEWAY_S: Final = 5
LAG_S: Final = 4
"""A row is visible at most this long after its write time."""
SKEW_S: Final = 2
"""A clock, the reader's too, is at most this far ahead."""
CONFIDENCE_S: Final = LAG_S + SKEW_S
"""The smallest sufficient value, so that a reader that reads too early is detected."""
NODES: Final = tuple(f"10.0.0.{number}" for number in range(8))
ASKING_MS: Final = 300
"""Clocks of nodes are less ahead by this time: the reader counts up to 250 ms of the request for them."""
LONGEST_BATCH_S: Final = 5.0
OWN_CLOCK_S: Final = (0, 0, -1, SKEW_S, -20, 3600)
"""Seconds by which the clock of the reader's machine is ahead, in turns."""
SETTINGS: Final = ReadingSettings()


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the simulation.

    Attributes:
        streams: number of streams of each generation.
        change_every_s: seconds from one generation to the next.
        interval_s: seconds between two checks whether a micro-batch is due.
        requests_per_s: request limit for all tables together.
        rows_per_minute: rows of each table; a third of them within seconds of a generation change.
        killed: share of micro-batches in which the job is killed.
        leeway_s: the reader's `reading.leeway_ms`.
        confidence_s: the reader's confidence window.
    """

    tables: int = 20
    minutes: int = 1440
    streams: int = 100 * 256 * 16
    change_every_s: int = 60
    interval_s: int = 5
    requests_per_s: int = 300_000
    rows_per_minute: int = 30
    keys: int = 40
    lanes: int = 4
    killed: float = 0.01
    leeway_s: int = LEEWAY_S
    confidence_s: int = CONFIDENCE_S

    @property
    def apart_s(self) -> float:
        """The seconds between a table's micro-batches that the request limit requires."""
        return load_interval_s(self.streams, self.requests_per_s / self.tables)

    @property
    def stall_bound_s(self) -> float:
        """The longest time that a moved key may wait after its generation change is due and published.

        It has two micro-batches, each with the wait until it is due and until the next check, and the largest backward
        step of the reader's clock.
        """
        each_s = max(self.apart_s, LONGEST_BATCH_S) + self.interval_s
        return self.confidence_s + self.leeway_s + 2 * each_s + max(-min(OWN_CLOCK_S), 0)


class Violation(BenchError):  # noqa: N818  # what the simulation is there to find
    """An invariant is violated."""


class Killed(Exception):  # noqa: N818  # not a failure
    """The job is killed."""


class Generations:
    """Starts and publication times of all generations, from a minute before the start to 40 s after it, in order."""

    def __init__(self, size: Size, random: Random) -> None:
        every_ms = size.change_every_s * 1000
        count = 1 + size.minutes * 60_000 // every_ms
        self.starts_ms = [UnixMillis(FIRST + place * every_ms) for place in range(count)]
        self.published_us: list[int] = []
        for start_ms in self.starts_ms:
            late_s = random.choice([-60, -30, 3, 12, 40])
            at_us = start_ms * 1000 + late_s * SECOND
            self.published_us.append(max(at_us, self.published_us[-1] if self.published_us else 0))
        self.published_us[0] = 0
        self._all = [GenerationStart(start_ms) for start_ms in self.starts_ms]

    def known(self, now_us: int) -> Sequence[GenerationStart]:
        """The generations that are published at a time."""
        return self._all[: bisect_right(self.published_us, now_us)]

    def place(self, time_us: int) -> int:
        """The index of the generation that a write time belongs to."""
        return bisect_right(self.starts_ms, time_us // 1000) - 1
