"""The length of a table's windows, derived from how long its micro-batches take. Pure.

The time that a micro-batch takes has two parts: a fixed one (every stream is asked once, transactions are committed)
and one in proportion to its window. The target is a total time. Only the fixed part justifies exceeding it: then a
shorter window would spend most of its time on the fixed part, and the reading would fall behind.

A rule that compares only the total with the target, such as additive increase and multiplicative decrease, can't work.
Suppose that micro-batches take 40 s for windows of 50 s. If the 40 s are fixed, windows must stay long. If they are in
proportion to the window, windows must become shorter, and longer ones gain nothing. So the fixed part is estimated:
from two successive micro-batches whose windows differ in length. When the lengths do not differ for a while and the
micro-batches are slow, another length is tried once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from bridge.model.micro_batch import PlannedBatch

_FIRST_WINDOW_US: Final = 60_000_000
_SHORTEST_WINDOW_US: Final = 100_000
_LOG_TIME_PER_SECOND: Final = 1.25
"""Seconds of log that a micro-batch reads for each second that it takes, if it must be long to keep up."""
_MOST_TIMES_NEEDED: Final = 2.0
"""A window that is long because of the fixed part is at most so many times as long as keeping up requires."""
_TARGET_TIMES_FIXED: Final = 2.0
"""A micro-batch of a backlog may take so many times its fixed part if that exceeds the target.

Shorter ones would spend most of their time on the fixed part.
"""
_LEAST_SPARE: Final = 0.1
"""The least share of each second that counts as spare for the fixed part; with less, windows would grow for ever."""
_COMPARABLE_RATIO: Final = 2
"""Two windows must differ by this factor to tell the fixed part from chance."""
_TRIAL_AFTER: Final = 8
"""So many micro-batches of similar length precede the trial of another length."""
_ESTIMATES_KEPT: Final = 3
"""The median of so many estimates of the fixed part counts."""


class WindowSize:
    """How long a table's windows may be. All clock readings come from one clock, in s."""

    def __init__(self, longest_us: int, target_ms: int) -> None:
        """Create the rule for one table.

        Args:
            longest_us: the configured maximum, in us.
            target_ms: how long a micro-batch of a backlog should take, in ms.
        """
        self._longest_us = longest_us
        self._target_ms = target_ms
        self._us = min(_FIRST_WINDOW_US, longest_us)
        self._planned: tuple[float, PlannedBatch] | None = None
        self._before_trial_us = 0
        self._fixed = _FixedPart()

    def longest_us(self, apart_s: float) -> int:
        """Return how long the next window may be, in us.

        Args:
            apart_s: the interval between the table's micro-batches that its request rate enforces, in s. The window is
                longer than that, so that a table which is read seldom does not fall behind.
        """
        return min(max(self._us, int(apart_s * _LOG_TIME_PER_SECOND * 1e6)), self._longest_us)

    def batch_begins(self, now_s: float, batch: PlannedBatch | None) -> None:
        """Record that a micro-batch begins; None if none does."""
        self._planned = None if batch is None else (now_s, batch)

    def batch_ends(self, now_s: float, apart_s: Callable[[PlannedBatch], float]) -> None:
        """Record that the last planned micro-batch has ended, if there was one.

        Args:
            now_s: the clock's reading.
            apart_s: returns the interval that the request rate enforces after a micro-batch, in s.
        """
        if self._planned is None:
            return
        planned_s, batch = self._planned
        took_ms = (now_s - planned_s) * 1000
        length_us = batch.longest_us
        is_plausible = not length_us or self._fixed.add(length_us, took_ms)
        before_trial_us, self._before_trial_us = self._before_trial_us, 0
        if before_trial_us and not is_plausible:
            self._us = before_trial_us
            return
        target_ms = max(self._target_ms, int(500 * apart_s(batch)))
        backlog_target_ms = max(target_ms, int(_TARGET_TIMES_FIXED * self._fixed.median_ms))
        is_full = length_us >= self._us
        # The window is longer than `_us` if the request rate sets its length.
        window_us = max(length_us, self._us)
        keeps_up_us = self._fixed.keeps_up_us
        self._us = next_window_us(window_us, took_ms, backlog_target_ms, is_full, self._longest_us, keeps_up_us)
        is_slow = took_ms > (2 * target_ms if self._fixed.is_known else target_ms)
        if is_full and self._fixed.similar >= _TRIAL_AFTER and (is_slow or _keeping_ahead_us(took_ms) > length_us):
            self._try_another_length(length_us)

    def _try_another_length(self, length_us: int) -> None:
        # First a shorter one; then a longer one, because the request rate may not allow a shorter one.
        trial_us = length_us // 4 if self._fixed.similar == _TRIAL_AFTER else _COMPARABLE_RATIO * length_us
        self._before_trial_us = self._us
        self._us = max(_SHORTEST_WINDOW_US, min(trial_us, self._longest_us))


class _FixedPart:
    """Estimates the fixed part of a table's micro-batches from successive ones of different length.

    Attributes:
        keeps_up_us: the window, in us, that keeps up in spite of the fixed part; 0 while that is not known.
        median_ms: the median of the last estimates in ms; 0 if there is none.
        similar: number of successive micro-batches whose windows have a similar length.
    """

    def __init__(self) -> None:
        self.keeps_up_us = 0
        self.median_ms = 0.0
        self.similar = 0
        self._last: tuple[int, float] | None = None
        self._estimates_ms: deque[float] = deque(maxlen=_ESTIMATES_KEPT)

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate."""
        return bool(self._estimates_ms)

    def add(self, length_us: int, took_ms: float) -> bool:
        """Compare a micro-batch with the one before it.

        Returns:
            Whether both are plausible; otherwise one of them was held up, and there is no new estimate.
        """
        last, self._last = self._last, (length_us, took_ms)
        if last is None:
            return True
        (short_us, short_ms), (long_us, long_ms) = short, long = sorted((last, self._last))
        if long_us < _COMPARABLE_RATIO * short_us:
            self.similar += 1
            return True
        self.similar = 0
        # The shorter window can't take more than the longer one, nor the longer one more than in proportion. A factor
        # of two on top of that means that one of them was held up.
        if short_ms > 2 * long_ms or long_ms * short_us > 2 * short_ms * long_us:
            return False
        fixed_ms, self.keeps_up_us = fixed_and_window_that_keeps_up(short, long)
        self._estimates_ms.append(fixed_ms)
        self.median_ms = median(self._estimates_ms)
        return True


def fixed_and_window_that_keeps_up(short: tuple[int, float], long: tuple[int, float]) -> tuple[float, int]:
    """Return the fixed part of a table's micro-batches in ms, and the window in us that keeps up in spite of it.

    The estimate of the fixed part is at most what the quicker micro-batch took. So a pause of a server during the
    longer one does not make windows long.

    Args:
        short: length of a window in us, and how long its micro-batch took in ms.
        long: the same for a longer window.
    """
    (short_us, short_ms), (long_us, long_ms) = short, long
    ms_per_us = min(max(0.0, (long_ms - short_ms) / (long_us - short_us)), short_ms / short_us)
    fixed_ms = min(short_ms - ms_per_us * short_us, long_ms)
    needed_us = 1000 * fixed_ms / max(_LEAST_SPARE, 1 - 1000 * ms_per_us)
    return fixed_ms, min(int(_MOST_TIMES_NEEDED * needed_us), _keeping_ahead_us(long_ms))


def next_window_us(
    window_us: int, took_ms: float, target_ms: int, full: bool, longest_us: int, keeps_up_us: int | None = None
) -> int:
    """Return the length of the next window in us, so that a micro-batch of a backlog takes about `target_ms`.

    Args:
        window_us: the length that was allowed for the last micro-batch.
        took_ms: how long that took.
        target_ms: how long a micro-batch should take.
        full: whether the last window had the allowed length; a shorter one does not justify longer windows.
        longest_us: the configured maximum.
        keeps_up_us: the least length that keeps up; None if everything that the last micro-batch took counts as fixed.
    """
    if took_ms > 2 * target_ms:
        # At most a quarter at a time, because one slow micro-batch may be a pause of a server.
        window_us = int(window_us * max(0.25, target_ms / took_ms))
    elif full and took_ms < target_ms:
        window_us *= 4 if took_ms < target_ms / 2 else 2
    if keeps_up_us is None:
        keeps_up_us = _keeping_ahead_us(took_ms) if full else 0
    window_us = max(window_us, keeps_up_us)
    return max(_SHORTEST_WINDOW_US, min(window_us, longest_us))


def _keeping_ahead_us(took_ms: float) -> int:
    return int(took_ms * _LOG_TIME_PER_SECOND * 1000)
