"""What the readers of all kinds of columns share: their interface, the cells of a column, and common methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from schemas.avro.names import avro_name
from schemas.avro.types import change_name, full_name
from schemas.cql.table import Column
from schemas.cql.types import NativeType
from schemas.errors import CellError
from schemas.log.cell_readers import LogCell, LogFormat, LogRow
from schemas.log.columns import deleted_flag, value_type

Branch: TypeAlias = tuple[str, object]
"""Name of a union's branch, and the value of that branch."""


class ColumnReader(Protocol):
    """Reads one static or regular column of log rows. Every method may raise a CellError that names the column."""

    @property
    def column(self) -> str:
        """The column's CQL name."""

    @property
    def field(self) -> str:
        """The column's Avro name."""

    def is_touched_by(self, row: LogRow) -> bool:
        """Return whether a row has a value, a deletion or deleted elements for the column."""

    def writes(self, row: LogRow) -> bool:
        """Return whether a row gives a value to the column, or to one of its elements or fields."""

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """Return what a change did to the column; None if it did nothing.

        Args:
            row: the change's delta.
            empty: receives the column's name if its value is CQL's "empty".
        """

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether an image shows the column's value, and the value.

        Args:
            row: the pre- or post-image.
            empty: receives the column's name if its value is CQL's "empty".
        """

    def value_after(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether the deltas alone determine the column's value after them, and the value.

        Args:
            rows: the deltas of one row that touch the column, in order.
            empty: receives the column's name if its value is CQL's "empty".
        """

    def applied_to(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """Return whether deltas and the value before them determine the column's value after them, and the value.

        Args:
            rows: the deltas of one row that touch the column, in order.
            earlier: the column's value before them.
        """


@dataclass(frozen=True, slots=True)
class ColumnCells:
    """The cells that a column of any kind has in the log.

    Attributes:
        field: the column's Avro name.
        value: the reader of the column itself.
        deleted: the reader of its "deleted" flag.
        plain: union branch of the column's value in an image.
        change: union branch of what a change does to the column.
    """

    field: str
    value: LogCell
    deleted: LogCell
    plain: str
    change: str

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> ColumnCells:
        """Make the readers of a column's cells."""
        return cls(
            field=avro_name(column.name),
            value=log.cell(column.name, value_type(column.type)),
            deleted=log.cell(deleted_flag(column.name), NativeType("boolean")),
            plain=log.branch(column.type),
            change=full_name(log.namespace, change_name(column.type)),
        )

    def is_deleted(self, row: LogRow) -> bool:
        """Return whether the "deleted" flag is true. The server writes true or null, never false."""
        raw = row[self.deleted.index]
        return raw is not None and bool(self.deleted.value(raw))

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, object]:
        """Return whether an image shows the value, and the value without its union branch."""
        raw, is_deleted = row[self.value.index], self.is_deleted(row)
        if raw is None:
            return is_deleted, None
        if is_deleted:
            raise self.contradiction(raw)
        if self.value.is_empty(raw):
            empty.append(self.value.column)
            return True, None
        return True, self.value.value(raw)

    def contradiction(self, raw: bytes) -> CellError:
        """Return the error for a column that has a value and a "deleted" flag."""
        return self.value.error(f"has a value although {self.deleted.column!r} is true", raw)


@dataclass(frozen=True, slots=True)
class ReaderBase:
    """The methods that all readers share."""

    cells: ColumnCells

    @property
    def column(self) -> str:
        """The column's CQL name."""
        return self.cells.value.column

    @property
    def field(self) -> str:
        """The column's Avro name."""
        return self.cells.field

    def is_touched_by(self, row: LogRow) -> bool:
        """Return whether a row says anything about the column."""
        return row[self.cells.value.index] is not None or self.cells.is_deleted(row)

    def writes(self, row: LogRow) -> bool:
        """Return whether a row gives a value to the column."""
        return row[self.cells.value.index] is not None

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether an image shows the column's value, and the value."""
        known, value = self.cells.image(row, empty)
        return known, None if value is None else (self.cells.plain, value)

    def applied_to(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """Return that the value is not known: for a collection one would need the order of its elements' type."""
        del rows, earlier
        return False, None


@dataclass(frozen=True, slots=True)
class ManyCellsReader(ReaderBase):
    """A column whose log row also has a set of deleted elements.

    Attributes:
        removed: the reader of that set.
    """

    removed: LogCell

    def is_touched_by(self, row: LogRow) -> bool:
        """Return whether a row says anything about the column."""
        cells = self.cells
        return row[cells.value.index] is not None or row[self.removed.index] is not None or cells.is_deleted(row)
