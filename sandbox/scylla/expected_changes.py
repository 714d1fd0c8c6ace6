"""Converts a group of log rows to the changes that a reader must see. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bridge.model.times import UnixMillis
from sandbox.scylla.log.log_rows import RANGE_STARTS, CollectionDelta, LogGroup, LogOperation, LogRow
from sandbox.scylla.oracle import ExpectedChange, RangeEnd
from sandbox.scylla.values.ordering import Key
from schemas.cql.table import TableSchema


class Place(NamedTuple):
    """The position of a group in the log.

    Attributes:
        partition_key: of the base partition.
        stream_id: 16 bytes.
        time: `cdc$time`, 16 bytes.
        generation_ms: the generation of the stream.
    """

    partition_key: Key
    stream_id: bytes
    time: bytes
    generation_ms: UnixMillis


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """The properties of a table that its changes depend on.

    Attributes:
        keyspace, name: of the base table.
        no_clustering: a null for each clustering column.
        keys_only: whether the log leaves out values and flags (`delta: 'keys'`).
    """

    keyspace: str
    name: str
    no_clustering: tuple[None, ...]
    keys_only: bool

    @classmethod
    def of(cls, table_schema: TableSchema, *, keys_only: bool) -> CapturedTable:
        """The same of a table's schema."""
        no_clustering = (None,) * len(table_schema.clustering)
        return cls(table_schema.keyspace, table_schema.name, no_clustering, keys_only)


def expected_changes(table: CapturedTable, group: LogGroup, place: Place) -> list[ExpectedChange]:
    """Return the group's changes: each with the images of its row, and a range delete as one change."""
    rows = group.rows
    if len(rows) == 1:
        return [_change(table, rows[0], 0, True, group, place)]
    before, after = (
        {_image_key(table, row): _cells(row) for row in rows if row.operation == image}
        for image in (LogOperation.PRE_IMAGE, LogOperation.POST_IMAGE)
    )
    deltas = [
        number
        for number, row in enumerate(rows)
        if row.operation not in (LogOperation.PRE_IMAGE, LogOperation.POST_IMAGE)
        and not (number and rows[number - 1].operation in RANGE_STARTS)
    ]
    changes = []
    for number in deltas:
        row = rows[number]
        change = _change(table, row, number, number == deltas[-1], group, place)
        if row.operation in RANGE_STARTS:
            end = rows[number + 1]
            change = change._replace(range_end=RangeEnd(int(end.operation), _clustering(table, end)))
        elif before or after:
            key = _image_key(table, row)
            change = change._replace(before=before.get(key), after=after.get(key))
        changes.append(change)
    return changes


def _change(
    table: CapturedTable, row: LogRow, number: int, is_last: bool, group: LogGroup, place: Place
) -> ExpectedChange:
    return ExpectedChange(
        table.keyspace,
        table.name,
        place.partition_key,
        _clustering(table, row),
        int(row.operation),
        {} if table.keys_only else row.cells,
        row.ttl_s,
        place.stream_id,
        place.time,
        group.timestamp_us,
        number,
        is_last,
        place.generation_ms,
    )


def _clustering(table: CapturedTable, row: LogRow) -> tuple[bytes | None, ...]:
    missing = len(table.no_clustering) - len(row.clustering)
    return row.clustering + table.no_clustering[:missing] if missing else row.clustering


def _image_key(table: CapturedTable, row: LogRow) -> tuple[Key, bool]:
    """What an image shares with the changes that it belongs to; a partition's delete is not the static row's."""
    is_whole = row.operation in (LogOperation.PARTITION_DELETE, LogOperation.PARTITION_EXPIRY)
    return row.clustering, is_whole and bool(table.no_clustering)


def _cells(row: LogRow) -> dict[str, bytes | None]:
    cells: dict[str, bytes | None] = {}
    for name, cell in row.cells.items():
        assert not isinstance(cell, CollectionDelta), f"an image shows column {name!r} whole"
        cells[name] = cell
    return cells
