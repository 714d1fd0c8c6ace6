"""From ordered log rows to groups of changes. Pure: rows in, groups out.

ScyllaDB writes a group's rows as pre-images, deltas, post-images (spec section 2.5), and a row of the base table may
have several deltas there, one for each TTL. An image shows its row before or after the whole group, so every delta of
the row gets the same ones. ScyllaDB logs images of rows that the group inserts, updates or deletes one by one, and none
of what the delete of a range or of a partition removes (spec section 2.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from bridge.errors import PoisonError
from bridge.model.log_rows import Cells, Change, Group, LogLayout
from bridge.model.position import Position
from bridge.model.times import micros_of
from schemas.log.operations import Operation

_TRUE: Final = b"\x01"
_STARTS: Final = frozenset({Operation.RANGE_START_INCLUSIVE, Operation.RANGE_START_EXCLUSIVE})
_ENDS: Final = frozenset({Operation.RANGE_END_INCLUSIVE, Operation.RANGE_END_EXCLUSIVE})
_OF_PARTITIONS: Final = frozenset({Operation.PARTITION_DELETE, Operation.PARTITION_EXPIRY})
_UPSERTS: Final = frozenset({Operation.INSERT, Operation.UPDATE})
_IMAGES: Final = {Operation.PREIMAGE: "pre-image", Operation.POSTIMAGE: "post-image"}
_IMAGE_CELLS: Final = frozenset(bytes((operation,)) for operation in _IMAGES)
_MAY_BE_RENAMED: Final = (
    ". Its key has a null: rows from before a key column was renamed (ALTER TABLE ... RENAME) can't be told apart"
)
_DIGEST_BYTES: Final = 16
_REMEMBERED_GROUPS: Final = 1_000_000

Key = tuple[bytes | None, ...]


class IncompleteGroupError(PoisonError):
    """A group whose last row was not among what was read; Spark's own tries at the task have read it anew."""


def groups(
    rows: Iterable[Cells],
    layout: LogLayout,
    *,
    incomplete: str = "stop",
    by_row: bool = False,
    keep_poison: bool = False,
    read_anew: bool = True,
) -> Iterator[Group]:
    """Gather the rows of each (stream, `cdc$time`) into one group of changes.

    Args:
        rows: in lane order: the rows of a group lie together, in `cdc$batch_seq_no` order. A page break inside a
            group is no concern of this function: it sees one sequence.
        layout: where the CDC columns and the primary key lie in a row.
        incomplete: `stop` or `deliver`, for a group that does not end with `cdc$end_of_batch`. Of what is delivered,
            images may stand alone: their deltas are what is missing.
        by_row: make one change of all inserts and updates of one row in a group (`Change.more`); else each delta is a
            change of its own.
        keep_poison: hand on a group that can't be carried, with the reason in `Group.poison`; else raise it.
        read_anew: whether the rows were read before. An incomplete group is raised unless they were, whatever
            `keep_poison` says: it may be whole when it is read once more, as no other poison is.

    Raises:
        IncompleteGroupError: as said; naming table, stream and time.
        PoisonError: a row that can't be carried (a damaged operation cell, half of a range delete, an image of a row
            that the group does not change, a second one of the same row).
    """
    for held in _by_group(rows, layout):
        try:
            yield _group(held, layout, incomplete, by_row=by_row)
        except PoisonError as error:
            if not keep_poison or (isinstance(error, IncompleteGroupError) and not read_anew):
                raise
            stream_id, timeuuid = _identity(held[0], layout)
            yield Group(stream_id, timeuuid, (), held, error)


def _by_group(rows: Iterable[Cells], layout: LogLayout) -> Iterator[list[Cells]]:
    stream_at, time_at = layout.stream_id, layout.time
    held: list[Cells] = []
    stream_id: bytes | None = None
    timeuuid: bytes | None = None
    for row in rows:
        if row[time_at] != timeuuid or row[stream_at] != stream_id:
            if held:
                yield held
            held = []
            stream_id, timeuuid = row[stream_at], row[time_at]
        held.append(row)
    if held:
        yield held


def _identity(row: Cells, layout: LogLayout) -> tuple[bytes, bytes]:
    stream_id, timeuuid = row[layout.stream_id], row[layout.time]
    # Key columns of the log: the server has no row without them.
    assert stream_id is not None
    assert timeuuid is not None
    return stream_id, timeuuid


def without_repeats(
    found: Iterable[Group], layout: LogLayout, *, left_out: Callable[[], None] = lambda: None
) -> Iterator[Group]:
    """Leave out what a client's retry wrote a second time (spec section 3): same stream, us and changes.

    Images don't count: the retry's show the row as the first try had left it.

    A group is compared with the earlier ones of its very microsecond, of which a million are remembered. What is left
    out depends on nothing but the window that is read, and a window never cuts a microsecond in two.

    Args:
        found: groups in lane order.
        layout: where the CDC columns lie in a row.
        left_out: called for each group that is.
    """
    seen: dict[bytes, None] = {}
    current_us: int | None = None
    for group in found:
        if (at_us := micros_of(group.timeuuid)) != current_us:
            current_us = at_us
            seen.clear()
        digest = _content(group, layout)
        if digest in seen:
            left_out()
            continue
        seen[digest] = None
        if len(seen) > _REMEMBERED_GROUPS:
            del seen[next(iter(seen))]
        yield group


def _content(group: Group, layout: LogLayout) -> bytes:
    """A digest of the group's stream and of what its rows but for the images say; of poison of all its rows."""
    digest = blake2b(group.stream_id, digest_size=_DIGEST_BYTES)
    places = {layout.time, layout.batch_seq_no, layout.end_of_batch}
    for row in group.rows:
        if group.poison is None and row[layout.operation] in _IMAGE_CELLS:
            continue
        for at, cell in enumerate(row):
            if at in places:
                continue
            digest.update(b"-" if cell is None else b"%d:" % len(cell))
            digest.update(cell or b"")
    return digest.digest()


def _group(rows: list[Cells], layout: LogLayout, incomplete: str, *, by_row: bool) -> Group:
    stream_id, timeuuid = _identity(rows[0], layout)
    ends = layout.end_of_batch is None or rows[-1][layout.end_of_batch] == _TRUE
    if not ends and incomplete == "stop":
        raise IncompleteGroupError(
            f"{_place(rows[0], layout)}: the group ends without cdc$end_of_batch after "
            f"{len(rows)} rows; to deliver what is there of such groups, set reading.on_incomplete_group: deliver"
        )
    if len(rows) == 1:
        operation = _operation(rows[0], layout)
        if operation not in _SPECIAL:
            return Group(stream_id, timeuuid, (Change(operation, rows[0], last_in_group=True),), rows)
    return Group(stream_id, timeuuid, _Members(layout).of(rows, by_row=by_row, whole=ends), rows)


_SPECIAL: Final = frozenset({Operation.PREIMAGE, Operation.POSTIMAGE, *_STARTS, *_ENDS})
"""Rows that are no change by themselves."""


class _Members:
    """Joins the rows of one group: images to their deltas, the ends of ranges to their starts."""

    def __init__(self, layout: LogLayout) -> None:
        self._layout = layout
        self._key_cells = (*layout.partition_key, *layout.clustering)
        # With clustering columns, a partition's delete has the key of its static row but is not that row's.
        self._without_images = _STARTS | _OF_PARTITIONS if layout.clustering else _STARTS
        self._images: dict[int, dict[Key, Cells]] = {Operation.PREIMAGE: {}, Operation.POSTIMAGE: {}}

    def of(self, rows: list[Cells], *, by_row: bool, whole: bool) -> tuple[Change, ...]:
        deltas = self._deltas(rows)
        if by_row:
            deltas = self._joined(deltas)
        last = len(deltas) - 1
        before, after = self._images[Operation.PREIMAGE], self._images[Operation.POSTIMAGE]
        joins = bool(before or after)
        changed: set[Key] = set()
        changes: list[Change] = []
        for index, (operation, row, other) in enumerate(deltas):
            key: Key = ()
            if joins and operation not in self._without_images:
                key = self._key(row)
                changed.add(key)
            changes.append(
                Change(
                    operation,
                    row,
                    last_in_group=index == last,
                    range_end=other[0] if operation in _STARTS else None,
                    more=() if operation in _STARTS else other,
                    before=before.get(key),
                    after=after.get(key),
                )
            )
        if whole and joins:
            self._require_changes(changed)
        return tuple(changes)

    def _require_changes(self, changed: set[Key]) -> None:
        for operation, images in self._images.items():
            for key, row in images.items():
                if key not in changed:
                    raise PoisonError(
                        f"{_place(row, self._layout)}: a {_IMAGES[Operation(operation)]} of a row that its group has "
                        f"no change of (cdc$operation {operation})"
                    )

    def _add_image(self, operation: int, row: Cells) -> None:
        images, key = self._images[operation], self._key(row)
        if key in images:
            raise PoisonError(
                f"{_place(row, self._layout)}: a second {_IMAGES[Operation(operation)]} of a row, after batch_seq_no "
                f"{_seq(images[key], self._layout)} (cdc$operation {operation}){_MAY_BE_RENAMED if None in key else ''}"
            )
        images[key] = row

    def _deltas(self, rows: list[Cells]) -> list[tuple[int, Cells, tuple[Cells, ...]]]:
        deltas: list[tuple[int, Cells, tuple[Cells, ...]]] = []
        start: tuple[int, Cells] | None = None
        for row in rows:
            operation = _operation(row, self._layout)
            if (start is not None) != (operation in _ENDS):
                at = _place(row if start is None else start[1], self._layout)
                half = "an end without its start" if start is None else "a start without its end"
                raise PoisonError(f"{at}: half of a range delete, {half} (cdc$operation {operation})")
            if start is not None:
                deltas.append((*start, (row,)))
                start = None
            elif operation in _STARTS:
                start = operation, row
            elif operation in self._images:
                self._add_image(operation, row)
            else:
                deltas.append((operation, row, ()))
        if start is not None:
            raise PoisonError(f"{_place(start[1], self._layout)}: half of a range delete, a start without its end")
        return deltas

    def _joined(self, deltas: list[tuple[int, Cells, tuple[Cells, ...]]]) -> list[tuple[int, Cells, tuple[Cells, ...]]]:
        joined: list[tuple[int, Cells, tuple[Cells, ...]]] = []
        upserts: dict[Key, int] = {}
        for operation, row, other in deltas:
            if operation not in _UPSERTS:
                joined.append((operation, row, other))
                continue
            at = upserts.setdefault(self._key(row), len(joined))
            if at == len(joined):
                joined.append((operation, row, ()))
            else:
                known, first, more = joined[at]
                joined[at] = (max(known, operation), first, (*more, row))
        return joined

    def _key(self, row: Cells) -> Key:
        return tuple(row[at] for at in self._key_cells)


def _operation(row: Cells, layout: LogLayout) -> int:
    cell = row[layout.operation]
    if cell is None or len(cell) != 1:
        raise PoisonError(f"{_place(row, layout)}: cdc$operation is {cell!r}, not one byte")
    return cell[0] - 256 if cell[0] > 127 else cell[0]


def _place(row: Cells, layout: LogLayout) -> str:
    position = Position(row[layout.stream_id] or b"", row[layout.time] or b"", _seq(row, layout))
    return f"{layout.table}: {position.describe()}" if layout.table else position.describe()


def _seq(row: Cells, layout: LogLayout) -> int:
    return int.from_bytes(row[layout.batch_seq_no] or b"", "big")
