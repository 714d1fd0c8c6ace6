"""From log rows to groups of changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.encoding.grouping import IncompleteGroupError, groups, without_repeats
from bridge.errors import BridgeError, UnpublishableError
from bridge.model.log_rows import Cells, Change, LogLayout
from bridge.model.times import UnixMicros, timeuuid_of

COLUMNS = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$end_of_batch", "cdc$operation", "pk", "ck", "v")
LAYOUT = LogLayout.of(COLUMNS, ["pk"], ["ck"])
WITHOUT_CLUSTERING = LogLayout.of(COLUMNS, ["pk"])
PARTITION = b"\0\0\0\x07"
STREAM = bytes(15) + b"\x01"
OTHER = bytes(15) + b"\x11"


def time(us: int, low: int = 0) -> bytes:
    return timeuuid_of(UnixMicros(us), low.to_bytes(8, "big"))


def row(
    time_us: int,
    seq: int,
    operation: int,
    *,
    last: bool = False,
    stream: bytes = STREAM,
    low: int = 0,
    ck: bytes | None = None,
    value: bytes | None = None,
) -> Cells:
    return (
        stream,
        time(time_us, low),
        seq.to_bytes(4, "big"),
        b"\x01" if last else None,
        operation.to_bytes(1, "big", signed=True),
        PARTITION,
        ck,
        value,
    )


def test_rows_of_one_stream_and_time_make_one_group() -> None:
    """The last change of a group is marked as the last."""
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


def test_images_join_the_deltas_of_their_row() -> None:
    """Every delta of a row gets the row's images; a row without an image is still a change."""
    rows = [
        row(1, 0, 0, ck=b"a"),
        row(1, 1, 0, ck=b"c"),
        row(1, 2, 2, ck=b"a"),
        row(1, 3, 1, ck=b"a"),
        row(1, 4, 1, ck=b"b"),
        row(1, 5, 3, ck=b"c"),
        row(1, 6, 9, ck=b"a"),
        row(1, 7, 9, ck=b"b", last=True),
    ]
    (group,) = groups(rows, LAYOUT)
    assert group.changes == (
        Change(2, rows[2], False, before=rows[0], after=rows[6]),
        Change(1, rows[3], False, before=rows[0], after=rows[6]),
        Change(1, rows[4], False, after=rows[7]),
        Change(3, rows[5], True, before=rows[1]),
    )


def test_static_images_join_the_static_row_alone() -> None:
    """A partition delete has the key of the static row, but not its images."""
    rows = [row(1, 0, 0), row(1, 1, 1), row(1, 2, 4), row(1, 3, 9, last=True)]
    (group,) = groups(rows, LAYOUT)
    assert group.changes == (Change(1, rows[1], False, before=rows[0], after=rows[3]), Change(4, rows[2], True))


def test_delete_of_a_row_without_clustering_columns_has_its_image() -> None:
    """In such a table the partition is the row."""
    rows = [row(1, 0, 0), row(1, 1, 4, last=True)]
    (group,) = groups(rows, WITHOUT_CLUSTERING)
    assert group.changes == (Change(4, rows[1], True, before=rows[0]),)


PREIMAGES = "a pre-image of a row that its group does not change"


@pytest.mark.parametrize(
    ("others", "seq", "what"),
    [
        ([], 0, PREIMAGES),
        ([(1, b"b")], 0, PREIMAGES),
        ([(1, None)], 0, PREIMAGES),
        ([(4, None)], 0, PREIMAGES),
        ([(5, None), (7, None)], 0, PREIMAGES),
        ([(77, None)], 0, PREIMAGES),
        ([(1, b"a"), (9, b"a"), (9, b"b")], 3, "a post-image of a row that its group does not change"),
        ([(1, b"a"), (9, None)], 2, "a post-image of a row that its group does not change"),
    ],
)
def test_image_of_a_row_that_is_not_changed_is_rejected(
    others: list[tuple[int, bytes | None]], seq: int, what: str
) -> None:
    """Its change is lost or of an unknown kind; dropping the image would hide that."""
    rows = [row(3, 0, 0, ck=b"a"), *(row(3, 1 + at, operation, ck=ck) for at, (operation, ck) in enumerate(others))]
    rows[-1] = (*rows[-1][:3], b"\x01", *rows[-1][4:])
    with pytest.raises(UnpublishableError, match=rf"0x{STREAM.hex()}, 3 us, batch_seq_no {seq}: {what}"):
        list(groups(rows, LAYOUT))
    (kept,) = groups(rows, LAYOUT, keep_failures=True)
    assert (kept.changes, kept.rows) == ((), rows)
    assert what in str(kept.failure)


def test_image_may_lack_its_change_in_an_incomplete_group() -> None:
    """`deliver` returns the changes that exist."""
    rows = [row(3, 0, 0, ck=b"a"), row(3, 1, 0, ck=b"b"), row(3, 2, 1, ck=b"a")]
    (group,) = groups(rows, LAYOUT, incomplete="deliver")
    assert group.changes == (Change(1, rows[2], True, before=rows[0]),)


@pytest.mark.parametrize(("operation", "name"), [(0, "pre-image"), (9, "post-image")])
@pytest.mark.parametrize(
    ("clustering", "renamed"), [(b"a", False), (None, True)], ids=["of a row", "of a row without its key"]
)
def test_second_image_of_a_row_is_rejected(operation: int, name: str, clustering: bytes | None, renamed: bool) -> None:
    """Nothing tells which one is right. If the key has a null, the message names a renamed column as a cause."""
    rows = [row(3, 0, operation, ck=clustering), row(3, 1, operation, ck=clustering), row(3, 2, 1, last=True)]
    what = rf"batch_seq_no 1: a second {name} of a row, after batch_seq_no 0 \(cdc\$operation {operation}\)"
    with pytest.raises(UnpublishableError, match=what) as caught:
        list(groups(rows, LAYOUT))
    assert ("RENAME" in str(caught.value)) == renamed


def test_a_row_has_one_image_of_each_kind() -> None:
    """One pre-image and one post-image."""
    rows = [row(3, 0, 0, ck=b"a"), row(3, 1, 1, ck=b"a"), row(3, 2, 9, ck=b"a", last=True)]
    (group,) = groups(rows, LAYOUT)
    assert group.changes == (Change(1, rows[1], True, before=rows[0], after=rows[2]),)


def test_deltas_of_a_row_can_be_joined() -> None:
    """All inserts and updates of a row become one change, an insert if one of them is; deletes stay apart."""
    rows = [
        row(1, 0, 1, ck=b"b"),
        row(1, 1, 1, ck=b"a"),
        row(1, 2, 2, ck=b"a"),
        row(1, 3, 1, ck=b"b"),
        row(1, 4, 3, ck=b"a"),
        row(1, 5, 5),
        row(1, 6, 7, last=True),
    ]
    (group,) = groups(rows, LAYOUT, by_row=True)
    assert group.changes == (
        Change(1, rows[0], False, more=(rows[3],)),
        Change(2, rows[1], False, more=(rows[2],)),
        Change(3, rows[4], False),
        Change(5, rows[5], True, range_end=rows[6]),
    )


@given(st.lists(st.sampled_from(["update", "range", "row_delete"]), min_size=1, max_size=12), st.booleans())
def test_every_delta_is_in_one_change(kinds: list[str], by_row: bool) -> None:
    """In any mixture, each log row except images is in one change, in the order of first rows."""
    rows: list[Cells] = []
    for number, kind in enumerate(kinds):
        ck = bytes([number % 3])
        operations = {"update": [1], "range": [6, 8], "row_delete": [3]}[kind]
        rows += [row(1, len(rows) + at, operation, ck=ck) for at, operation in enumerate(operations)]
    (group,) = groups(rows, LAYOUT, incomplete="deliver", by_row=by_row)
    found = [
        one
        for change in group.changes
        for one in (change.row, *change.more, *(() if change.range_end is None else (change.range_end,)))
    ]
    assert sorted(found) == sorted(rows)
    assert [change.last_in_group for change in group.changes] == [False] * (len(group.changes) - 1) + [True]
    firsts = [rows.index(change.row) for change in group.changes]
    assert firsts == sorted(firsts)


def test_negative_and_unknown_operations_are_changes() -> None:
    """Expiry deletes (-3, -4) and unknown numbers are changes like others."""
    (group,) = groups([row(1, 0, -3), row(1, 1, -4), row(1, 2, 77, last=True)], LAYOUT)
    assert [change.operation for change in group.changes] == [-3, -4, 77]


def test_incomplete_group_is_rejected_with_its_position() -> None:
    """A group whose last row is missing stops the lane; the error names stream and time."""
    with pytest.raises(IncompleteGroupError, match=rf"stream 0x{STREAM.hex()}, 5 us, .* after 2 rows"):
        list(groups([row(5, 0, 1), row(5, 1, 1)], LAYOUT))


def test_incomplete_group_is_read_again_before_it_is_a_dead_letter() -> None:
    """It may be complete then; other faults of a group do not go away."""
    short, torn = [row(5, 0, 1)], [row(6, 0, 5, last=True)]
    with pytest.raises(IncompleteGroupError):
        list(groups(short, LAYOUT, keep_failures=True, is_retry=False))
    for is_retry, rows in ((True, short), (True, torn), (False, torn)):
        (kept,) = groups(rows, LAYOUT, keep_failures=True, is_retry=is_retry)
        assert kept.failure is not None


def test_incomplete_group_is_delivered_on_request() -> None:
    """`deliver` returns the rows that exist."""
    (group,) = groups([row(5, 0, 1), row(5, 1, 1)], LAYOUT, incomplete="deliver")
    assert [change.last_in_group for change in group.changes] == [False, True]


def test_old_logs_have_no_end_of_batch() -> None:
    """Logs older than ScyllaDB 4.3 lack the column; a group ends where the next one begins."""
    layout = LogLayout.of([name for name in COLUMNS if name != "cdc$end_of_batch"], ["pk"], ["ck"])
    rows = [row(1, 0, 1)[:3] + row(1, 0, 1)[4:], row(2, 0, 2)[:3] + row(2, 0, 2)[4:]]
    assert [group.changes[0].operation for group in groups(rows, layout)] == [1, 2]


def test_range_delete_is_one_change_with_both_ends() -> None:
    """The rows of start and end are adjacent in the log."""
    rows = [row(1, 0, 6, ck=b"a"), row(1, 1, 7), row(1, 2, 5), row(1, 3, 8, ck=b"z", last=True)]
    (group,) = groups(rows, LAYOUT)
    assert group.changes == (
        Change(6, rows[0], False, range_end=rows[1]),
        Change(5, rows[2], True, range_end=rows[3]),
    )


@pytest.mark.parametrize(
    ("operations", "what"),
    [
        ([5], "a start without its end"),
        ([7], "an end without its start"),
        ([5, 1, 7], r"a start without its end \(cdc\$operation 1\)"),
        ([5, 5, 7], "a start without its end"),
        ([1, 8], "an end without its start"),
    ],
)
def test_half_a_range_delete_is_rejected_with_its_position(operations: list[int], what: str) -> None:
    """Without one of its ends it would delete too much or too little."""
    rows = [row(3, seq, operation) for seq, operation in enumerate(operations)]
    with pytest.raises(
        UnpublishableError, match=rf"0x{STREAM.hex()}, 3 us, batch_seq_no \d: half of a range delete, {what}"
    ):
        list(groups(rows, LAYOUT, incomplete="deliver"))


def test_unpublishable_group_is_kept_on_request_and_the_rest_goes_on() -> None:
    """A group that can't be published does not affect the next one."""
    rows = [row(1, 0, 5), row(1, 1, 1, last=True), row(2, 0, 1, last=True)]
    bad, good = groups(rows, LAYOUT, keep_failures=True)
    assert (bad.changes, bad.rows) == ((), rows[:2])
    assert "half of a range delete" in str(bad.failure)
    assert (good.changes, good.failure) == ((Change(1, rows[2], True),), None)


def test_group_of_a_hundred_thousand_rows_is_one_group() -> None:
    """Neither page breaks nor transaction limits divide a group."""
    rows = [row(1, seq, 1, last=seq == 99_999) for seq in range(100_000)]
    (group,) = groups(iter(rows), LAYOUT)
    assert len(group.changes) == 100_000
    assert group.changes[-1].last_in_group


def test_retried_write_is_delivered_once_on_request() -> None:
    """Same stream, microsecond and content with another low half is a client's retry; anything else is not."""
    rows = [
        row(1, 0, 1, last=True, low=1, value=b"x"),
        row(1, 0, 1, last=True, low=1, value=b"x", stream=OTHER),
        row(1, 0, 1, last=True, low=2, value=b"y"),
        row(1, 0, 1, last=True, low=3, value=b"x"),
        row(1, 0, 1, last=True, low=4, value=None),
        row(1, 0, 1, last=True, low=5, value=b""),
        row(2, 0, 1, last=True, low=6, value=b"x"),
    ]
    made = list(groups(rows, LAYOUT))
    assert len(made) == len(rows)
    kept = [group.rows[0] for group in without_repeats(made, LAYOUT)]
    assert kept == [one for one in rows if one is not rows[3]]


def test_retry_of_a_batch_is_compared_by_all_rows() -> None:
    """A group that only begins alike is another one."""
    first = [row(1, 0, 1, low=1), row(1, 1, 2, last=True, low=1)]
    other = [row(1, 0, 1, low=2), row(1, 1, 3, last=True, low=2)]
    again = [row(1, 0, 1, low=3), row(1, 1, 2, last=True, low=3)]
    kept = list(without_repeats(groups([*first, *other, *again], LAYOUT), LAYOUT))
    assert [list(group.rows) for group in kept] == [first, other]


def test_images_of_a_retry_show_what_the_first_try_left() -> None:
    """So images are not compared; a group of images only is no repetition of another."""
    first = [row(1, 0, 2, ck=b"a", low=1), row(1, 1, 9, ck=b"a", value=b"x", last=True, low=1)]
    again = [
        row(1, 0, 0, ck=b"a", value=b"x", low=2),
        row(1, 1, 2, ck=b"a", low=2),
        row(1, 2, 9, ck=b"a", value=b"x", last=True, low=2),
    ]
    contradicting = [[row(1, 0, 9, ck=ck, last=True, low=low)] for ck, low in ((b"a", 3), (b"b", 4))]
    found = groups([*first, *again, *contradicting[0], *contradicting[1]], LAYOUT, keep_failures=True)
    assert [list(group.rows) for group in without_repeats(found, LAYOUT)] == [first, *contradicting]


def test_row_without_operation_is_rejected() -> None:
    """The error names a damaged row."""
    damaged = (*row(1, 0, 1, last=True)[:4], None, b"")
    with pytest.raises(UnpublishableError, match=r"cdc\$operation is null"):
        list(groups([damaged], LAYOUT))


def test_layout_of_something_else() -> None:
    """The error names the log's own columns that a result lacks."""
    with pytest.raises(BridgeError, match=r"no cdc\$batch_seq_no, cdc\$operation"):
        LogLayout.of(["cdc$stream_id", "cdc$time", "v"], ["v"])


def test_layout_without_a_key_column() -> None:
    """The error names a key column that the log lacks."""
    with pytest.raises(BridgeError, match="no other among"):
        LogLayout.of(COLUMNS, ["pk"], ["other"])
