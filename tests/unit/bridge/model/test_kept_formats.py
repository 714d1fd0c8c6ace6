"""The two formats that outlive a process: Spark's offset and the progress record."""

from __future__ import annotations

import json

import pytest

from bridge.errors import BridgeError
from bridge.model.cursor import CatchUp, Cursor
from bridge.model.kept_formats import PROGRESS_VERSION, LaneProgress, StreamOffset, canonical_json
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of

GENERATION = UnixMillis(1_699_999_000_000)
FIRST = Cursor.at_start_of(GENERATION)
START = Cursor(GENERATION, UnixMicros(1_700_000_000_000_000))
NEXT = Cursor(GENERATION, UnixMicros(1_700_000_010_000_000))
BATCH = PlannedBatch(START, NEXT, Layout(2, FIRST))
OFFSET_TEXT = (
    '{"batch":{"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"start":[1699999000000,1700000000000000]},'
    '"next":[1699999000000,1700000010000000],"turn":7,"v":1}'
)
PROGRESS_TEXT = (
    '{"batch":[[1699999000000,1700000000000000],[1699999000000,1700000010000000]],"done":null,'
    '"from":1699990000000,"lane":0,"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"owner":"","v":2}'
)
AFTER = UnixMillis(1_700_000_005_000)
CATCHING_UP = Cursor(AFTER, NEXT.time_us, CatchUp(GENERATION, UnixMicros(1_700_000_005_000_000)))


def test_offset_text_is_fixed() -> None:
    """Spark compares offsets as text, and replays those of an earlier release: the text must never change."""
    offset = StreamOffset(NEXT, BATCH, 7)
    assert canonical_json(offset.to_json()) == OFFSET_TEXT
    assert StreamOffset.from_json(json.loads(OFFSET_TEXT)) == offset


def test_first_offset_and_changes_of_streams_round_trip() -> None:
    """The first offset has no micro-batch. One that enters a generation may leave opened streams behind."""
    first = StreamOffset(FIRST, None)
    assert StreamOffset.from_json(first.to_json()) == first
    entering = StreamOffset(CATCHING_UP, PlannedBatch(NEXT, CATCHING_UP, BATCH.layout))
    assert StreamOffset.from_json(json.loads(canonical_json(entering.to_json()))) == entering


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"v": PROGRESS_VERSION + 1},
        {"v": 1, "next": [1], "batch": None, "turn": 1},
        [],
        {"v": 1, "next": [1, 2], "batch": {}, "turn": 1},
    ],
)
def test_other_offsets_are_rejected(value: object) -> None:
    """An offset of another release or shape raises an error."""
    with pytest.raises(BridgeError):
        StreamOffset.from_json(value)


def test_progress_bytes_are_fixed() -> None:
    """Progress records outlive releases: their bytes must never change."""
    progress = LaneProgress.completed(0, BATCH, UnixMillis(1_699_990_000_000))
    assert progress.to_bytes().decode() == PROGRESS_TEXT
    assert LaneProgress.from_bytes(PROGRESS_TEXT.encode()) == progress


def test_progress_inside_a_window_round_trips() -> None:
    """The record holds stream and timeuuid of the last committed group."""
    done = LanePosition(1, GroupPosition.of(bytes(range(16)), timeuuid_of(NEXT.time_us, b"\xff" * 8)))
    progress = LaneProgress.inside(1, BATCH, done)
    assert LaneProgress.from_bytes(progress.to_bytes()) == progress
    laid = LaneProgress(1, BATCH.layout, CATCHING_UP)
    assert LaneProgress.from_bytes(laid.to_bytes()) == laid


def test_progress_of_the_first_micro_batch_holds_the_edge() -> None:
    """Other records lack the field."""
    done = LanePosition(0, GroupPosition.of(bytes(16), timeuuid_of(NEXT.time_us, bytes(8))))
    edge_us = UnixMicros(1_700_000_000_000_000)
    laid = LaneProgress(0, BATCH.layout, BATCH.start, first=True, edge_us=edge_us)
    for progress in (
        laid, LaneProgress.completed(0, BATCH, edge_us=edge_us), LaneProgress.inside(0, BATCH, done, edge_us=edge_us)
    ):  # fmt: skip
        text = progress.to_bytes().decode()
        assert '"edge":1700000000000000,' in text
        assert LaneProgress.from_bytes(progress.to_bytes()) == progress


def test_progress_holds_the_generation_that_was_left() -> None:
    """From the micro-batch that enters the next generation on."""
    before = UnixMillis(1_699_990_000_000)
    entering = PlannedBatch(NEXT, CATCHING_UP, BATCH.layout)
    done = LanePosition(0, GroupPosition.of(bytes(16), timeuuid_of(NEXT.time_us, bytes(8))))
    assert LaneProgress.completed(0, BATCH, before).entered_from_ms == before
    assert LaneProgress.inside(0, entering, done, before).entered_from_ms == before
    entered = LaneProgress.completed(0, entering, before)
    assert entered.entered_from_ms == GENERATION
    assert LaneProgress.from_bytes(entered.to_bytes()) == entered


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"v":3}', PROGRESS_TEXT.replace('"v":2', '"v":1').encode(), b"\xff"])
def test_other_progress_records_are_rejected(raw: bytes) -> None:
    """The error names the record in the progress topic."""
    with pytest.raises(BridgeError, match="progress record"):
        LaneProgress.from_bytes(raw)


def test_a_contradictory_progress_record_is_rejected() -> None:
    """The cursor must fit the micro-batch, and `done` needs a micro-batch."""
    with pytest.raises(ValueError, match="not the cursor of its micro-batch"):
        LaneProgress(0, BATCH.layout, START, BATCH)
    with pytest.raises(ValueError, match="does not name"):
        LaneProgress(0, BATCH.layout, START, None, LanePosition(0, GroupPosition(b"", b"", b"")))


@pytest.mark.parametrize(
    "change",
    [
        {"batch": [[1000, 9000], [1000, 5000]]},
        {"batch": [[1000, 10**30], [1000, 10**30]]},
        {"batch": [[1000, -1], [1000, -1]]},
        {"layout": {"lanes": 0, "since": [1000, 5000]}},
        {"batch": [[1000, 5000], [1000, 9000]], "done": [0, "zz", ""]},
        {"v": PROGRESS_VERSION + 1},
    ],
)
def test_foreign_progress_is_reported(change: dict[str, object]) -> None:
    """A foreign or contradictory record raises a BridgeError, and no error of Python's."""
    cursor = Cursor(UnixMillis(1000), UnixMicros(5000))
    known = json.loads(LaneProgress(0, Layout(2, cursor), cursor).to_bytes())
    with pytest.raises(BridgeError):
        LaneProgress.from_bytes(json.dumps(known | change).encode())
