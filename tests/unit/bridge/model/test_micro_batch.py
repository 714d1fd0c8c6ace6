"""Which windows, selections, layouts and micro-batches exist."""

from __future__ import annotations

import pytest

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.micro_batch import Layout, PlannedBatch, Role, Selection, Window
from bridge.model.times import UnixMicros, UnixMillis

GENERATION = UnixMillis(1_699_999_000_000)
AFTER = UnixMillis(1_700_000_005_000)
START = Cursor(GENERATION, UnixMicros(1_700_000_000_000_000))
NEXT = Cursor(GENERATION, UnixMicros(1_700_000_010_000_000))
CATCHING_UP = Cursor(AFTER, NEXT.time_us, CatchUp(GENERATION, UnixMicros(1_700_000_005_000_000)))
LAYOUT = Layout(2, Cursor.at_start_of(GENERATION))


def test_windows_and_batches_must_move_on() -> None:
    """An empty window, or a micro-batch that does not move the cursor, can't be made."""
    with pytest.raises(ValueError, match="empty window"):
        Window(UnixMicros(5), UnixMicros(5))
    with pytest.raises(ValueError, match="does not move"):
        PlannedBatch(START, START, LAYOUT)


def test_opened_streams_catch_up_before_their_generation_is_left() -> None:
    """Otherwise the rest of the opened streams would be skipped."""
    with pytest.raises(ValueError, match="before its own streams have caught up"):
        PlannedBatch(CATCHING_UP, Cursor.at_start_of(UnixMillis(AFTER + 9)), LAYOUT)


def test_closed_streams_need_two_generations() -> None:
    """Every role but `ALL` compares a generation with the one before it."""
    with pytest.raises(ValueError, match="needs two generations"):
        Selection(GENERATION, Role.CLOSED)


def test_a_layout_has_a_lane() -> None:
    """At least one."""
    with pytest.raises(ValueError, match="at least one lane"):
        Layout(0, START)
