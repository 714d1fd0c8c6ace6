"""Base writes as values: what one CQL request changes in one partition of one table. Pure.

Values are serialized cells throughout: the simulator neither needs nor keeps Python's idea of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.local.simulator.ordering import Key
from bridge.model.times import UnixMicros

Cells = Mapping[str, bytes | None]
"""Values by column name; None sets null (deletes the cell); a column that is absent is left alone."""

_NO_CELLS: Final[Cells] = {}


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT`: writes cells and, where a clustering key is given (or none exists), the row's marker.

    Attributes:
        clustering: the clustering key; () in a table that has none, and for an insert of static columns alone.
        cells: regular and static columns.
        ttl_s: `USING TTL`; 0 is none.
        timestamp_us: `USING TIMESTAMP` of this statement alone; None takes the mutation's.
    """

    clustering: Key
    cells: Cells = field(default_factory=dict)
    ttl_s: int = 0
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`UPDATE`, or a `DELETE` of single columns: writes cells and no marker. Attributes as for `Insert`."""

    clustering: Key
    cells: Cells
    ttl_s: int = 0
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class RowDelete:
    """`DELETE` with the full clustering key; in a table without one it is a partition's (spec section 2.2)."""

    clustering: Key
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """`DELETE` of a whole partition."""

    timestamp_us: UnixMicros | None = None


Operation = Insert | Update | RowDelete | PartitionDelete


@dataclass(frozen=True, slots=True)
class Mutation:
    """All that one CQL request changes in one partition: a statement, or those of a batch on that partition.

    Attributes:
        partition_key: cells of the partition key, by position.
        operations: the statements, in the order of the request (of equal timestamps the greater cell wins).
        timestamp_us: the request's timestamp; None takes the coordinator's clock.
    """

    partition_key: Key
    operations: tuple[Operation, ...]
    timestamp_us: UnixMicros | None = None

    def __post_init__(self) -> None:
        """Refuse a request without a statement."""
        if not self.operations:
            raise ValueError("a mutation has at least one operation")


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
