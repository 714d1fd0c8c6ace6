"""How often a table is looked at, by what its streams cost and by what came. Pure; readings of a clock are given.

A micro-batch asks each stream once, whether or not anything was written, so looking costs `streams / interval` requests
a second; one that asks several streams at once counts as one for each. Pages beyond a stream's first come with changes;
those only `scylla.requests_in_flight` bounds. A planner that takes over from another waits as long as the one before it
would have, and a task that is tried again as long or `LONGEST_PAUSE_S`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONGEST_PAUSE_S: Final = 10.0
"""A task that waits holds a core that other tables' tasks could use."""


@dataclass(frozen=True, slots=True)
class PaceLimits:
    """What looking may cost.

    Attributes:
        requests_per_s: most requests a second that one table's micro-batches may begin with.
        idle_interval_s: longest time from one micro-batch to the next of a table to which nothing is written.
    """

    requests_per_s: float
    idle_interval_s: float


class Pacer:
    """Says when one table's next micro-batch is due. Every reading is of one clock, in s, and does not go back."""

    def __init__(self, limits: PaceLimits, now_s: float, *, wait_s: float = 0.0) -> None:
        """Begin.

        Args:
            limits: what looking may cost.
            now_s: the clock's reading.
            wait_s: for how long what another has asked before still counts.
        """
        self._limits = limits
        self._planned_s = now_s if wait_s else float("-inf")
        self._load_s = wait_s
        self._active_s = now_s
        self._most_s = float("inf")

    def came(self, now_s: float) -> None:
        """Note that a micro-batch had changes."""
        self._active_s = now_s

    def planned(self, now_s: float, streams: int) -> float:
        """Note that a micro-batch was planned which asks so many streams; for how long that counts, in s."""
        self._planned_s = now_s
        self._load_s = load_interval_s(streams, self._limits.requests_per_s)
        return self._load_s

    def pause_at_most(self, seconds: float) -> None:
        """Bound the pause of a silent table once more; until the next such word."""
        self._most_s = seconds

    def due_in_s(self, now_s: float, *, idle: bool) -> float:
        """How long the next micro-batch must wait; never negative.

        Args:
            now_s: the clock's reading.
            idle: whether waiting for changes is all that is to be done; a pending change of generations is not, nor is
                a time behind the present that is still to be read.
        """
        interval_s = max(self._load_s, self.pause_s(now_s) if idle else 0.0)
        return max(0.0, self._planned_s + interval_s - now_s)

    def pause_s(self, now_s: float) -> float:
        """How far micro-batches of a table lie apart that had no changes for as long as this one.

        Half that long at most, so a change that ends the silence is late by no more than a share of it.
        """
        return min(self._limits.idle_interval_s, self._most_s, (now_s - self._active_s) / 2)


def load_interval_s(streams: int, requests_per_s: float) -> float:
    """How far micro-batches must lie apart that ask so many streams, for this many requests a second."""
    return streams / requests_per_s
