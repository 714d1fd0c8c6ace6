"""When a query counts as hung, so that it is stopped and started again. Pure but for its clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

RESTART_AFTER: Final = 3
"""A query hangs once it has shown no progress for so many times `monitoring.stalled_after_s`."""
LEAST_PATIENCE_S: Final = 20.0
"""No query hangs sooner than this: Spark reports about a query that has nothing to read every 10 s only."""
FIRST_PATIENCE_S: Final = 120.0
"""No query hangs sooner than this before Spark's first report: its processes start, and its lanes are opened."""
_ASK_EVERY: Final = 6
"""Kafka is asked after a third of the patience, and then every sixth of it."""
_LONGEST_STEP_S: Final = 2.0
"""The most that counts between two looks: the job itself may have been suspended, which is no fault of the query."""
_MOST_DOUBLINGS: Final = 5

Advice = Literal["wait", "ask", "restart"]
"""`ask`: find out how far the table's topics reach, and call `StallWatch.note_topics`. `restart`: the query hangs."""


class StallWatch:
    """Watches one table's queries, one at a time. Not thread-safe.

    Two things count as progress: a report of Spark's, which comes after each micro-batch and every 10 s while there is
    nothing to read; and a record in one of the table's topics, also in an open transaction. A Kafka that does not
    answer counts as progress too: the query waits for it, and a restart would not help.

    The patience doubles with each restart after which Spark reported nothing, so that a micro-batch that needs longer
    is not interrupted for ever.

    Attributes:
        standing_s: for how long there was no progress, in s.
    """

    def __init__(
        self,
        stalled_after_s: float,
        *,
        longest_pause_s: float = 0.0,
        least_patience_s: float = LEAST_PATIENCE_S,
        first_patience_s: float = FIRST_PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a query.

        Args:
            stalled_after_s: `monitoring.stalled_after_s`.
            longest_pause_s: the longest pause between two micro-batches that is normal, in s.
            least_patience_s: no query hangs sooner than this, in s.
            first_patience_s: the same before Spark's first report about it.
            clock: monotonic seconds.
        """
        self.standing_s = 0.0
        patience_s = max(RESTART_AFTER * stalled_after_s, least_patience_s)
        self._first_patience_s = max(patience_s, first_patience_s) + longest_pause_s
        self._patience_s = patience_s + longest_pause_s
        self._has_reported = False
        self._clock = clock
        self._looked_s = clock()
        self._restarts = 0
        self._reports = 0
        self._reach: int | None = None
        self._ask_at_s = 0.0
        self._unmoved_s = 0.0
        self.begin(0)

    @property
    def patience_s(self) -> float:
        """After how long without progress the query counts as hung, in s."""
        plain_s = self._patience_s if self._has_reported else self._first_patience_s
        return plain_s * 2.0 ** min(self._restarts, _MOST_DOUBLINGS)

    def begin(self, reports: int) -> None:
        """Watch a query that has just started; `reports` is as for `look`."""
        self._reports, self._looked_s, self._has_reported = reports, self._clock(), False
        self._note_progress()

    def look(self, reports: int) -> Advice:
        """Look at the query. Call this often.

        Args:
            reports: how many reports of Spark's there were for the table so far.
        """
        now_s = self._clock()
        self.standing_s += min(now_s - self._looked_s, _LONGEST_STEP_S)
        self._looked_s = now_s
        if reports != self._reports:
            self._reports, self._restarts, self._has_reported = reports, 0, True
            self._note_progress()
        if self._unmoved_s >= self.patience_s:
            return "restart"
        return "ask" if self.standing_s >= self._ask_at_s else "wait"

    def note_topics(self, reach: int | None) -> None:
        """Take Kafka's answer.

        Args:
            reach: the sum of the ends of the partitions of the table's topics; None when Kafka does not answer.
        """
        moved = self._reach is not None and reach != self._reach
        if reach is None or moved:
            self._note_progress()
        else:
            if self._reach is not None:
                self._unmoved_s = self.standing_s
            # The last question comes when the patience ends, not a sixth later.
            next_s = self.standing_s + self.patience_s / _ASK_EVERY
            self._ask_at_s = next_s if self.standing_s >= self.patience_s else min(next_s, self.patience_s)
        self._reach = reach

    def note_restart(self) -> None:
        """Take into account that a hung query is started again."""
        self._restarts += 1

    def _note_progress(self) -> None:
        self.standing_s = self._unmoved_s = 0.0
        self._reach = None
        self._ask_at_s = self.patience_s * 2 / _ASK_EVERY
