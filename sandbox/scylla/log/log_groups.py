"""Derives the groups of log rows that ScyllaDB writes for a base write (spec sections 2.2 to 2.6). Pure.

The operation numbers are defined here and not taken from the bridge, because the simulator checks the bridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.model.times import UnixMicros
from sandbox.scylla.base.merging import CollectionState, Columns, PartitionState, RowState, merge
from sandbox.scylla.base.mutations import (
    Insert,
    Mutation,
    PartitionDelete,
    PartitionExpiry,
    RangeDelete,
    RowDelete,
    RowExpiry,
    UnknownOperation,
    Update,
)
from sandbox.scylla.base.ranges import RangeState
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.log.images import ImageOptions, Images
from sandbox.scylla.log.log_rows import CollectionDelta, LogCells, LogGroup, LogOperation, LogRow, Piece, Written
from sandbox.scylla.values.multi_cell import MultiCell
from sandbox.scylla.values.nested import UserTypes
from sandbox.scylla.values.ordering import ClusteringOrder
from schemas.cql.table import TableSchema

_NO_IMAGES: Final = ImageOptions()


@dataclass(frozen=True, slots=True)
class LogRules:
    """The properties of a table that decide how its writes are logged.

    Attributes:
        columns: how its writes are merged.
        regulars: names of its regular columns, without the hidden one.
        images: which images are logged.
    """

    columns: Columns
    regulars: frozenset[str]
    images: ImageOptions = _NO_IMAGES

    @classmethod
    def of(
        cls,
        table_schema: TableSchema,
        *,
        user_types: UserTypes = (),
        compact: bool = False,
        images: ImageOptions = _NO_IMAGES,
    ) -> LogRules:
        """Return the rules of a table.

        Args:
            table_schema: the table.
            user_types: all UDTs that its columns use.
            compact: whether it has COMPACT STORAGE.
            images: which images are logged.

        Raises:
            ValueError: a key's values can't be ordered, or a UDT's fields are not given.
        """
        clustering = table_schema.clustering
        order = ClusteringOrder(
            [column.type for column in clustering], [column.descending for column in clustering], user_types
        )
        multi_cell = {column.name: MultiCell.of(column.type, user_types) for column in table_schema.values}
        columns = Columns(
            frozenset(column.name for column in table_schema.statics),
            {name: kind for name, kind in multi_cell.items() if kind is not None},
            order,
            compact,
            next((column.name for column in table_schema.regulars if column.is_hidden), None),
        )
        regulars = frozenset(column.name for column in table_schema.regulars if not column.is_hidden)
        return cls(columns, regulars, images)


def log_groups(
    rules: LogRules,
    mutation: Mutation,
    timestamp_us: UnixMicros,
    *,
    base: BaseState | None = None,
    now_us: UnixMicros | None = None,
) -> list[LogGroup]:
    """Return the log groups of a mutation, ascending by timestamp.

    Args:
        rules: those of the mutation's table.
        mutation: the base write.
        timestamp_us: its timestamp, for statements without one.
        base: the table before the mutation, from which images are read; it is not changed.
        now_us: the coordinator's clock; by default `timestamp_us`.

    Raises:
        ValueError: as `merge`; or the table has images and `base` is missing.
    """
    plain = _plain(rules, mutation)
    if plain is not None:
        own_us = mutation.operations[0].timestamp_us
        return [LogGroup(timestamp_us if own_us is None else own_us, (plain,))]
    return split_groups(rules, mutation, timestamp_us, base=base, now_us=now_us)


def split_groups(
    rules: LogRules,
    mutation: Mutation,
    timestamp_us: UnixMicros,
    *,
    base: BaseState | None = None,
    now_us: UnixMicros | None = None,
) -> list[LogGroup]:
    """Return the log groups of a mutation as `log_groups` does, but without its shortcut for plain statements."""
    (first, *_others) = mutation.operations
    if isinstance(first, UnknownOperation):
        return [_unknown_group(rules, mutation, first, timestamp_us)]
    clock_us = timestamp_us if now_us is None else now_us
    state = merge(mutation, timestamp_us, rules.columns, clock_us)
    rows = rules.columns.order.sorted(state.rows.values(), key=lambda row: row.clustering)
    groups = _grouped(state, rows)
    if not rules.images.wanted:
        return [LogGroup(stamp, tuple(_log_row(piece, rules) for piece in pieces)) for stamp, pieces in groups]
    if base is None:
        raise ValueError("images can't be made without the base table")
    images = Images(rules.images, rules.columns, rules.regulars)
    images.read(base, mutation.partition_key, clock_us, state, rows)
    found = []
    for stamp, pieces in groups:
        before = list(images.before(pieces))  # before the group's changes are applied
        delta = [_log_row(piece, rules) for piece in pieces]
        images.apply(pieces)
        found.append(LogGroup(stamp, (*before, *delta, *images.after(pieces))))
    return found


def _unknown_group(
    rules: LogRules, mutation: Mutation, operation: UnknownOperation, timestamp_us: UnixMicros
) -> LogGroup:
    at_us = timestamp_us if operation.timestamp_us is None else operation.timestamp_us
    merged = RowState(operation.clustering)
    if operation.cells:
        update = Update(operation.clustering, operation.cells, operation.ttl_s)
        state = merge(Mutation(mutation.partition_key, (update,)), at_us, rules.columns)
        merged = next(iter(state.rows.values()), state.static)
    cells: Written = {**merged.cells, **merged.collections}
    piece = Piece(operation.number, operation.clustering, False, cells, operation.ttl_s)
    return LogGroup(at_us, (_log_row(piece, rules),))


def _plain(rules: LogRules, mutation: Mutation) -> LogRow | None:
    """Return the only log row of a mutation that needs no merging; None for others. Most bulk loads need none."""
    columns = rules.columns
    if len(mutation.operations) > 1 or rules.images.wanted or columns.compact:
        return None
    operation = mutation.operations[0]
    has_clustering = columns.clustering_count > 0
    match operation:
        case Insert() | Update():
            pass
        case RowDelete(clustering) if has_clustering:
            return LogRow(LogOperation.ROW_DELETE, clustering)
        case RowDelete() | PartitionDelete():
            return LogRow(LogOperation.PARTITION_DELETE)
        case RangeDelete() | RowExpiry() | PartitionExpiry() | UnknownOperation():
            return None
    cells = operation.cells
    if has_clustering and (not operation.clustering or not columns.statics.isdisjoint(cells)):
        return None
    if columns.multi_cell and not columns.multi_cell.keys().isdisjoint(cells):
        return None
    if operation.ttl_s and None in cells.values():
        return None
    # What is left are atomic columns, whose cells are bytes or None.
    plain: LogCells = cells  # type: ignore[assignment]
    if isinstance(operation, Insert):
        return LogRow(LogOperation.INSERT, operation.clustering, plain, operation.ttl_s or None)
    return LogRow(LogOperation.UPDATE, operation.clustering, plain, operation.ttl_s or None) if cells else None


def _grouped(state: PartitionState, rows: list[RowState]) -> list[tuple[UnixMicros, list[Piece]]]:
    """The delta rows of each group, ascending by timestamp."""
    stamps = {stamp for row in (state.static, *rows) for stamp in _stamps(row)}
    stamps.update(entry.deleted_us for entry in state.ranges)
    if state.deleted_us is not None:
        stamps.add(state.deleted_us)
    if _is_whole(state, rows, len(stamps)):
        return [(stamp, list(_whole(state, rows))) for stamp in stamps]
    return [(stamp, list(_bucket(state, rows, stamp))) for stamp in sorted(stamps)]


def _stamps(row: RowState) -> Iterator[UnixMicros]:
    for cell in row.cells_written():
        yield cell.timestamp_us
    for collection in row.collections.values():
        if collection.logged_us is not None:
            yield collection.logged_us
    if row.deleted_us is not None:
        yield row.deleted_us


def _is_whole(state: PartitionState, rows: list[RowState], timestamps: int) -> bool:
    """Whether the mutation is logged as it is, without splitting (spec section 2.5)."""
    everything = (state.static, *rows)
    ttls = {cell.ttl_s for row in everything for cell in row.cells_written()}
    # Tombstones count as having no TTL.
    if state.ranges or any(row.deleted_us is not None for row in rows):
        ttls.add(0)
    if any(collection.deleted_us is not None for row in everything for collection in row.collections.values()):
        ttls.add(0)
    if timestamps > 1 or len(ttls) > 1 or state.deleted_us is not None:
        return False
    if (state.static.is_written and (rows or state.ranges)) or (rows and state.ranges):
        return False
    upsert_seen = marker_seen = False
    for row in rows:
        upsert_seen = upsert_seen or row.is_written
        marker_seen = marker_seen or row.marker is not None
        if row.deleted_us is not None and upsert_seen:
            return False
        if marker_seen and any(
            cell.value is not None for collection in row.collections.values() for cell in collection.elements.values()
        ):
            return False
    return True


def _whole(state: PartitionState, rows: list[RowState]) -> Iterator[Piece]:
    if state.static.is_written:
        yield _upsert(LogOperation.UPDATE, state.static, is_static=True)
    for row in rows:
        if row.deleted_us is not None:
            yield _row_delete(row)
        if row.is_written:
            yield _upsert(LogOperation.INSERT if row.marker is not None else LogOperation.UPDATE, row)
    for entry in state.ranges:
        yield from _range(entry)


def _bucket(state: PartitionState, rows: list[RowState], stamp_us: UnixMicros) -> Iterator[Piece]:
    """Yield the rows of one timestamp of a split mutation, in the order of spec section 2.5."""
    parts = [(row, _parts(row, stamp_us)) for row in rows]
    for ttl_s, cells in sorted(_parts(state.static, stamp_us).items()):
        yield Piece(LogOperation.UPDATE, (), True, cells, ttl_s)
    for row, by_ttl in parts:
        if row.marker is not None and row.marker.timestamp_us == stamp_us:
            yield Piece(LogOperation.INSERT, row.clustering, False, _inserted(row, by_ttl), row.marker.ttl_s)
    for row, by_ttl in parts:
        for ttl_s, cells in sorted(by_ttl.items()):
            yield Piece(LogOperation.UPDATE, row.clustering, False, cells, ttl_s)
    for row in rows:
        if row.deleted_us == stamp_us:
            yield _row_delete(row)
    for entry in state.ranges:
        if entry.deleted_us == stamp_us:
            yield from _range(entry)
    if state.deleted_us == stamp_us:
        number = LogOperation.PARTITION_EXPIRY if state.is_expiry else LogOperation.PARTITION_DELETE
        yield Piece(number, (), False)


def _parts(row: RowState, stamp_us: UnixMicros) -> dict[int, Written]:
    """Return the writes of a row that have one timestamp, by TTL; dead cells and tombstones have none."""
    found: dict[int, Written] = {}
    for name, cell in row.cells.items():
        if cell.timestamp_us == stamp_us:
            found.setdefault(cell.ttl_s, {})[name] = cell
    for name, collection in row.collections.items():
        if collection.logged_us == stamp_us:
            _collection(found.setdefault(0, {}), name).deleted_us = collection.deleted_us
        for key, cell in collection.elements.items():
            if cell.timestamp_us == stamp_us:
                _collection(found.setdefault(cell.ttl_s, {}), name).elements[key] = cell
    return found


def _collection(written: Written, name: str) -> CollectionState:
    state = written.setdefault(name, CollectionState())
    assert isinstance(state, CollectionState)
    return state


def _inserted(row: RowState, by_ttl: dict[int, Written]) -> Written:
    """Remove from a row's parts what belongs to its INSERT. Collections that are only added to do not."""
    assert row.marker is not None
    cells = by_ttl.pop(row.marker.ttl_s, {})
    added: Written = {
        name: state for name, state in cells.items() if isinstance(state, CollectionState) and state.deleted_us is None
    }
    if added:
        by_ttl[row.marker.ttl_s] = added
    return {name: state for name, state in cells.items() if name not in added}


def _upsert(operation: LogOperation, row: RowState, *, is_static: bool = False) -> Piece:
    # An unsplit row has one TTL.
    ttl_s = max((cell.ttl_s for cell in row.cells_written()), default=0)
    return Piece(operation, row.clustering, is_static, {**row.cells, **row.collections}, ttl_s)


def _row_delete(row: RowState) -> Piece:
    return Piece(LogOperation.ROW_EXPIRY if row.is_expiry else LogOperation.ROW_DELETE, row.clustering, False)


def _range(entry: RangeState) -> Iterator[Piece]:
    start, end = entry.start, entry.end
    inclusive = start is None or start.inclusive
    yield Piece(
        LogOperation.RANGE_DELETE_START_INCLUSIVE if inclusive else LogOperation.RANGE_DELETE_START_EXCLUSIVE,
        () if start is None else start.prefix,
        False,
        deleted_range=entry,
    )
    inclusive = end is None or end.inclusive
    yield Piece(
        LogOperation.RANGE_DELETE_END_INCLUSIVE if inclusive else LogOperation.RANGE_DELETE_END_EXCLUSIVE,
        () if end is None else end.prefix,
        False,
    )


def _log_row(piece: Piece, rules: LogRules) -> LogRow:
    cells: dict[str, bytes | CollectionDelta | None] = {}
    for name, state in piece.cells.items():
        if isinstance(state, CollectionState):
            cells[name] = _delta(rules.columns.multi_cell[name], state)
        elif name != rules.columns.hidden:
            cells[name] = state.value
    return LogRow(piece.operation, piece.clustering, cells, piece.ttl_s or None)


def _delta(kind: MultiCell, state: CollectionState) -> CollectionDelta:
    live = {key: cell.value for key, cell in state.elements.items() if cell.value is not None}
    dead = [key for key, cell in state.elements.items() if cell.value is None]
    # The value of a touched UDT is never null (spec section 2.3).
    value = kind.pack(live) if live or kind.kind == "udt" else None
    return CollectionDelta(value, state.deleted_us is not None, kind.pack_keys(dead) if dead else None)
