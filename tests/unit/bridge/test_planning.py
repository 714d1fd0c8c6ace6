"""Planning: which window is read next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.cursors import Cursor, Layout, PlannedBatch, Window
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from bridge.planning import Limits, clip, first_cursor, next_window_us, plan

SECOND = 1_000_000
G1, G2, G3 = UnixMillis(1_000_000), UnixMillis(1_600_000), UnixMillis(1_700_000)
LIMITS = Limits(confidence_us=10 * SECOND, leeway_us=5 * SECOND, window_us=60 * SECOND)
LAYOUT = Layout(2, Cursor.at_start_of(G1))


def at(generation: UnixMillis, seconds_after: float) -> Cursor:
    return Cursor(generation, UnixMicros(millis_to_micros(generation) + int(seconds_after * SECOND)))


def now(generation: UnixMillis, seconds_after: float) -> UnixMicros:
    return at(generation, seconds_after).time_us


def test_window_stays_behind_the_confidence_window() -> None:
    """Nothing younger than the confidence window is read."""
    batch = plan(at(G1, 0), now(G1, 30), [G1], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.window.end_us == now(G1, 20)
    assert batch.next == at(G1, 20)


def test_nothing_is_planned_before_anything_is_old_enough() -> None:
    """A cursor at the safe bound waits, and so does one ahead of it (the clock went back)."""
    assert plan(at(G1, 20), now(G1, 30), [G1], LIMITS, LAYOUT) is None
    assert plan(at(G1, 25), now(G1, 30), [G1], LIMITS, LAYOUT) is None


def test_windows_have_a_longest_length() -> None:
    """A backlog is read in windows of the allowed length."""
    batch = plan(at(G1, 0), now(G1, 500), [G1], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G1, 60)


def test_window_ends_at_the_generation_boundary() -> None:
    """A window is cut at the next generation's start while the old one may still get rows."""
    batch = plan(at(G1, 580), now(G2, 12), [G1, G2], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.window.end_us == millis_to_micros(G2)
    assert plan(batch.next, now(G2, 14), [G1, G2], LIMITS, LAYOUT) is None


def test_closed_generation_is_read_to_its_very_end() -> None:
    """Once end + leeway + confidence has passed, the last window has no upper bound and the next generation follows."""
    batch = plan(at(G1, 580), now(G2, 15), [G1, G2], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.window.end_us is None
    assert batch.next == Cursor.at_start_of(G2)


def test_far_from_the_boundary_windows_stay_bounded() -> None:
    """A backlog in a long-closed generation is still read window by window."""
    batch = plan(at(G1, 0), now(G3, 999), [G1, G2, G3], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G1, 60)


def test_late_published_generation_is_read_from_its_start() -> None:
    """A generation that is published after its start is entered at its start, although time steps back."""
    ahead = at(G1, 640)  # 40 s past G2's start, because G2 was not known
    batch = plan(ahead, now(G2, 60), [G1, G2], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.window == Window(G1, ahead.time_us, None)
    assert batch.next == Cursor.at_start_of(G2)
    assert batch.next.time_us < ahead.time_us
    assert batch.next > ahead


def test_several_pending_generations_are_entered_one_by_one() -> None:
    """With several changes behind, each generation is finished before the next is entered."""
    cursor, entered = at(G1, 599), []
    for _ in range(40):
        batch = plan(cursor, now(G3, 100), [G1, G2, G3], LIMITS, LAYOUT)
        if batch is None:
            break
        if batch.next.generation_ms != cursor.generation_ms:
            entered.append(batch.next)
        cursor = batch.next
    assert entered == [Cursor.at_start_of(G2), Cursor.at_start_of(G3)]
    assert cursor == at(G3, 90)


@given(
    gaps_ms=st.lists(st.integers(1, 400_000), max_size=5),
    window_us=st.integers(100_000, 300 * SECOND),
    published_late=st.lists(st.integers(0, 200), max_size=5),
    steps=st.lists(st.integers(-5 * SECOND, 60 * SECOND), min_size=1, max_size=60),
)
def test_every_instant_of_every_generation_is_read_once(
    gaps_ms: list[int], window_us: int, published_late: list[int], steps: list[int]
) -> None:
    """Windows of a generation join without gap or overlap, from start to unbounded end, whatever the clock does."""
    starts = [G1]
    for gap in gaps_ms:
        starts.append(UnixMillis(starts[-1] + gap))
    late = dict(zip(starts[1:], published_late, strict=False))
    limits = Limits(LIMITS.confidence_us, LIMITS.leeway_us, window_us)
    cursor, clock, seen = Cursor.at_start_of(G1), millis_to_micros(G1), {G1}
    for step in steps:
        clock = UnixMicros(clock + step)
        seen |= {start for start in starts if millis_to_micros(start) + late.get(start, 0) * SECOND <= clock}
        known = sorted(seen)
        batch = plan(cursor, clock, known, limits, LAYOUT)
        if batch is None:
            continue
        assert batch.window.start == cursor
        assert batch.next > cursor
        if batch.window.end_us is None:
            following = known[known.index(cursor.generation_ms) + 1]
            assert batch.next == Cursor.at_start_of(following)
            assert clock - limits.confidence_us >= millis_to_micros(following) + limits.leeway_us
        else:
            assert batch.next == Cursor(cursor.generation_ms, batch.window.end_us)
            assert batch.window.end_us <= clock - limits.confidence_us
            assert batch.window.end_us - batch.window.start_us <= window_us
        cursor = batch.next


@pytest.mark.parametrize(
    ("generations", "start_us", "expected"),
    [
        ([], None, None),
        ([G1, G2], None, Cursor.at_start_of(G1)),
        ([G1, G2], now(G1, 10), at(G1, 10)),
        ([G1, G2], now(G2, 0), at(G2, 0)),
        ([G1, G2], UnixMicros(5), Cursor.at_start_of(G1)),
    ],
)
def test_first_cursor(generations: list[UnixMillis], start_us: UnixMicros | None, expected: Cursor | None) -> None:
    """Reading begins in the generation that operates at the wanted instant."""
    assert first_cursor(generations, start_us) == expected


def test_window_length_follows_the_time_a_micro_batch_takes() -> None:
    """Quick full windows grow, slow ones shrink, and the bounds hold."""
    assert next_window_us(SECOND, 100, 3000, full=True, longest_us=60 * SECOND) == 4 * SECOND
    assert next_window_us(SECOND, 1600, 3000, full=True, longest_us=60 * SECOND) == 2 * SECOND
    assert next_window_us(SECOND, 100, 3000, full=False, longest_us=60 * SECOND) == SECOND
    assert next_window_us(200 * SECOND, 12_000, 3000, full=False, longest_us=600 * SECOND) == 50 * SECOND
    assert next_window_us(50 * SECOND, 100, 3000, full=True, longest_us=60 * SECOND) == 60 * SECOND
    assert next_window_us(1, 100, 3000, full=False, longest_us=60 * SECOND) == 100_000


def test_windows_stay_longer_than_the_micro_batches_that_read_them() -> None:
    """When a micro-batch is slow by its fixed cost, windows do not shrink so far that the reading falls behind."""
    for window_us in (SECOND, 60 * SECOND):
        for _ in range(20):
            window_us = next_window_us(window_us, 10_000, 3000, full=True, longest_us=600 * SECOND)
        assert window_us == 12.5 * SECOND


def test_clip_ends_a_batch_at_a_cursor() -> None:
    """Planning up to a cursor stops exactly there, also inside an unbounded window."""
    batch = PlannedBatch(Window(G1, now(G1, 0), now(G1, 60)), LAYOUT, at(G1, 60))
    assert clip(batch, at(G1, 0)) is None
    assert clip(batch, at(G1, 30)) == PlannedBatch(Window(G1, now(G1, 0), now(G1, 30)), LAYOUT, at(G1, 30))
    assert clip(batch, at(G1, 60)) == batch
    assert clip(batch, at(G2, 0)) == batch
    last = PlannedBatch(Window(G1, now(G1, 0), None), LAYOUT, Cursor.at_start_of(G2))
    assert clip(last, at(G1, 30)) == PlannedBatch(Window(G1, now(G1, 0), now(G1, 30)), LAYOUT, at(G1, 30))
    assert clip(last, Cursor.at_start_of(G2)) == last
