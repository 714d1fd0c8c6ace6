"""From ordered log rows to groups of changes. Pure: rows in, groups out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.errors import PoisonError
from bridge.model.changes import Cells, Change, Group, LogLayout, Operation
from bridge.model.times import micros_of

_TRUE = b"\x01"
_IMAGES = frozenset({Operation.PREIMAGE, Operation.POSTIMAGE})
_RANGES = frozenset(
    {
        Operation.RANGE_START_INCLUSIVE,
        Operation.RANGE_START_EXCLUSIVE,
        Operation.RANGE_END_INCLUSIVE,
        Operation.RANGE_END_EXCLUSIVE,
    }
)


class IncompleteGroupError(PoisonError):
    """A group whose last row was not among what was read; Spark's own tries at the task have read it anew."""


def groups(rows: Iterable[Cells], layout: LogLayout, *, incomplete: str = "stop") -> Iterator[Group]:
    """Gather the rows of each (stream, `cdc$time`) into one group of changes.

    Args:
        rows: in lane order: the rows of a group lie together, in `cdc$batch_seq_no` order. A page break inside a
            group is no concern of this function: it sees one sequence.
        layout: where the CDC columns lie in a row.
        incomplete: `stop` or `deliver`, for a group that does not end with `cdc$end_of_batch`.

    Raises:
        IncompleteGroupError: as said; naming stream and time.
        PoisonError: a row that can't be carried (an operation that is not supported yet, a damaged operation cell).
    """
    stream_at, time_at = layout.stream_id, layout.time
    held: list[Cells] = []
    stream_id: bytes | None = None
    timeuuid: bytes | None = None
    for row in rows:
        if row[time_at] != timeuuid or row[stream_at] != stream_id:
            if held:
                yield _group(held, layout, incomplete)
            held = []
            stream_id, timeuuid = row[stream_at], row[time_at]
        held.append(row)
    if held:
        yield _group(held, layout, incomplete)


def _group(rows: list[Cells], layout: LogLayout, incomplete: str) -> Group:
    stream_id, timeuuid = rows[0][layout.stream_id], rows[0][layout.time]
    assert stream_id is not None
    assert timeuuid is not None
    if layout.end_of_batch is not None and rows[-1][layout.end_of_batch] != _TRUE and incomplete == "stop":
        raise IncompleteGroupError(
            f"stream 0x{stream_id.hex()}, {micros_of(timeuuid)} us: the group ends without cdc$end_of_batch after "
            f"{len(rows)} rows; to go on, set reading.on_incomplete_group to deliver what is there"
        )
    deltas: list[tuple[int, Cells]] = []
    for row in rows:
        cell = row[layout.operation]
        if cell is None or len(cell) != 1:
            raise PoisonError(
                f"stream 0x{stream_id.hex()}, {micros_of(timeuuid)} us: cdc$operation is {cell!r}, not one byte"
            )
        operation = cell[0] - 256 if cell[0] > 127 else cell[0]
        if operation in _IMAGES:
            continue
        if operation in _RANGES:
            raise PoisonError(
                f"stream 0x{stream_id.hex()}, {micros_of(timeuuid)} us: a range delete (cdc$operation {operation}) "
                "can't be carried by this release"
            )
        deltas.append((operation, row))
    last = len(deltas) - 1
    changes = tuple(Change(operation, row, index == last) for index, (operation, row) in enumerate(deltas))
    return Group(stream_id, timeuuid, changes)
