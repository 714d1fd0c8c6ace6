"""What to read next: a pure function of cursor, clock reading, known generations and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bridge.model.cursors import Cursor, Layout, PlannedBatch, Window
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros

_SHORTEST_WINDOW_US: Final = 100_000
_AHEAD_OF_CLOCK: Final = 1.25
"""How much log time a micro-batch reads at least for each second that it takes, while there is a backlog."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How near to now, and how much at a time (all in µs).

    Attributes:
        confidence_us: age that a change must reach before it is read.
        leeway_us: how long after its end a generation may still get rows.
        window_us: longest window.
    """

    confidence_us: int
    leeway_us: int
    window_us: int


def first_cursor(generations: Sequence[UnixMillis], start_us: UnixMicros | None) -> Cursor | None:
    """Where reading begins: at `start_us` in the generation that operates then, or at the oldest generation's start.

    Args:
        generations: starts of the known generations, ascending.
        start_us: the instant from which changes are wanted; None for all that the log holds.

    Returns:
        None while no generation is known.
    """
    if not generations:
        return None
    if start_us is None:
        return Cursor.at_start_of(generations[0])
    operating = [start for start in generations if millis_to_micros(start) <= start_us]
    if not operating:
        return Cursor.at_start_of(generations[0])
    return Cursor(operating[-1], start_us)


def plan(
    cursor: Cursor, now_us: UnixMicros, generations: Sequence[UnixMillis], limits: Limits, layout: Layout
) -> PlannedBatch | None:
    """The next micro-batch, or None when nothing may be read yet.

    A window never crosses its generation's end and never reaches past `now - confidence`. The last window of a closed
    generation has no upper bound: it is planned once end + leeway + confidence has passed, takes the rows that arrived
    at or slightly after the end, and moves the cursor to the next generation's exact start, however late that was
    published.

    Args:
        cursor: what is done.
        now_us: the clock's reading.
        generations: starts of the known generations, ascending.
        limits: how near to now, and how much at a time.
        layout: the lanes to plan for.
    """
    start_us = cursor.time_us
    safe_us = now_us - limits.confidence_us
    furthest_us = start_us + limits.window_us
    successor = next((start for start in generations if start > cursor.generation_ms), None)
    if successor is not None:
        boundary_us = millis_to_micros(successor)
        if furthest_us >= boundary_us and safe_us >= boundary_us + limits.leeway_us:
            window = Window(cursor.generation_ms, start_us, None)
            return PlannedBatch(window, layout, Cursor.at_start_of(successor))
        furthest_us = min(furthest_us, boundary_us)
    end_us = UnixMicros(min(furthest_us, safe_us))
    if end_us <= start_us:
        return None
    return PlannedBatch(Window(cursor.generation_ms, start_us, end_us), layout, Cursor(cursor.generation_ms, end_us))


def next_window_us(window_us: int, took_ms: float, target_ms: int, full: bool, longest_us: int) -> int:
    """The next window's length, so that a micro-batch with a backlog takes about `target_ms`.

    Args:
        window_us: the length that was allowed for the last micro-batch.
        took_ms: how long that took.
        target_ms: how long one should take; long enough to outweigh a micro-batch's fixed cost.
        full: whether the window was used to its length; a shorter one says nothing about longer ones.
        longest_us: the configured bound.
    """
    if took_ms > 2 * target_ms:
        # Not below a quarter at a time: one slow micro-batch may be a server's pause.
        window_us = int(window_us * max(0.25, target_ms / took_ms))
    elif full and took_ms < target_ms:
        window_us *= 4 if took_ms < target_ms / 2 else 2
    if full:
        # Where a micro-batch is slow by its fixed cost, a shorter window would only let the reading fall behind.
        window_us = max(window_us, int(took_ms * _AHEAD_OF_CLOCK * 1000))
    return max(_SHORTEST_WINDOW_US, min(window_us, longest_us))


def clip(batch: PlannedBatch, until: Cursor) -> PlannedBatch | None:
    """The part of a micro-batch that lies before a cursor; None when nothing does."""
    window = batch.window
    if window.start >= until:
        return None
    if until >= batch.next or until.generation_ms != window.generation_ms:
        return batch
    return PlannedBatch(Window(window.generation_ms, window.start_us, until.time_us), batch.layout, until)
