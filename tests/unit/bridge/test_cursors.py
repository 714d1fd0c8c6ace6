"""The two formats that are kept: Spark's offset and the progress record."""

from __future__ import annotations

import json

import pytest

from bridge.control import Begin, Schemas
from bridge.errors import BridgeError
from bridge.model.cursors import (
    Cursor,
    GroupPosition,
    LaneProgress,
    Layout,
    PlannedBatch,
    StreamOffset,
    Window,
    canonical_json,
)
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing import LaneTask

GENERATION = UnixMillis(1_699_999_000_000)
START = Cursor.at_start_of(GENERATION)
NEXT = Cursor(GENERATION, UnixMicros(1_700_000_010_000_000))
BATCH = PlannedBatch(Window(GENERATION, UnixMicros(1_700_000_000_000_000), NEXT.time_us), Layout(2, START), NEXT)
OFFSET_TEXT = (
    '{"batch":{"end_us":1700000010000000,"generation_ms":1699999000000,"layout":{"lanes":2,'
    '"since":[1699999000000,1699999000000000]},"start_us":1700000000000000},"next":[1699999000000,1700000010000000],"v":1}'
)
PROGRESS_TEXT = (
    '{"cursor":[1699999000000,1700000010000000],"done":null,"lane":0,"layout":{"lanes":2,'
    '"since":[1699999000000,1699999000000000]},"v":1}'
)


def test_offset_text_is_fixed() -> None:
    """Spark compares offsets as text, and replays those of an earlier release: the text must never change."""
    offset = StreamOffset(NEXT, BATCH)
    assert canonical_json(offset.to_json()) == OFFSET_TEXT
    assert StreamOffset.from_json(json.loads(OFFSET_TEXT)) == offset


def test_first_offset_and_unbounded_window_round_trip() -> None:
    """The very first offset has no micro-batch; a closed generation's last window has no end."""
    first = StreamOffset(START, None)
    assert StreamOffset.from_json(first.to_json()) == first
    following = Cursor.at_start_of(UnixMillis(1_700_000_000_001))
    last = StreamOffset(following, PlannedBatch(Window(GENERATION, NEXT.time_us, None), BATCH.layout, following))
    assert StreamOffset.from_json(json.loads(canonical_json(last.to_json()))) == last


@pytest.mark.parametrize(
    "value", [{}, {"v": 2}, {"v": 1, "next": [1], "batch": None}, [], {"v": 1, "next": [1, 2], "batch": {}}]
)
def test_other_offsets_are_refused(value: object) -> None:
    """An offset of another release or shape is an error, not a guess."""
    with pytest.raises(BridgeError):
        StreamOffset.from_json(value)


def test_progress_bytes_are_fixed() -> None:
    """Progress records outlive releases: their bytes must never change."""
    progress = LaneProgress(0, BATCH.layout, NEXT)
    assert progress.to_bytes().decode() == PROGRESS_TEXT
    assert LaneProgress.from_bytes(PROGRESS_TEXT.encode()) == progress


def test_progress_inside_a_window_round_trips() -> None:
    """The last committed group is kept with stream and timeuuid."""
    done = GroupPosition.of(bytes(range(16)), timeuuid_of(NEXT.time_us, b"\xff" * 8))
    progress = LaneProgress(1, BATCH.layout, START, done)
    assert LaneProgress.from_bytes(progress.to_bytes()) == progress


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"v":2}', b"\xff"])
def test_other_progress_records_are_refused(raw: bytes) -> None:
    """A foreign record in the progress topic is named."""
    with pytest.raises(BridgeError, match="progress record"):
        LaneProgress.from_bytes(raw)


def test_begin_row_carries_the_whole_task() -> None:
    """What the sink must know travels in one row."""
    begin = Begin(LaneTask("ks", 'T "x"', 1, BATCH), Schemas('{"type":"record"}', "{}"))
    assert Begin.from_json(begin.to_json()) == begin
    with pytest.raises(BridgeError, match="not a begin row"):
        Begin.from_json('{"v":1}')


def test_windows_and_batches_must_move_on() -> None:
    """An empty window, or a micro-batch that stands still, can't be made."""
    with pytest.raises(ValueError, match="empty window"):
        Window(GENERATION, UnixMicros(5), UnixMicros(5))
    with pytest.raises(ValueError, match="does not move"):
        PlannedBatch(BATCH.window, BATCH.layout, BATCH.window.start)
    with pytest.raises(ValueError, match="at least one lane"):
        Layout(0, START)
