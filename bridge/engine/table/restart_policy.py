"""When a failed table starts again, and whether its failures point to a damaged checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LONGEST_BACKOFF_S: Final = 30.0
_FIRST_BACKOFF_S: Final = 0.5
_CALM_AFTER_S: Final = 60.0
_MOST_DOUBLINGS: Final = 6
_DOUBTED_AFTER: Final = 2


class RestartPolicy:
    """Counts one table's failures in a row, and sets the time of its next start.

    Attributes:
        failures: failures in a row; 0 again once a query has run for 60 s.
    """

    def __init__(
        self, *, longest_backoff_s: float = LONGEST_BACKOFF_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without failures.

        Args:
            longest_backoff_s: the longest pause before the next start, in s.
            clock: monotonic seconds.
        """
        self.failures = 0
        self._longest_backoff_s = longest_backoff_s
        self._clock = clock
        self._start_at_s = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the table may start now."""
        return self._clock() >= self._start_at_s

    def wait(self, seconds: float) -> None:
        """Let the next start wait without counting a failure."""
        self._start_at_s = self._clock() + seconds

    def note_failure(self, share_used_s: float) -> float:
        """Count a failure.

        Args:
            share_used_s: for so long the table has used up its share of requests. A start asks all streams at once, so
                it must not come sooner.

        Returns:
            The pause before the next start, in s.
        """
        self.failures += 1
        # The exponent is bounded: no float holds 2 to the power of a thousand failures.
        backoff_s = min(self._longest_backoff_s, _FIRST_BACKOFF_S * 2.0 ** min(self.failures, _MOST_DOUBLINGS))
        pause_s = max(backoff_s, share_used_s)
        self.wait(pause_s)
        return pause_s

    def note_running(self, for_s: float) -> None:
        """Forget the failures once the table's query has run for long enough, `for_s` being since its start."""
        if for_s > _CALM_AFTER_S:
            self.failures = 0


class CheckpointTrust:
    """Decides whether Spark's failures point to a damaged checkpoint, which Spark would refuse for ever."""

    def __init__(self) -> None:
        self._suspicious = 0

    @property
    def is_lost(self) -> bool:
        """Whether two failures of Spark's own in a row came before the query had reported a micro-batch."""
        return self._suspicious >= _DOUBTED_AFTER

    def note_failure(self, *, by_spark: bool, has_query: bool, has_worked: bool) -> None:
        """Judge a failure.

        Args:
            by_spark: whether the failure is Spark's own: not the bridge's, and not that of a Python process.
            has_query: whether Spark had begun a query.
            has_worked: whether that query had reported progress.
        """
        if not has_query and not by_spark:
            # Spark has not looked at the checkpoint.
            return
        self._suspicious = self._suspicious + 1 if by_spark and not has_worked else 0

    def renew(self) -> None:
        """Trust the checkpoint again, because it has been recreated."""
        self._suspicious = 0
