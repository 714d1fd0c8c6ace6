"""From a merged mutation to the groups of log rows that ScyllaDB writes (spec sections 2.2 to 2.5). Pure.

The operation numbers are stated here anew and not taken from the bridge: the simulator is what the bridge is
checked against. Images (0 and 9) and range deletes (5 to 8) have their places in the order but are not made yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from bridge.local.simulator.mutations import (
    Cell,
    Insert,
    Mutation,
    PartitionDelete,
    PartitionState,
    RowDelete,
    RowState,
    merge,
)
from bridge.local.simulator.ordering import ClusteringOrder, Key
from bridge.model.times import UnixMicros
from schemas.table_schema import TableSchema


class LogOperation(IntEnum):
    """Values of `cdc$operation` (spec section 2.1)."""

    PRE_IMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_DELETE_START_INCLUSIVE = 5
    RANGE_DELETE_START_EXCLUSIVE = 6
    RANGE_DELETE_END_INCLUSIVE = 7
    RANGE_DELETE_END_EXCLUSIVE = 8
    POST_IMAGE = 9


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of the log, but for what its group decides (stream, time, batch_seq_no, end_of_batch).

    Attributes:
        operation: `cdc$operation`.
        clustering: cells of the clustering columns; () leaves them null.
        cells: base columns; None is a raised `cdc$deleted_` flag, an absent column was left alone.
        ttl_s: `cdc$ttl`; None is null.
    """

    operation: LogOperation
    clustering: Key = ()
    cells: Mapping[str, bytes | None] = field(default_factory=dict)
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Log rows of one stream and one `cdc$time`, in the order of `cdc$batch_seq_no`."""

    timestamp_us: UnixMicros
    rows: tuple[LogRow, ...]


@dataclass(frozen=True, slots=True)
class LogRules:
    """What of a table decides how its writes are logged.

    Attributes:
        statics: names of its static columns.
        has_clustering: whether it has a clustering key.
        order: its clustering order.
    """

    statics: frozenset[str]
    has_clustering: bool
    order: ClusteringOrder

    @classmethod
    def of(cls, table_schema: TableSchema, descending: frozenset[str] = frozenset()) -> LogRules:
        """The rules of a table, whose clustering columns named in `descending` are ordered DESC."""
        clustering = table_schema.clustering
        order = ClusteringOrder(
            [str(column.type) for column in clustering], [column.name in descending for column in clustering]
        )
        return cls(frozenset(column.name for column in table_schema.statics), bool(clustering), order)


def log_groups(rules: LogRules, mutation: Mutation, timestamp_us: UnixMicros) -> list[LogGroup]:
    """The groups that a mutation leaves in the log, ascending by timestamp.

    Args:
        rules: those of the mutation's table.
        mutation: the base write.
        timestamp_us: its timestamp, for statements that have none of their own.

    Raises:
        ValueError: as `merge`.
    """
    plain = _plain(rules, mutation)
    if plain is not None:
        own_us = mutation.operations[0].timestamp_us
        return [LogGroup(timestamp_us if own_us is None else own_us, (plain,))]
    return split_groups(rules, mutation, timestamp_us)


def split_groups(rules: LogRules, mutation: Mutation, timestamp_us: UnixMicros) -> list[LogGroup]:
    """The same as `log_groups`, with no shortcut for plain statements."""
    state = merge(mutation, timestamp_us, statics=rules.statics, has_clustering=rules.has_clustering)
    rows = rules.order.sorted(state.rows.values(), key=lambda row: row.clustering)
    stamps = {cell.timestamp_us for row in (state.static, *rows) for cell in _written(row)}
    stamps.update(row.deleted_us for row in rows if row.deleted_us is not None)
    if state.deleted_us is not None:
        stamps.add(state.deleted_us)
    if _is_whole(state, rows, len(stamps)):
        return [LogGroup(stamp, tuple(_whole(state, rows))) for stamp in stamps]
    return [LogGroup(stamp, tuple(_bucket(state, rows, stamp))) for stamp in sorted(stamps)]


def _plain(rules: LogRules, mutation: Mutation) -> LogRow | None:
    """The only log row of a mutation that needs no merging; bulk loads are made of little else."""
    if len(mutation.operations) > 1:
        return None
    operation = mutation.operations[0]
    match operation:
        case RowDelete(clustering) if rules.has_clustering:
            return LogRow(LogOperation.ROW_DELETE, clustering)
        case RowDelete() | PartitionDelete():
            return LogRow(LogOperation.PARTITION_DELETE)
    cells = operation.cells
    if rules.has_clustering and (not operation.clustering or not rules.statics.isdisjoint(cells)):
        return None
    if operation.ttl_s and None in cells.values():
        return None
    if isinstance(operation, Insert):
        return LogRow(LogOperation.INSERT, operation.clustering, cells, operation.ttl_s or None)
    return LogRow(LogOperation.UPDATE, operation.clustering, cells, operation.ttl_s or None) if cells else None


def _written(row: RowState) -> Iterator[Cell]:
    yield from row.cells.values()
    if row.marker is not None:
        yield row.marker


def _is_whole(state: PartitionState, rows: list[RowState], timestamps: int) -> bool:
    """Whether the mutation is logged as it is, without splitting (spec section 2.5)."""
    ttls = {cell.ttl_s for row in (state.static, *rows) for cell in _written(row)}
    # Tombstones count as having no TTL.
    if state.deleted_us is not None or any(row.deleted_us is not None for row in rows):
        ttls.add(0)
    if timestamps > 1 or len(ttls) > 1 or (state.static.cells and rows) or state.deleted_us is not None:
        return False
    upsert_seen = False
    for row in rows:
        upsert_seen = upsert_seen or bool(row.cells) or row.marker is not None
        if row.deleted_us is not None and upsert_seen:
            return False
    return True


def _whole(state: PartitionState, rows: list[RowState]) -> Iterator[LogRow]:
    if state.static.cells:
        yield _upsert(LogOperation.UPDATE, state.static, state.static.cells)
    for row in rows:
        if row.deleted_us is not None:
            yield LogRow(LogOperation.ROW_DELETE, row.clustering)
        if row.marker is not None:
            yield _upsert(LogOperation.INSERT, row, row.cells, row.marker.ttl_s)
        elif row.cells:
            yield _upsert(LogOperation.UPDATE, row, row.cells)


def _bucket(state: PartitionState, rows: list[RowState], stamp_us: UnixMicros) -> Iterator[LogRow]:
    """The rows of one timestamp of a split mutation, in the order of spec section 2.5."""
    yield from _updates(state.static, stamp_us)
    for row in rows:
        if row.marker is not None and row.marker.timestamp_us == stamp_us:
            cells = {name: cell for name, cell in row.cells.items() if _goes_with(row.marker, cell)}
            yield _upsert(LogOperation.INSERT, row, cells, row.marker.ttl_s)
    for row in rows:
        yield from _updates(row, stamp_us)
    for row in rows:
        if row.deleted_us == stamp_us:
            yield LogRow(LogOperation.ROW_DELETE, row.clustering)
    if state.deleted_us == stamp_us:
        yield LogRow(LogOperation.PARTITION_DELETE)


def _goes_with(marker: Cell | None, cell: Cell) -> bool:
    return marker is not None and (cell.timestamp_us, cell.ttl_s) == (marker.timestamp_us, marker.ttl_s)


def _updates(row: RowState, stamp_us: UnixMicros) -> Iterator[LogRow]:
    """One row for each TTL among the cells that no INSERT carries; without TTL comes first."""
    by_ttl: dict[int, dict[str, Cell]] = {}
    for name, cell in row.cells.items():
        if cell.timestamp_us == stamp_us and not _goes_with(row.marker, cell):
            by_ttl.setdefault(cell.ttl_s, {})[name] = cell
    for ttl_s in sorted(by_ttl):
        yield _upsert(LogOperation.UPDATE, row, by_ttl[ttl_s], ttl_s)


def _upsert(operation: LogOperation, row: RowState, cells: Mapping[str, Cell], ttl_s: int | None = None) -> LogRow:
    if ttl_s is None:
        # An unsplit row has one TTL, and at least one cell where it has no marker.
        ttl_s = next(iter(cells.values())).ttl_s
    return LogRow(operation, row.clustering, {name: cell.value for name, cell in cells.items()}, ttl_s or None)
