"""Which streams and window a micro-batch reads."""

from __future__ import annotations

import pytest

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Role, Selection, Window
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from bridge.planning.micro_batches import GenerationStart, Limits, first_cursor, plan

SECOND = 1_000_000
G1, G2, G3 = UnixMillis(1_000_000), UnixMillis(1_600_000), UnixMillis(1_700_000)
LIMITS = Limits(confidence_us=10 * SECOND, leeway_us=5 * SECOND, window_us=60 * SECOND)
LAYOUT = Layout(2, Cursor.at_start_of(G1))
ONE, TWO, THREE = GenerationStart(G1), GenerationStart(G2), GenerationStart(G3)
PARTIAL, PARTIAL_TOO = GenerationStart(G2, replaces_all=False), GenerationStart(G3, replaces_all=False)


def at(generation: UnixMillis, seconds_after: float) -> Cursor:
    return Cursor(generation, now(generation, seconds_after))


def window(batch: PlannedBatch) -> Window:
    (part,) = batch.parts
    return part.window


def now(generation: UnixMillis, seconds_after: float) -> UnixMicros:
    return UnixMicros(millis_to_micros(generation) + int(seconds_after * SECOND))


def test_window_stays_behind_the_confidence_window() -> None:
    """Changes younger than the confidence window are not read."""
    batch = plan(at(G1, 0), now(G1, 30), [ONE], LIMITS, LAYOUT)
    assert batch is not None
    assert window(batch).end_us == now(G1, 20)
    assert batch.next == at(G1, 20)


def test_nothing_is_planned_before_anything_is_old_enough() -> None:
    """A cursor at the bound waits, and so does one ahead of it after the clock went back."""
    assert plan(at(G1, 20), now(G1, 30), [ONE], LIMITS, LAYOUT) is None
    assert plan(at(G1, 25), now(G1, 30), [ONE], LIMITS, LAYOUT) is None


def test_windows_have_a_longest_length() -> None:
    """A backlog is read in windows of the allowed length."""
    batch = plan(at(G1, 0), now(G1, 500), [ONE], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G1, 60)


def test_window_ends_at_the_generation_boundary() -> None:
    """A window ends at the start of the next generation while the closed streams may still get rows."""
    batch = plan(at(G1, 580), now(G2, 12), [ONE, TWO], LIMITS, LAYOUT)
    assert batch is not None
    assert window(batch).end_us == millis_to_micros(G2)
    assert plan(batch.next, now(G2, 14), [ONE, TWO], LIMITS, LAYOUT) is None


def test_closed_generation_is_read_completely() -> None:
    """After end + leeway + confidence, the last window has no end, and the next generation follows."""
    batch = plan(at(G1, 580), now(G2, 15), [ONE, TWO], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.parts[0] == Part(Selection(G2, Role.CLOSED, G1), Window(at(G1, 580).time_us, None))
    assert batch.next == Cursor.at_start_of(G2)


def test_far_from_the_boundary_windows_stay_bounded() -> None:
    """A backlog in a long-closed generation is still read window by window."""
    batch = plan(at(G1, 0), now(G3, 999), [ONE, TWO, THREE], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G1, 60)


def test_late_published_generation_is_read_from_its_start() -> None:
    """The reading enters it at its start, even though time steps back."""
    ahead = at(G1, 640)  # 40 s past G2's start, because G2 was not known
    batch = plan(ahead, now(G2, 60), [ONE, TWO], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.parts == (Part(Selection(G2, Role.CLOSED, G1), Window(ahead.time_us, None)),)
    assert batch.next == Cursor.at_start_of(G2)
    assert batch.next.time_us < ahead.time_us
    assert batch.next > ahead


def test_several_pending_generations_are_entered_one_by_one() -> None:
    """Each generation is finished before the next one is entered."""
    cursor, entered = at(G1, 599), []
    for _ in range(40):
        batch = plan(cursor, now(G3, 100), [ONE, TWO, THREE], LIMITS, LAYOUT)
        if batch is None:
            break
        if batch.next.generation_ms != cursor.generation_ms:
            entered.append(batch.next)
        cursor = batch.next
    assert entered == [Cursor.at_start_of(G2), Cursor.at_start_of(G3)]
    assert cursor == at(G3, 90)


def test_kept_streams_do_not_wait_for_a_change() -> None:
    """While closed streams may still get rows, all streams are read on; one window ends at the change."""
    batch = plan(at(G1, 580), now(G2, 12), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G1, 600)
    batch = plan(batch.next, now(G2, 13), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.parts == (Part(Selection(G1), Window(now(G2, 0), now(G2, 3))),)


def test_opened_streams_are_read_from_the_change_and_catch_up() -> None:
    """The closing micro-batch reads the kept streams too; the next one reads the opened streams alone."""
    closing = plan(at(G1, 604), now(G2, 16), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert closing is not None
    assert closing.parts == (
        Part(Selection(G2, Role.CLOSED, G1), Window(now(G2, 4), None)),
        Part(Selection(G2, Role.KEPT, G1), Window(now(G2, 4), now(G2, 6))),
    )
    assert closing.next == Cursor(G2, now(G2, 6), CatchUp(G1, now(G2, 0)))
    catching = plan(closing.next, now(G2, 17), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert catching is not None
    assert catching.parts == (
        Part(Selection(G2, Role.OPENED, G1), Window(now(G2, 0), now(G2, 7))),
        Part(Selection(G2, Role.KEPT, G1), Window(now(G2, 6), now(G2, 7))),
    )
    assert catching.next == at(G2, 7)


def test_far_behind_opened_streams_catch_up_in_windows() -> None:
    """If a generation is published long after its start, its streams catch up while the others are read on."""
    behind = Cursor(G2, now(G2, 90), CatchUp(G1, now(G2, 0)))
    batch = plan(behind, now(G2, 101), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == Cursor(G2, now(G2, 91), CatchUp(G1, now(G2, 60)))
    # Also after the clock went back, because these changes are old enough.
    batch = plan(behind, now(G2, 50), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert batch is not None
    assert [str(part.selection.role) for part in batch.parts] == ["opened"]
    assert batch.next == Cursor(G2, now(G2, 90), CatchUp(G1, now(G2, 60)))


def test_next_change_waits_for_the_streams_to_catch_up() -> None:
    """Pending generations are entered one after the other."""
    behind = Cursor(G2, now(G3, 90), CatchUp(G1, now(G3, 70)))
    known = [ONE, PARTIAL, PARTIAL_TOO]
    batch = plan(behind, now(G3, 101), known, LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == at(G2, 191)
    batch = plan(batch.next, now(G3, 101), known, LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == Cursor(G3, now(G3, 91), CatchUp(G2, now(G3, 0)))


def test_backlog_needs_no_catching_up() -> None:
    """A cursor with a backlog stops at the change, so all streams continue from there together."""
    batch = plan(at(G1, 580), now(G2, 999), [ONE, PARTIAL], LIMITS, LAYOUT)
    assert batch is not None
    assert batch.next == Cursor.at_start_of(G2)
    assert [str(part.selection.role) for part in batch.parts] == ["closed", "kept"]


@pytest.mark.parametrize(
    ("generations", "start_us", "expected"),
    [
        ([], None, None),
        ([ONE, TWO], None, Cursor.at_start_of(G1)),
        ([ONE, TWO], now(G1, 10), at(G1, 10)),
        ([ONE, TWO], now(G2, 5), at(G2, 5)),
        ([ONE, TWO], now(G2, 4.9), at(G1, 604.9)),  # G1's streams may still hold later rows
        ([ONE], now(G1, 1), at(G1, 1)),
        ([TWO, GenerationStart(UnixMillis(G2 + 2_000))], now(G2, 4), at(G2, 4)),
        ([ONE, TWO], UnixMicros(5), Cursor.at_start_of(G1)),
    ],
)
def test_first_cursor(generations: list[GenerationStart], start_us: UnixMicros | None, expected: Cursor | None) -> None:
    """The reading begins in the generation that is used at the wanted instant."""
    assert first_cursor(generations, start_us, LIMITS.leeway_us) == expected


def test_start_right_behind_a_change_of_streams_leaves_nothing_out() -> None:
    """The plan includes late rows of the closed streams, and the opened streams from the change on."""
    start_us = now(G2, 3)
    cursor = first_cursor([ONE, TWO], start_us, LIMITS.leeway_us)
    assert cursor is not None
    assert plan(cursor, now(G2, 14), [ONE, TWO], LIMITS, LAYOUT) is None
    closing = plan(cursor, now(G2, 15), [ONE, TWO], LIMITS, LAYOUT)
    assert closing is not None
    assert closing.parts == (Part(Selection(G2, Role.CLOSED, G1), Window(start_us, None)),)
    assert closing.next == Cursor.at_start_of(G2)
