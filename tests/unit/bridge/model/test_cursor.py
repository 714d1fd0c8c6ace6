"""The order of cursors, and which cursors exist."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bridge.model.cursor import CatchUp, Cursor
from bridge.model.times import UnixMicros, UnixMillis

GENERATION = UnixMillis(1_699_999_000_000)
AFTER = UnixMillis(1_700_000_005_000)
START = Cursor(GENERATION, UnixMicros(1_700_000_000_000_000))
NEXT = Cursor(GENERATION, UnixMicros(1_700_000_010_000_000))
CATCHING_UP = Cursor(AFTER, NEXT.time_us, CatchUp(GENERATION, UnixMicros(1_700_000_005_000_000)))


def test_cursors_are_ordered_by_generation_then_time() -> None:
    """This holds where time steps back, and while opened streams catch up."""
    further = Cursor(AFTER, NEXT.time_us, CatchUp(GENERATION, UnixMicros(1_700_000_006_000_000)))
    order = [START, NEXT, Cursor.at_start_of(AFTER), CATCHING_UP, further, Cursor(AFTER, NEXT.time_us)]
    assert all(one < other and not other < one for one, other in pairwise(order))
    assert [cursor.reached_us for cursor in order[3:]] == [
        1_700_000_005_000_000, 1_700_000_006_000_000, 1_700_000_010_000_000,
    ]  # fmt: skip


def test_streams_that_catch_up_are_behind_the_others() -> None:
    """If the opened streams are as far as the others, the cursor has no `catch_up`."""
    with pytest.raises(ValueError, match="can't catch up"):
        Cursor(AFTER, NEXT.time_us, CatchUp(GENERATION, NEXT.time_us))
