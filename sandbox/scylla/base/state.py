"""The base table in memory, with last-write-wins for each cell. Images, conditions and checks read it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from bridge.model.times import UnixMicros
from sandbox.scylla.base.merging import Columns, PartitionState, RowState, merge
from sandbox.scylla.base.mutations import Mutation, UnknownOperation
from sandbox.scylla.base.ranges import deleted_by
from sandbox.scylla.values.ordering import Key


@dataclass(frozen=True, slots=True)
class BaseRow:
    """A row as `SELECT` returns it.

    Attributes:
        cells: values of atomic columns; null columns are absent.
        collections: live elements of multi-cell columns in the order of their keys; empty columns are absent.
        has_marker: whether it has a live row marker, so that it stays when its last cell is set to null.
    """

    cells: Mapping[str, bytes] = field(default_factory=dict)
    collections: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    has_marker: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no cell is live."""
        return not (self.cells or self.collections)


class BaseState:
    """All partitions of one table, with all tombstones."""

    def __init__(self, columns: Columns) -> None:
        """Start empty."""
        self._columns = columns
        self._partitions: dict[Key, PartitionState] = {}

    @property
    def partitions(self) -> list[Key]:
        """Keys of all partitions that were written, also of empty ones."""
        return list(self._partitions)

    def write(self, mutation: Mutation, timestamp_us: UnixMicros, now_us: UnixMicros | None = None) -> None:
        """Apply a mutation; arguments and errors as of `merging.merge`."""
        if isinstance(mutation.operations[0], UnknownOperation):
            return
        self.apply(mutation.partition_key, merge(mutation, timestamp_us, self._columns, now_us))

    def apply(self, partition_key: Key, written: PartitionState) -> None:
        """Apply a merged mutation."""
        known = self._partitions.setdefault(partition_key, PartitionState())
        known.static.merge(written.static)
        for clustering, row in written.rows.items():
            known.row(clustering).merge(row)
        known.ranges.extend(written.ranges)
        if written.deleted_us is not None:
            known.delete(written.deleted_us)

    def alter(self, columns: Columns, *, dropped: Iterable[str] = ()) -> None:
        """Apply an ALTER TABLE. The values of dropped columns are lost, even if the columns are added again.

        The rename of a key column changes nothing, because keys are stored by position.
        """
        self._columns = columns
        for partition in self._partitions.values():
            for row in (partition.static, *partition.rows.values()):
                for name in dropped:
                    row.cells.pop(name, None)
                    row.collections.pop(name, None)

    def static(self, partition_key: Key, now_us: UnixMicros) -> BaseRow:
        """Return a partition's static row, which may be empty."""
        known = self._partitions.get(partition_key)
        return BaseRow() if known is None else self._read(known.static, known.deleted_us, now_us)

    def row(self, partition_key: Key, clustering: Key, now_us: UnixMicros) -> BaseRow | None:
        """Return a row; None without a live marker or cell. The clustering key is () in a table without one."""
        known = self._partitions.get(partition_key)
        if known is None or clustering not in known.rows:
            return None
        place = self._columns.order.position(clustering)
        deleted_us = deleted_by(known.deleted_us, known.ranges, place, self._columns.order)
        row = known.rows[clustering]
        if row.deleted_us is not None:
            deleted_us = row.deleted_us if deleted_us is None else max(deleted_us, row.deleted_us)
        found = self._read(row, deleted_us, now_us)
        hidden = row.cells.get(self._columns.hidden) if self._columns.hidden is not None else None
        exists = found.has_marker or (hidden is not None and hidden.is_live(now_us, deleted_us))
        return None if found.is_empty and not exists else found

    def rows(self, partition_key: Key, now_us: UnixMicros) -> Iterator[tuple[Key, BaseRow]]:
        """Yield a partition's rows with their clustering keys, in clustering order."""
        known = self._partitions.get(partition_key)
        if known is None:
            return
        for clustering in self._columns.order.sorted(known.rows, key=lambda key: key):
            row = self.row(partition_key, clustering, now_us)
            if row is not None:
                yield clustering, row

    def _read(self, row: RowState, deleted_us: UnixMicros | None, now_us: UnixMicros) -> BaseRow:
        cells = {
            name: cell.value
            for name, cell in row.cells.items()
            if cell.value is not None and name != self._columns.hidden and cell.is_live(now_us, deleted_us)
        }
        collections = {}
        for name, collection in row.collections.items():
            live = {
                key: cell.value
                for key, cell in collection.elements.items()
                if cell.value is not None and cell.is_live(now_us, deleted_us)
            }
            if live:
                collections[name] = self._columns.multi_cell[name].sorted(live)
        return BaseRow(cells, collections, row.marker is not None and row.marker.is_live(now_us, deleted_us))
