"""What to read next: a pure function of cursor, clock reading, known generations and limits.

How generations follow each other, for vnodes and for tablets alike: from one to the next some streams close, some open,
and the rest go on (with vnodes, and with today's tablets, nothing goes on). Only closed and opened streams share keys.
At a change at T:

1. Windows that come from before T end at T. Where streams go on, reading goes on, too, with all streams: a row that
   comes late into a stream that is closing is read like any other.
2. When `now - confidence` has passed T + leeway, the closing micro-batch reads the closed streams from where everything
   stands to their very end, and the others on as usual.
3. When that is committed on every lane, the opened streams are read from T. If the others stand further by then (the
   reading went on, or the generation was published late), the opened ones catch up with them window by window.

So every row is read once: before T + leeway the windows of a stream join, and its last has no end. And a key's changes
stay in order: those of the closed stream are all committed before the first of the opened one is read. Changes that are
pending together are taken one after the other, the next when the streams have caught up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros

_FIRST_WINDOW_US: Final = 60_000_000
_SHORTEST_WINDOW_US: Final = 100_000
_AHEAD_OF_CLOCK: Final = 1.25
"""How much log time a micro-batch reads for each second that it takes, where it must be long to keep up."""
_BEYOND_NEED: Final = 2.0
"""How many times as long a window may be as it must be to keep up, for the sake of what is fixed in a micro-batch."""
_TIMES_FIXED: Final = 2.0
"""How many times what is fixed in it a micro-batch with a backlog may take, where that is more than is wanted: shorter
ones would spend most of their time on it."""
_LEAST_SPARE: Final = 0.1
"""Where less than this part of each second is left for what is fixed, windows grow no further: they would for ever."""
_TIMES_AS_LONG: Final = 2
"""By how much two windows must differ, so that chance in what they took says little."""
_ALIKE_FOR: Final = 8
"""After so many micro-batches of one length another one is tried, where the length is not what is wanted."""


@dataclass(frozen=True, slots=True)
class GenerationStart:
    """A published generation as the planner needs it.

    Attributes:
        start_ms: from when its streams are used; its name.
        replaces_all: whether no stream of the generation before goes on in it (always so with vnodes).
    """

    start_ms: UnixMillis
    replaces_all: bool = True

    @property
    def start_us(self) -> UnixMicros:
        """The same in us."""
        return millis_to_micros(self.start_ms)


@dataclass(frozen=True, slots=True)
class Limits:
    """How near to now, and how much at a time (all in µs).

    Attributes:
        confidence_us: age that a change must reach before it is read.
        leeway_us: how long after a change its closed streams may still get rows.
        window_us: longest window.
    """

    confidence_us: int
    leeway_us: int
    window_us: int


def first_cursor(generations: Sequence[GenerationStart], start_us: UnixMicros | None, leeway_us: int) -> Cursor | None:
    """Where reading begins: at `start_us` in the generation that operates then, or at the oldest generation's start.

    So soon after a change that its closed streams may hold rows from after `start_us`, in the generation before it;
    then the opened streams are read from the change on, a few seconds more than was asked for.

    Args:
        generations: the known ones, ascending.
        start_us: the instant from which changes are wanted, which has passed; None for all that the log holds.
        leeway_us: how long after a change its closed streams may still get rows.

    Returns:
        None while no generation is known.
    """
    if not generations:
        return None
    operating = [one for one in generations if start_us is not None and one.start_us <= start_us]
    if start_us is None or not operating:
        return Cursor.at_start_of(generations[0].start_ms)
    alone = [one for one in operating if one.start_us + leeway_us <= start_us]
    return Cursor((alone[-1] if alone else operating[0]).start_ms, start_us)


def plan(
    cursor: Cursor, now_us: UnixMicros, generations: Sequence[GenerationStart], limits: Limits, layout: Layout
) -> PlannedBatch | None:
    """The next micro-batch, or None when nothing may be read yet; see the module.

    Args:
        cursor: what is done.
        now_us: the clock's reading.
        generations: the known ones, ascending; the cursor's is among them.
        limits: how near to now, and how much at a time.
        layout: the lanes to plan for.
    """
    safe_us = UnixMicros(now_us - limits.confidence_us)
    following = next((one for one in generations if one.start_ms > cursor.generation_ms), None)
    end_us = _end_of_window(cursor, safe_us, following, limits.window_us)
    if cursor.catch_up is not None:
        opened_us = UnixMicros(min(cursor.catch_up.time_us + limits.window_us, end_us))
        after = None if opened_us == end_us else CatchUp(cursor.catch_up.after_ms, opened_us)
        return PlannedBatch(cursor, Cursor(cursor.generation_ms, end_us, after), layout)
    if following is not None and _may_close(cursor, safe_us, following, limits):
        return PlannedBatch(cursor, _entering(cursor, following, end_us), layout)
    if end_us == cursor.time_us:
        return None
    return PlannedBatch(cursor, Cursor(cursor.generation_ms, end_us), layout)


def _end_of_window(
    cursor: Cursor, safe_us: UnixMicros, following: GenerationStart | None, window_us: int
) -> UnixMicros:
    # Never before the cursor: the clock may have gone back.
    end_us = min(cursor.time_us + window_us, safe_us)
    if following is not None:
        if cursor.time_us < following.start_us:
            end_us = min(end_us, following.start_us)
        elif following.replaces_all:
            end_us = cursor.time_us
    return UnixMicros(max(cursor.time_us, end_us))


def _may_close(cursor: Cursor, safe_us: UnixMicros, following: GenerationStart, limits: Limits) -> bool:
    near = cursor.time_us + limits.window_us >= following.start_us
    return near and safe_us >= following.start_us + limits.leeway_us


def _entering(cursor: Cursor, following: GenerationStart, end_us: UnixMicros) -> Cursor:
    if following.replaces_all or cursor.time_us <= following.start_us:
        return Cursor.at_start_of(following.start_ms)
    return Cursor(following.start_ms, end_us, CatchUp(cursor.generation_ms, following.start_us))


class WindowLength:
    """How long one table's windows may be, by how long its micro-batches take. Readings are of one clock, in s.

    What a micro-batch takes is fixed in part, and in part in proportion to its window. Only the fixed part is a reason
    for windows that take longer than is wanted, and one length alone does not tell it: two that follow each other do,
    and of three such pairs the middle one counts where it makes windows longer than they must be.

    Args:
        longest_us: the configured bound.
        target_ms: how long a micro-batch of a backlog should take.
    """

    def __init__(self, longest_us: int, target_ms: int) -> None:
        self._longest_us = longest_us
        self._target_ms = target_ms
        self._us = min(_FIRST_WINDOW_US, longest_us)
        self._planned: tuple[float, PlannedBatch] | None = None
        self._last: tuple[int, float] | None = None
        self._alike = 0
        self._keeps_up_us = 0
        self._tried_from_us = 0
        self._fixed_ms: deque[float] = deque(maxlen=3)

    def longest_us(self, apart_s: float) -> int:
        """The length that is allowed now, for a table whose micro-batches lie so far apart by their load."""
        # What is looked at seldom must read more at a time than passes from one look to the next.
        return min(max(self._us, int(apart_s * _AHEAD_OF_CLOCK * 1e6)), self._longest_us)

    def planned(self, now_s: float, batch: PlannedBatch | None) -> None:
        """Note what begins now; None for nothing."""
        self._planned = None if batch is None else (now_s, batch)

    def done(self, now_s: float, apart_s: Callable[[PlannedBatch], float]) -> None:
        """Note that what was planned last is done, if anything was; `apart_s` as of that."""
        if self._planned is None:
            return
        planned_s, batch = self._planned
        took_ms = (now_s - planned_s) * 1000
        length_us = batch.longest_us
        says_something = not length_us or self._compare(length_us, took_ms)
        tried_from_us, self._tried_from_us = self._tried_from_us, 0
        if tried_from_us and not says_something:
            self._us = tried_from_us
            return
        target_ms = max(self._target_ms, int(500 * apart_s(batch)))
        worth_ms = max(target_ms, int(_TIMES_FIXED * median(self._fixed_ms or (0,))))
        full = length_us >= self._us
        # Longer than `_us` where micro-batches lie apart.
        window_us = max(length_us, self._us)
        self._us = next_window_us(window_us, took_ms, worth_ms, full, self._longest_us, self._keeps_up_us)
        is_slow = took_ms > (2 * target_ms if self._fixed_ms else target_ms)
        if full and self._alike >= _ALIKE_FOR and (is_slow or _ahead_us(took_ms) > length_us):
            # What was fixed once need not be so now. Longer where the table's load allows no shorter ones.
            trial_us = length_us // 4 if self._alike == _ALIKE_FOR else _TIMES_AS_LONG * length_us
            self._us, self._tried_from_us = max(_SHORTEST_WINDOW_US, min(trial_us, self._longest_us)), self._us

    def _compare(self, length_us: int, took_ms: float) -> bool:
        """Learn from a micro-batch and the one before; says False where one of them was plainly held up."""
        last, self._last = self._last, (length_us, took_ms)
        if last is None:
            return True
        short, long = sorted((last, self._last))
        if long[0] < _TIMES_AS_LONG * short[0]:
            self._alike += 1
            return True
        self._alike = 0
        # A shorter one that took more than twice as long was held up, and so was a longer one that took more than twice
        # as long as in proportion: both say nothing of what is fixed.
        if short[1] > 2 * long[1] or long[1] * short[0] > 2 * short[1] * long[0]:
            return False
        fixed_ms, self._keeps_up_us = fixed_and_window_that_keeps_up(short, long)
        self._fixed_ms.append(fixed_ms)
        return True


def fixed_and_window_that_keeps_up(short: tuple[int, float], long: tuple[int, float]) -> tuple[float, int]:
    """What is fixed in a table's micro-batches, in ms, and the window in us at which it keeps up in spite of that.

    What is fixed is no more than the quicker of both took, so a server's pause in the longer one makes no long window.

    Args:
        short: a window's length in us, and what its micro-batch took, in ms.
        long: the same of a longer one.
    """
    (short_us, short_ms), (long_us, long_ms) = short, long
    ms_per_us = min(max(0.0, (long_ms - short_ms) / (long_us - short_us)), short_ms / short_us)
    fixed_ms = min(short_ms - ms_per_us * short_us, long_ms)
    needed_us = 1000 * fixed_ms / max(_LEAST_SPARE, 1 - 1000 * ms_per_us)
    return fixed_ms, min(int(_BEYOND_NEED * needed_us), _ahead_us(long_ms))


def next_window_us(
    window_us: int, took_ms: float, target_ms: int, full: bool, longest_us: int, keeps_up_us: int | None = None
) -> int:
    """The next window's length, so that a micro-batch with a backlog takes about `target_ms`.

    Args:
        window_us: the length that was allowed for the last micro-batch.
        took_ms: how long that took.
        target_ms: how long one should take; long enough to outweigh a micro-batch's fixed cost.
        full: whether the window was used to its length; a shorter one says nothing about longer ones.
        longest_us: the configured bound.
        keeps_up_us: the length that keeps up in spite of what is fixed; None for as if all that the last one took were.
    """
    if took_ms > 2 * target_ms:
        # Not below a quarter at a time: one slow micro-batch may be a server's pause.
        window_us = int(window_us * max(0.25, target_ms / took_ms))
    elif full and took_ms < target_ms:
        window_us *= 4 if took_ms < target_ms / 2 else 2
    if keeps_up_us is None:
        keeps_up_us = _ahead_us(took_ms) if full else 0
    # Where a micro-batch is slow by its fixed cost, a shorter window would only let the reading fall behind.
    window_us = max(window_us, keeps_up_us)
    return max(_SHORTEST_WINDOW_US, min(window_us, longest_us))


def _ahead_us(took_ms: float) -> int:
    return int(took_ms * _AHEAD_OF_CLOCK * 1000)
