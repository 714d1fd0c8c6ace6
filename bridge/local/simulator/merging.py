"""A mutation merged as the server merges it before it is logged (spec sections 2.2, 2.4 and 9.6). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.local.simulator.mutations import Cells, Insert, Mutation, PartitionDelete, RowDelete, Update
from bridge.local.simulator.ordering import Key
from bridge.model.times import UnixMicros

_NO_CELLS: Final[Cells] = {}


@dataclass(frozen=True, slots=True)
class Cell:
    """One written cell with what decides between two of them.

    Attributes:
        value: serialized; None is a dead cell.
        timestamp_us: its write timestamp.
        ttl_s: 0 is none; dead cells have none.
    """

    value: bytes | None
    timestamp_us: UnixMicros
    ttl_s: int

    def beats(self, other: Cell) -> bool:
        """Whether this one survives when both are written (spec section 9, point 6)."""
        return self._rank() > other._rank()

    def _rank(self) -> tuple[int, bool, bool, int, bytes]:
        # At one timestamp: dead beats live, expiring beats lasting, later expiry wins, then the greater value.
        return (self.timestamp_us, self.value is None, self.ttl_s > 0, self.ttl_s, self.value or b"")


@dataclass(slots=True)
class RowState:
    """What a mutation does to one row, merged.

    Attributes:
        clustering: its key; () is the static row, or the only row of a table without a clustering key.
        marker: the row marker that an INSERT writes (its value is empty).
        cells: the surviving cells by column.
        deleted_us: timestamp of the row's tombstone.
    """

    clustering: Key
    marker: Cell | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    deleted_us: UnixMicros | None = None

    def write(self, cells: Cells, timestamp_us: UnixMicros, ttl_s: int) -> None:
        """Merge cells in; at each column the stronger one stays."""
        for name, value in cells.items():
            cell = Cell(value, timestamp_us, 0 if value is None else ttl_s)
            known = self.cells.get(name)
            if known is None or cell.beats(known):
                self.cells[name] = cell

    def mark(self, timestamp_us: UnixMicros, ttl_s: int) -> None:
        """Merge a row marker in."""
        marker = Cell(b"", timestamp_us, ttl_s)
        if self.marker is None or marker.beats(self.marker):
            self.marker = marker

    def delete(self, timestamp_us: UnixMicros) -> None:
        """Merge a row tombstone in; it stands beside the cells, it does not drop them."""
        self.deleted_us = timestamp_us if self.deleted_us is None else max(self.deleted_us, timestamp_us)


@dataclass(slots=True)
class PartitionState:
    """A mutation merged: what is logged is made from this, not from the statements."""

    static: RowState = field(default_factory=lambda: RowState(()))
    rows: dict[Key, RowState] = field(default_factory=dict)
    deleted_us: UnixMicros | None = None


def merge(
    mutation: Mutation, timestamp_us: UnixMicros, *, statics: frozenset[str], has_clustering: bool
) -> PartitionState:
    """Merge a mutation's statements as the server does before it logs them.

    Args:
        mutation: the request.
        timestamp_us: its timestamp, for statements that have none of their own.
        statics: names of the table's static columns.
        has_clustering: whether the table has a clustering key.

    Raises:
        ValueError: a regular column is written without a clustering key.
    """
    state = PartitionState()
    for operation in mutation.operations:
        at_us = timestamp_us if operation.timestamp_us is None else operation.timestamp_us
        match operation:
            case Insert() | Update():
                _merge_write(state, operation, at_us, statics, has_clustering)
            case RowDelete() if has_clustering:
                _row(state, operation.clustering).delete(at_us)
            case RowDelete() | PartitionDelete():
                state.deleted_us = at_us if state.deleted_us is None else max(state.deleted_us, at_us)
    return state


def _merge_write(
    state: PartitionState,
    operation: Insert | Update,
    at_us: UnixMicros,
    statics: frozenset[str],
    has_clustering: bool,
) -> None:
    static_cells = {name: operation.cells[name] for name in operation.cells.keys() & statics} if statics else _NO_CELLS
    state.static.write(static_cells, at_us, operation.ttl_s)
    if has_clustering and not operation.clustering:
        if len(static_cells) < len(operation.cells):
            raise ValueError("regular columns can't be written without a clustering key")
        return
    row = _row(state, operation.clustering)
    if isinstance(operation, Insert):
        row.mark(at_us, operation.ttl_s)
    if static_cells:
        regular = {name: value for name, value in operation.cells.items() if name not in statics}
        row.write(regular, at_us, operation.ttl_s)
    else:
        row.write(operation.cells, at_us, operation.ttl_s)


def _row(state: PartitionState, clustering: Key) -> RowState:
    return state.rows.setdefault(clustering, RowState(clustering))
