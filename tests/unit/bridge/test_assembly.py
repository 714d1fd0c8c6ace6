"""Assembly: from log rows to groups of changes."""

from __future__ import annotations

import pytest

from bridge.assembly import IncompleteGroupError, groups
from bridge.errors import BridgeError, PoisonError
from bridge.model.changes import Cells, Change, LogLayout
from bridge.model.times import UnixMicros, timeuuid_of

COLUMNS = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$end_of_batch", "cdc$operation", "pk")
LAYOUT = LogLayout.of(COLUMNS)
STREAM = bytes(15) + b"\x01"
OTHER = bytes(15) + b"\x11"


def time(us: int, low: int = 0) -> bytes:
    return timeuuid_of(UnixMicros(us), low.to_bytes(8, "big"))


def row(time_us: int, seq: int, operation: int, *, last: bool = False, stream: bytes = STREAM, low: int = 0) -> Cells:
    return (
        stream,
        time(time_us, low),
        seq.to_bytes(4, "big"),
        b"\x01" if last else None,
        operation.to_bytes(1, "big", signed=True),
        b"\0\0\0\x07",
    )


def test_rows_of_one_stream_and_time_make_one_group() -> None:
    """A group is all rows of one stream and time, and its last change says so."""
    rows = [row(1, 0, 1), row(1, 1, 2), row(1, 2, 3, last=True), row(2, 0, 4, last=True)]
    first, second = groups(rows, LAYOUT)
    assert first.changes == (Change(1, rows[0], False), Change(2, rows[1], False), Change(3, rows[2], True))
    assert (first.stream_id, first.timeuuid) == (STREAM, time(1))
    assert second.changes == (Change(4, rows[3], True),)


def test_equal_microseconds_with_another_low_half_are_another_group() -> None:
    """Two writes in one microsecond stay two groups."""
    made = list(groups([row(1, 0, 1, last=True, low=1), row(1, 0, 1, last=True, low=2)], LAYOUT))
    assert [len(group.changes) for group in made] == [1, 1]


def test_equal_times_in_two_streams_are_two_groups() -> None:
    """The stream is part of a group's identity."""
    made = list(groups([row(1, 0, 1, last=True), row(1, 0, 2, last=True, stream=OTHER)], LAYOUT))
    assert [group.stream_id for group in made] == [STREAM, OTHER]


def test_images_are_no_changes() -> None:
    """Pre- and post-image rows make no records, and the last delta before them is the group's last change."""
    rows = [row(1, 0, 0), row(1, 1, 1), row(1, 2, 9, last=True)]
    (group,) = groups(rows, LAYOUT)
    assert group.changes == (Change(1, rows[1], True),)


def test_negative_and_unknown_operations_are_carried() -> None:
    """Expiry deletes (-3, -4) and numbers that nobody knows yet are changes like others."""
    (group,) = groups([row(1, 0, -3), row(1, 1, -4), row(1, 2, 77, last=True)], LAYOUT)
    assert [change.operation for change in group.changes] == [-3, -4, 77]


def test_group_without_its_end_is_refused_with_its_place() -> None:
    """A group whose last row is missing stops the lane, naming stream and time."""
    with pytest.raises(IncompleteGroupError, match=rf"stream 0x{STREAM.hex()}, 5 us: .* after 2 rows"):
        list(groups([row(5, 0, 1), row(5, 1, 1)], LAYOUT))


def test_group_without_its_end_is_delivered_on_request() -> None:
    """`deliver` hands on what there is."""
    (group,) = groups([row(5, 0, 1), row(5, 1, 1)], LAYOUT, incomplete="deliver")
    assert [change.last_in_group for change in group.changes] == [False, True]


def test_old_logs_have_no_end_of_batch() -> None:
    """Logs from before 4.3 lack the column; their groups end where the next begins."""
    layout = LogLayout.of([name for name in COLUMNS if name != "cdc$end_of_batch"])
    rows = [row(1, 0, 1)[:3] + row(1, 0, 1)[4:], row(2, 0, 2)[:3] + row(2, 0, 2)[4:]]
    assert [group.changes[0].operation for group in groups(rows, layout)] == [1, 2]


def test_range_deletes_are_refused_not_dropped() -> None:
    """What can't be carried stops the lane."""
    with pytest.raises(PoisonError, match="range delete"):
        list(groups([row(1, 0, 5), row(1, 1, 7, last=True)], LAYOUT))


def test_row_without_operation_is_refused() -> None:
    """A damaged row is named, not guessed at."""
    damaged = (*row(1, 0, 1, last=True)[:4], None, b"")
    with pytest.raises(PoisonError, match=r"cdc\$operation is None"):
        list(groups([damaged], LAYOUT))


def test_layout_of_something_else() -> None:
    """A result without the log's own columns is refused by name."""
    with pytest.raises(BridgeError, match=r"no cdc\$batch_seq_no, cdc\$operation"):
        LogLayout.of(["cdc$stream_id", "cdc$time", "v"])
