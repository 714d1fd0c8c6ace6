"""Merges the statements of a mutation as the server does before logging it (spec sections 2.2, 2.4, 9.6). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import (
    CollectionWrite,
    ColumnWrite,
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
from sandbox.scylla.base.ranges import RangeState, normalized
from sandbox.scylla.values.multi_cell import MultiCell
from sandbox.scylla.values.ordering import ClusteringOrder, Key

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Cell:
    """One written cell, with the fields that decide which of two cells wins.

    Attributes:
        value: serialized; None for a dead cell.
        timestamp_us: its write timestamp.
        ttl_s: 0 for none; dead cells have none.
        expires_us: when its TTL ends; 0 for never.
    """

    value: bytes | None
    timestamp_us: UnixMicros
    ttl_s: int = 0
    expires_us: int = 0

    def beats(self, other: Cell) -> bool:
        """Return whether this cell wins over another one if both are written (spec section 9, point 6)."""
        return self._rank() > other._rank()

    def is_live(self, now_us: int, deleted_us: int | None) -> bool:
        """Return whether a reader sees the cell at a time, if a tombstone of `deleted_us` covers it."""
        return (
            self.value is not None
            and not 0 < self.expires_us <= now_us
            and (deleted_us is None or self.timestamp_us > deleted_us)
        )

    def _rank(self) -> tuple[int, bool, bool, int, int, bytes]:
        # At one timestamp: dead beats live, expiring beats lasting, later expiry wins, then the smaller TTL, then the
        # greater value.
        dead = self.value is None
        return (self.timestamp_us, dead, self.ttl_s > 0, self.expires_us, -self.ttl_s, self.value or b"")


@dataclass(slots=True)
class CollectionState:
    """The merged writes of a multi-cell column.

    Attributes:
        deleted_us: the collection's tombstone, as it is stored.
        elements: the surviving cells by element key.
    """

    deleted_us: UnixMicros | None = None
    elements: dict[bytes, Cell] = field(default_factory=dict)

    @property
    def logged_us(self) -> UnixMicros | None:
        """The tombstone's timestamp in the log: one microsecond later than the stored one (spec section 2.4)."""
        return None if self.deleted_us is None else UnixMicros(self.deleted_us + 1)

    def clear(self, deleted_us: UnixMicros) -> None:
        """Merge a tombstone, and drop the elements that it covers."""
        self.deleted_us = deleted_us if self.deleted_us is None else max(self.deleted_us, deleted_us)
        self.elements = {key: cell for key, cell in self.elements.items() if cell.timestamp_us > self.deleted_us}

    def put(self, key: bytes, cell: Cell) -> None:
        """Merge an element."""
        known = self.elements.get(key)
        if (self.deleted_us is None or cell.timestamp_us > self.deleted_us) and (known is None or cell.beats(known)):
            self.elements[key] = cell

    def merge(self, other: CollectionState) -> None:
        """Merge another write of the same column."""
        if other.deleted_us is not None:
            self.clear(other.deleted_us)
        for key, cell in other.elements.items():
            self.put(key, cell)


@dataclass(slots=True)
class RowState:
    """The merged writes of a mutation to one row.

    Attributes:
        clustering: its key; () for the static row, and for the only row of a table without a clustering key.
        marker: the row marker that an INSERT writes (its value is empty).
        cells: the surviving cells of atomic columns.
        collections: the merged writes of multi-cell columns.
        deleted_us: timestamp of the row's tombstone.
        is_expiry: whether ScyllaDB itself wrote that tombstone.
    """

    clustering: Key
    marker: Cell | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    collections: dict[str, CollectionState] = field(default_factory=dict)
    deleted_us: UnixMicros | None = None
    is_expiry: bool = False

    @property
    def is_written(self) -> bool:
        """Whether it has a marker, cells or collections."""
        return bool(self.cells or self.collections) or self.marker is not None

    def put(self, name: str, cell: Cell) -> None:
        """Merge a cell; the one that wins stays."""
        known = self.cells.get(name)
        if known is None or cell.beats(known):
            self.cells[name] = cell

    def collection(self, name: str) -> CollectionState:
        """Return the merged writes of a multi-cell column, for further writes."""
        return self.collections.setdefault(name, CollectionState())

    def mark(self, marker: Cell) -> None:
        """Merge a row marker."""
        if self.marker is None or marker.beats(self.marker):
            self.marker = marker

    def delete(self, timestamp_us: UnixMicros, *, is_expiry: bool = False) -> None:
        """Merge a row tombstone. It does not remove the cells."""
        if self.deleted_us is None or timestamp_us >= self.deleted_us:
            self.deleted_us, self.is_expiry = timestamp_us, is_expiry

    def cells_written(self) -> Iterator[Cell]:
        """Yield every cell, every element of a collection, and the marker."""
        yield from self.cells.values()
        for collection in self.collections.values():
            yield from collection.elements.values()
        if self.marker is not None:
            yield self.marker

    def merge(self, other: RowState) -> None:
        """Merge another write of the same row."""
        for name, cell in other.cells.items():
            self.put(name, cell)
        for name, collection in other.collections.items():
            self.collection(name).merge(collection)
        if other.marker is not None:
            self.mark(other.marker)
        if other.deleted_us is not None:
            self.delete(other.deleted_us, is_expiry=other.is_expiry)


@dataclass(slots=True)
class PartitionState:
    """A merged mutation. The log rows are made from it, not from the statements.

    Attributes:
        static: the static row.
        rows: the others by clustering key.
        ranges: range tombstones without overlaps, in clustering order.
        deleted_us: the partition's tombstone.
        is_expiry: whether ScyllaDB itself wrote that tombstone.
    """

    static: RowState = field(default_factory=lambda: RowState(()))
    rows: dict[Key, RowState] = field(default_factory=dict)
    ranges: list[RangeState] = field(default_factory=list)
    deleted_us: UnixMicros | None = None
    is_expiry: bool = False

    def row(self, clustering: Key) -> RowState:
        """Return a row, for further writes."""
        return self.rows.setdefault(clustering, RowState(clustering))

    def delete(self, timestamp_us: UnixMicros, *, is_expiry: bool = False) -> None:
        """Merge a partition tombstone."""
        if self.deleted_us is None or timestamp_us >= self.deleted_us:
            self.deleted_us, self.is_expiry = timestamp_us, is_expiry


@dataclass(frozen=True, slots=True)
class Columns:
    """The properties of a table that decide how its writes are merged.

    Attributes:
        statics: names of its static columns.
        multi_cell: its columns of a non-frozen list, set, map or UDT.
        order: its clustering order, with one direction for each clustering column.
        compact: whether it has COMPACT STORAGE, so no row markers.
        hidden: the column that holds an empty cell instead of a marker, if such a table has no regular columns.
    """

    statics: frozenset[str]
    multi_cell: Mapping[str, MultiCell]
    order: ClusteringOrder
    compact: bool = False
    hidden: str | None = None

    @property
    def clustering_count(self) -> int:
        """Number of clustering columns."""
        return len(self.order.descending)


def merge(
    mutation: Mutation, timestamp_us: UnixMicros, columns: Columns, now_us: UnixMicros | None = None
) -> PartitionState:
    """Merge a mutation's statements as the server does before it logs them.

    Args:
        mutation: the request.
        timestamp_us: its timestamp, for statements without one.
        columns: those of the table.
        now_us: the coordinator's clock, from which TTLs count; by default `timestamp_us`.

    Raises:
        ValueError: a regular column is written without a clustering key, a multi-cell column is written whole, or an
            operation is unknown, so that it cannot be merged.
    """
    state = PartitionState()
    clock_us = timestamp_us if now_us is None else now_us
    for operation in mutation.operations:
        at_us = timestamp_us if operation.timestamp_us is None else operation.timestamp_us
        match operation:
            case Insert() | Update():
                _merge_write(state, operation, at_us, columns, clock_us)
            case RowDelete(clustering) | RowExpiry(clustering) if columns.clustering_count:
                state.row(clustering).delete(at_us, is_expiry=isinstance(operation, RowExpiry))
            case RowDelete() | PartitionDelete() | RowExpiry() | PartitionExpiry():
                state.delete(at_us, is_expiry=isinstance(operation, RowExpiry | PartitionExpiry))
            case RangeDelete():
                _merge_range(state, operation, at_us, columns)
            case UnknownOperation():
                raise ValueError(f"operation {operation.number} is unknown and can't be merged")
    state.ranges = normalized(state.ranges, columns.order)
    return state


def _merge_write(
    state: PartitionState, operation: Insert | Update, at_us: UnixMicros, columns: Columns, clock_us: int
) -> None:
    cells, statics = operation.cells, columns.statics
    static_names = cells.keys() & statics if statics else ()
    expires_us = clock_us + operation.ttl_s * _SECOND_US if operation.ttl_s else 0
    stamp = (at_us, operation.ttl_s, expires_us)
    if static_names:
        _merge_cells(state.static, {name: cells[name] for name in static_names}, stamp, columns)
    if columns.clustering_count and not operation.clustering:
        if len(static_names) < len(cells):
            raise ValueError("regular columns can't be written without a clustering key")
        return
    regular = {name: value for name, value in cells.items() if name not in statics} if static_names else cells
    is_insert = isinstance(operation, Insert)
    if not is_insert and not regular:
        return
    row = state.row(operation.clustering)
    if is_insert and not columns.compact:
        row.mark(Cell(b"", *stamp))
    elif is_insert and columns.hidden is not None:
        row.put(columns.hidden, Cell(b"", *stamp))
    _merge_cells(row, regular, stamp, columns)


def _merge_cells(
    row: RowState, cells: Mapping[str, ColumnWrite], stamp: tuple[UnixMicros, int, int], columns: Columns
) -> None:
    for name, value in cells.items():
        if name in columns.multi_cell:
            _merge_collection(row.collection(name), name, value, stamp)
        elif isinstance(value, CollectionWrite):
            raise ValueError(f"column {name!r} is atomic and can't be written element by element")
        else:
            row.put(name, Cell(None, stamp[0]) if value is None else Cell(value, *stamp))
    # A write that changes no element stores nothing.
    for name in [name for name in cells if name in row.collections]:
        collection = row.collections[name]
        if collection.deleted_us is None and not collection.elements:
            del row.collections[name]


def _merge_collection(
    state: CollectionState, name: str, value: ColumnWrite, stamp: tuple[UnixMicros, int, int]
) -> None:
    if isinstance(value, bytes):
        raise ValueError(f"column {name!r} is stored element by element and can't be written whole")  # noqa: TRY004  # the table's type is at fault
    write = CollectionWrite("overwrite") if value is None else value
    at_us = stamp[0]
    if write.clear != "no":
        state.clear(UnixMicros(at_us - 1) if write.clear == "overwrite" else at_us)
    for key, element in write.put:
        state.put(key, Cell(element, *stamp))
    for key in write.remove:
        state.put(key, Cell(None, at_us))


def _merge_range(state: PartitionState, operation: RangeDelete, at_us: UnixMicros, columns: Columns) -> None:
    start, end = operation.start, operation.end
    if start is not None and start == end and start.inclusive and len(start.prefix) == columns.clustering_count:
        state.row(start.prefix).delete(at_us)
    else:
        state.ranges.append(RangeState(start, end, at_us))
