"""Plans the next micro-batch from cursor, clock reading, known generations and limits. Pure.

From one generation to the next, some streams close, some open and the rest are kept. (With vnodes, and with today's
tablets, none are kept.) Only closed and opened streams share keys. If the next generation starts at T:

1. A window that begins before T ends at T. If streams are kept, the reading continues behind T with all streams, so it
   also reads rows that arrive late in a closing stream.
2. When `now - confidence` has passed T + leeway, the closing micro-batch reads the closed streams completely, and the
   kept streams as usual.
3. When every lane has committed that, the opened streams are read from T. The kept streams may be further: the reading
   continued, or the generation was published late. Then the opened streams catch up with them window by window.

So every row is read once: the windows of a stream are adjacent, and the last window of a closed stream has no end. A
key's changes stay in order: all changes in the closed stream are committed before the opened stream is read. If several
generations are pending, they are entered one by one, the next one when the opened streams have caught up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros


@dataclass(frozen=True, slots=True)
class GenerationStart:
    """The start of a published generation.

    Attributes:
        start_ms: the instant (ms) from which the cluster uses its streams; it also names the generation.
        replaces_all: whether it keeps no stream of the generation before it; always true with vnodes.
    """

    start_ms: UnixMillis
    replaces_all: bool = True

    @property
    def start_us(self) -> UnixMicros:
        """The start in us."""
        return millis_to_micros(self.start_ms)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a micro-batch, all in us.

    Attributes:
        confidence_us: the age that a change must have to be read.
        leeway_us: how long after the start of a generation the closed streams may still get rows.
        window_us: the longest window.
    """

    confidence_us: int
    leeway_us: int
    window_us: int


def first_cursor(generations: Sequence[GenerationStart], start_us: UnixMicros | None, leeway_us: int) -> Cursor | None:
    """Return the cursor where the reading of a table begins.

    It lies in the generation that is used at `start_us`. If that generation is younger than the leeway at `start_us`,
    the streams that it closed may still get rows. Then the cursor lies in the generation before, and the opened streams
    are read from the start of theirs: a few seconds more than was asked for.

    Args:
        generations: the known generations, ascending.
        start_us: the instant (us) from which changes are wanted, in the past; None for everything in the log.
        leeway_us: how long after the start of a generation the closed streams may still get rows, in us.

    Returns:
        The cursor, which is the start of the oldest generation if `start_us` is older; None if no generation is known.
    """
    if not generations:
        return None
    begun = [one for one in generations if start_us is not None and one.start_us <= start_us]
    if start_us is None or not begun:
        return Cursor.at_start_of(generations[0].start_ms)
    settled = [one for one in begun if one.start_us + leeway_us <= start_us]
    return Cursor((settled[-1] if settled else begun[0]).start_ms, start_us)


def plan(
    cursor: Cursor, now_us: UnixMicros, generations: Sequence[GenerationStart], limits: Limits, layout: Layout
) -> PlannedBatch | None:
    """Plan the next micro-batch.

    Args:
        cursor: how far the table is read.
        now_us: the current time in us.
        generations: the known generations, ascending; they include the cursor's.
        limits: the bounds of the micro-batch.
        layout: the lanes of the micro-batch.

    Returns:
        The micro-batch; None if nothing may be read yet.
    """
    safe_us = UnixMicros(now_us - limits.confidence_us)
    following = next((one for one in generations if one.start_ms > cursor.generation_ms), None)
    end_us = _window_end(cursor, safe_us, following, limits.window_us)
    if cursor.catch_up is not None:
        opened_us = UnixMicros(min(cursor.catch_up.time_us + limits.window_us, end_us))
        after = None if opened_us == end_us else CatchUp(cursor.catch_up.after_ms, opened_us)
        return PlannedBatch(cursor, Cursor(cursor.generation_ms, end_us, after), layout)
    if following is not None and _may_close(cursor, safe_us, following, limits):
        return PlannedBatch(cursor, _entering(cursor, following, end_us), layout)
    if end_us == cursor.time_us:
        return None
    return PlannedBatch(cursor, Cursor(cursor.generation_ms, end_us), layout)


def _window_end(cursor: Cursor, safe_us: UnixMicros, following: GenerationStart | None, window_us: int) -> UnixMicros:
    # The clock may have gone back, but a window never ends before the cursor.
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
