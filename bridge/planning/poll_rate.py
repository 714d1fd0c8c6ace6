"""How often a table is polled: by the number of its streams, and less often while nothing is written to it. Pure.

A micro-batch asks every stream once, even if nothing was written. So polling costs `streams / interval` requests a
second; a request that asks several streams counts once for each. Further pages of a stream are read only if there are
changes, and only `scylla.requests_in_flight` limits them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONGEST_RETRY_PAUSE_S: Final = 10.0
"""A retried task waits no longer than this, because it occupies a core that other tables' tasks could use."""


@dataclass(frozen=True, slots=True)
class PollLimits:
    """Limits of one table's polling.

    Attributes:
        requests_per_s: the most first requests to streams a second.
        idle_interval_s: the longest interval between the micro-batches of an idle table, in s.
    """

    requests_per_s: float
    idle_interval_s: float


class PollRate:
    """When the next micro-batch of a table is due. All clock readings come from one monotonic clock, in s."""

    def __init__(self, limits: PollLimits, now_s: float, *, wait_s: float = 0.0) -> None:
        """Create the state of one table.

        Args:
            limits: the limits.
            now_s: the clock's reading.
            wait_s: how much longer the requests of an earlier planner count, in s.
        """
        self._limits = limits
        self._planned_s = now_s if wait_s else float("-inf")
        self._interval_s = wait_s
        self._last_change_s = now_s
        self._longest_idle_s = float("inf")

    def record_changes(self, now_s: float) -> None:
        """Record that a micro-batch had changes."""
        self._last_change_s = now_s

    def record_batch(self, now_s: float, streams: int) -> float:
        """Record a micro-batch that asks `streams` streams; return for how long its requests count, in s."""
        self._planned_s = now_s
        self._interval_s = load_interval_s(streams, self._limits.requests_per_s)
        return self._interval_s

    def limit_idle_interval(self, seconds: float) -> None:
        """Set a further limit for the interval of an idle table, in s; it replaces the last one."""
        self._longest_idle_s = seconds

    def due_in_s(self, now_s: float, *, idle: bool) -> float:
        """Return how long the next micro-batch must wait, in s; 0 if it is due.

        Args:
            now_s: the clock's reading.
            idle: whether there is nothing to do but wait for changes: no backlog and no pending generation.
        """
        interval_s = max(self._interval_s, self.idle_interval_s(now_s) if idle else 0.0)
        return max(0.0, self._planned_s + interval_s - now_s)

    def idle_interval_s(self, now_s: float) -> float:
        """Return the interval between micro-batches while the table is idle, in s.

        It is at most half of the time since the last change, so the delay of the next change is in proportion to the
        time without changes.
        """
        return min(self._limits.idle_interval_s, self._longest_idle_s, (now_s - self._last_change_s) / 2)


def load_interval_s(streams: int, requests_per_s: float) -> float:
    """Return the interval in s at which micro-batches that ask `streams` streams cost `requests_per_s`."""
    return streams / requests_per_s
