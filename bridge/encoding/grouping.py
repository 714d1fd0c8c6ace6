"""Gathers ordered log rows into groups of changes. Pure.

ScyllaDB writes the rows of a group in the order pre-images, deltas, post-images. A row of the base table may have
several deltas in a group, one for each TTL. An image shows its row before or after the whole group, so every delta of
the row gets the same images. ScyllaDB logs images of rows that the group inserts, updates or deletes one by one. The
delete of a range or of a partition has no images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from bridge.errors import UnpublishableError
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
    ". Its key has a null: log rows from before a key column was renamed (ALTER TABLE ... RENAME) have lost their key"
)
_DIGEST_BYTES: Final = 16
_REMEMBERED_GROUPS: Final = 1_000_000

Key = tuple[bytes | None, ...]
_Delta = tuple[int, Cells, tuple[Cells, ...]]
"""Operation, row, and the rows that belong to it: the end of a range delete, or further deltas of the same row."""


class IncompleteGroupError(UnpublishableError):
    """The rows that were read lack the last row of a group. A retry of the task reads the group again."""


def groups(
    rows: Iterable[Cells],
    layout: LogLayout,
    *,
    incomplete: str = "stop",
    by_row: bool = False,
    keep_failures: bool = False,
    is_retry: bool = True,
) -> Iterator[Group]:
    """Gather the rows of each stream and `cdc$time` into one group of changes.

    Args:
        rows: in lane order: the rows of a group are adjacent, in `cdc$batch_seq_no` order.
        layout: the layout of the rows.
        incomplete: `stop` or `deliver`: what to do with a group that does not end with `cdc$end_of_batch`. In a group
            that is delivered incomplete, images may lack their deltas.
        by_row: join all inserts and updates of one row in a group into one change (`Change.more`); otherwise each delta
            is a change of its own.
        keep_failures: yield a group that can't be published, with the reason in `Group.failure`; otherwise raise.
        is_retry: whether this task is a retry. In the first attempt, an incomplete group is raised even with
            `keep_failures`, because it may be complete when it is read again.

    Raises:
        IncompleteGroupError: a group is incomplete; the message names table, stream and time.
        UnpublishableError: a group can't be published: a damaged operation cell, half of a range delete, an image of a
            row that the group does not change, or a second image of the same row.
    """
    for held in _split_by_group(rows, layout):
        try:
            yield _build_group(held, layout, incomplete, by_row=by_row)
        except UnpublishableError as error:
            if not keep_failures or (isinstance(error, IncompleteGroupError) and not is_retry):
                raise
            stream_id, timeuuid = _identity(held[0], layout)
            yield Group(stream_id, timeuuid, (), held, error)


def _split_by_group(rows: Iterable[Cells], layout: LogLayout) -> Iterator[list[Cells]]:
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
    # Both are key columns of the log, so no row lacks them.
    assert stream_id is not None
    assert timeuuid is not None
    return stream_id, timeuuid


def without_repeats(
    found: Iterable[Group], layout: LogLayout, *, on_repeat: Callable[[], None] = lambda: None
) -> Iterator[Group]:
    """Drop groups that a client's retry wrote a second time: same stream, same microsecond, same changes.

    Images are not compared: those of the retry show the row as the first write left it.

    Each group is compared with the groups of the same microsecond, at most the last million. A window never divides a
    microsecond, so every replay of a window drops the same groups.

    Args:
        found: groups in lane order.
        layout: the layout of their rows.
        on_repeat: called for each group that is dropped.
    """
    seen: dict[bytes, None] = {}
    current_us: int | None = None
    for group in found:
        if (at_us := micros_of(group.timeuuid)) != current_us:
            current_us = at_us
            seen.clear()
        digest = _digest_of(group, layout)
        if digest in seen:
            on_repeat()
            continue
        seen[digest] = None
        if len(seen) > _REMEMBERED_GROUPS:
            del seen[next(iter(seen))]
        yield group


def _digest_of(group: Group, layout: LogLayout) -> bytes:
    """Return a digest of a group's stream and rows. Images count only in a group that can't be published."""
    digest = blake2b(group.stream_id, digest_size=_DIGEST_BYTES)
    places = {layout.time, layout.batch_seq_no, layout.end_of_batch}
    for row in group.rows:
        if group.failure is None and row[layout.operation] in _IMAGE_CELLS:
            continue
        for at, cell in enumerate(row):
            if at in places:
                continue
            digest.update(b"-" if cell is None else b"%d:" % len(cell))
            digest.update(cell or b"")
    return digest.digest()


def _build_group(rows: list[Cells], layout: LogLayout, incomplete: str, *, by_row: bool) -> Group:
    stream_id, timeuuid = _identity(rows[0], layout)
    ends = layout.end_of_batch is None or rows[-1][layout.end_of_batch] == _TRUE
    if not ends and incomplete == "stop":
        raise IncompleteGroupError(
            f"{_locate(rows[0], layout)}: the group ends without cdc$end_of_batch after {len(rows)} rows; "
            "to publish the rows that such groups have, set reading.on_incomplete_group: deliver"
        )
    if len(rows) == 1:
        operation = _parse_operation(rows[0], layout)
        if operation not in _SPECIAL:
            return Group(stream_id, timeuuid, (Change(operation, rows[0], last_in_group=True),), rows)
    return Group(stream_id, timeuuid, _GroupBuilder(layout).build(rows, by_row=by_row, whole=ends), rows)


_SPECIAL: Final = frozenset({Operation.PREIMAGE, Operation.POSTIMAGE, *_STARTS, *_ENDS})
"""Operations of rows that are not a change of their own."""


class _GroupBuilder:
    """Joins the rows of one group: images to their deltas, and ends of range deletes to their starts."""

    def __init__(self, layout: LogLayout) -> None:
        self._layout = layout
        self._key_cells = (*layout.partition_key, *layout.clustering)
        # In a table with clustering columns, a partition delete has the key of the static row but has no image.
        self._without_images = _STARTS | _OF_PARTITIONS if layout.clustering else _STARTS
        self._images: dict[int, dict[Key, Cells]] = {Operation.PREIMAGE: {}, Operation.POSTIMAGE: {}}

    def build(self, rows: list[Cells], *, by_row: bool, whole: bool) -> tuple[Change, ...]:
        deltas = self._collect_deltas(rows)
        if by_row:
            deltas = self._join_by_row(deltas)
        last = len(deltas) - 1
        before, after = self._images[Operation.PREIMAGE], self._images[Operation.POSTIMAGE]
        joins = bool(before or after)
        changed: set[Key] = set()
        changes: list[Change] = []
        for index, (operation, row, other) in enumerate(deltas):
            key: Key = ()
            if joins and operation not in self._without_images:
                key = self._key_of(row)
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
                    raise UnpublishableError(
                        f"{_locate(row, self._layout)}: a {_IMAGES[Operation(operation)]} of a row that its "
                        f"group does not change (cdc$operation {operation})"
                    )

    def _add_image(self, operation: int, row: Cells) -> None:
        images, key = self._images[operation], self._key_of(row)
        if key in images:
            first = _batch_seq_no(images[key], self._layout)
            raise UnpublishableError(
                f"{_locate(row, self._layout)}: a second {_IMAGES[Operation(operation)]} of a row, after batch_seq_no "
                f"{first} (cdc$operation {operation}){_MAY_BE_RENAMED if None in key else ''}"
            )
        images[key] = row

    def _collect_deltas(self, rows: list[Cells]) -> list[_Delta]:
        deltas: list[_Delta] = []
        start: tuple[int, Cells] | None = None
        for row in rows:
            operation = _parse_operation(row, self._layout)
            if (start is not None) != (operation in _ENDS):
                at = _locate(row if start is None else start[1], self._layout)
                half = "an end without its start" if start is None else "a start without its end"
                raise UnpublishableError(f"{at}: half of a range delete, {half} (cdc$operation {operation})")
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
            raise UnpublishableError(
                f"{_locate(start[1], self._layout)}: half of a range delete, a start without its end"
            )
        return deltas

    def _join_by_row(self, deltas: list[_Delta]) -> list[_Delta]:
        joined: list[_Delta] = []
        upserts: dict[Key, int] = {}
        for operation, row, other in deltas:
            if operation not in _UPSERTS:
                joined.append((operation, row, other))
                continue
            at = upserts.setdefault(self._key_of(row), len(joined))
            if at == len(joined):
                joined.append((operation, row, ()))
            else:
                known, first, more = joined[at]
                joined[at] = (max(known, operation), first, (*more, row))
        return joined

    def _key_of(self, row: Cells) -> Key:
        return tuple(row[at] for at in self._key_cells)


def _parse_operation(row: Cells, layout: LogLayout) -> int:
    cell = row[layout.operation]
    if cell is None or len(cell) != 1:
        size = "null" if cell is None else f"{len(cell)} bytes long"
        raise UnpublishableError(f"{_locate(row, layout)}: cdc$operation is {size}, not 1 byte long")
    return cell[0] - 256 if cell[0] > 127 else cell[0]


def _locate(row: Cells, layout: LogLayout) -> str:
    position = Position(row[layout.stream_id] or b"", row[layout.time] or b"", _batch_seq_no(row, layout))
    return f"{layout.table}: {position.describe()}" if layout.table else position.describe()


def _batch_seq_no(row: Cells, layout: LogLayout) -> int:
    return int.from_bytes(row[layout.batch_seq_no] or b"", "big", signed=True)
