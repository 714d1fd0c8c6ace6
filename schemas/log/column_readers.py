"""What a log row says of one static or regular column: what a change did to it, and what an image shows.

Three kinds of column (spec sections 1.2 and 2.3): those of one cell, collections, and non-frozen
user-defined types. The log has a value and a "deleted" flag for each of them, and for the last two
the set of the elements that were deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast
from uuid import UUID

from schemas.avro.names import avro_name
from schemas.avro.types import cell_name, change_name, full_name
from schemas.cql.table import Column
from schemas.cql.types import ListType, NativeType, UdtType, is_multi_cell
from schemas.errors import CellError
from schemas.log.cell_readers import LogCell, LogFormat, LogRow
from schemas.log.cells import decoder, field_cells
from schemas.log.columns import deleted_elements, deleted_elements_type, deleted_flag, value_type
from schemas.log.scalar_cells import Decoder

Branch: TypeAlias = tuple[str, object]
"""A value with the name of its branch in a union."""


class ColumnReader(Protocol):
    """Reads one static or regular column of a log row. Every method may raise CellError, naming the column."""

    @property
    def column(self) -> str:
        """The column's CQL name."""

    @property
    def field(self) -> str:
        """The column's Avro name."""

    def touched(self, row: LogRow) -> bool:
        """Whether the row says anything of the column."""

    def writes(self, row: LogRow) -> bool:
        """Whether the row gives the column, or an element or a field of it, a value."""

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """Return what the change did; None if nothing. A column whose value is CQL's "empty" is added to `empty`."""

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether an image says what the value is, and the value; `empty` as in `change`."""

    def outcome(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether deltas of one row that touch the column say what its value is then, and the value."""

    def laid_over(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """Return the same where they do not say it all, with the value before them, which is known."""


def column_reader(column: Column, log: LogFormat) -> ColumnReader:
    """Resolve a static or regular column."""
    if isinstance(column.type, UdtType):
        return UdtColumn.of(column, column.type, log)
    return CollectionColumn.of(column, log) if is_multi_cell(column.type) else CellColumn.of(column, log)


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of one column that every kind has.

    Attributes:
        plain: union branch of the column's value in an image.
        change: union branch of what a change does to the column.
    """

    field: str
    value: LogCell
    deleted: LogCell
    plain: str
    change: str

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> _Cells:
        return cls(
            field=avro_name(column.name),
            value=log.cell(column.name, value_type(column.type)),
            deleted=log.cell(deleted_flag(column.name), NativeType("boolean")),
            plain=log.branch(column.type),
            change=full_name(log.namespace, change_name(column.type)),
        )

    def is_deleted(self, row: LogRow) -> bool:
        """Whether the flag is set; the server never writes false."""
        raw = row[self.deleted.index]
        return raw is not None and bool(self.deleted.value(raw))

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, object]:
        """Return whether an image says what the value is, and the value."""
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
        """Return the error for a value that is said to be deleted."""
        return self.value.error(f"has a value although {self.deleted.column!r} is true", raw)


@dataclass(frozen=True, slots=True)
class _Column:
    """What the readers have in common."""

    cells: _Cells

    @property
    def column(self) -> str:
        """The column's CQL name."""
        return self.cells.value.column

    @property
    def field(self) -> str:
        """The column's Avro name."""
        return self.cells.field

    def touched(self, row: LogRow) -> bool:
        """See `ColumnReader`."""
        return row[self.cells.value.index] is not None or self.cells.is_deleted(row)

    def writes(self, row: LogRow) -> bool:
        """See `ColumnReader`."""
        return row[self.cells.value.index] is not None

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """See `ColumnReader`."""
        known, value = self.cells.image(row, empty)
        return known, None if value is None else (self.cells.plain, value)

    def laid_over(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: not known; of a collection one would need the order of its elements' type."""
        del rows, earlier
        return False, None


@dataclass(frozen=True, slots=True)
class _ManyCells(_Column):
    """A column that has the cells of its deleted elements as well."""

    removed: LogCell

    def touched(self, row: LogRow) -> bool:
        """See `ColumnReader`."""
        cells = self.cells
        return row[cells.value.index] is not None or row[self.removed.index] is not None or cells.is_deleted(row)


@dataclass(frozen=True, slots=True)
class CellColumn(_Column):
    """A column of one cell: of a scalar or a frozen type, a tuple or a vector."""

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> CellColumn:
        """Resolve the column."""
        return cls(_Cells.of(column, log))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """See `ColumnReader`: set to null, or to a value."""
        cells = self.cells
        raw, is_deleted = row[cells.value.index], cells.is_deleted(row)
        if raw is None:
            return (cells.change, {"value": None}) if is_deleted else None
        if is_deleted:
            raise cells.contradiction(raw)
        if cells.value.is_empty(raw):
            empty.append(cells.value.column)
            return cells.change, {"value": None}
        return cells.change, {"value": (cells.plain, cells.value.value(raw))}

    def outcome(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: it is the last one's value."""
        return self.image(rows[-1], empty)


@dataclass(frozen=True, slots=True)
class CollectionColumn(_ManyCells):
    """A non-frozen list, set or map."""

    is_list: bool

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> CollectionColumn:
        """Resolve the column."""
        removed = log.cell(deleted_elements(column.name), deleted_elements_type(column.type))
        return cls(_Cells.of(column, log), removed, isinstance(column.type, ListType))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """See `ColumnReader`: whether it was cleared, and which elements were added and removed."""
        del empty  # A collection with elements of its own is never "empty" in that sense.
        if not self.touched(row):
            return None
        cells = self.cells
        added, removed = row[cells.value.index], row[self.removed.index]
        return cells.change, {
            "cleared": cells.is_deleted(row),
            "added": [] if added is None else cells.value.value(added),
            "removed": [] if removed is None else self.removed.value(removed),
        }

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: a list is shown without its cells' keys."""
        known, value = self.cells.image(row, empty)
        if value is None:
            return known, None
        assert isinstance(value, list)
        return known, (self.cells.plain, [one["value"] for one in value] if self.is_list else value)

    def outcome(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: known where the first one clears it and nothing is removed afterwards."""
        cells = self.cells
        if not cells.is_deleted(rows[0]) or any(row[self.removed.index] is not None for row in rows):
            return False, None
        added: list[Any] = []
        for row in rows:
            raw = row[cells.value.index]
            if raw is not None:
                found = cells.value.value(raw)
                assert isinstance(found, list)
                added += found
        if self.is_list:
            added = [one["value"] for one in sorted(added, key=_list_order)]
        return True, (cells.plain, added) if added else None


def _list_order(element: Mapping[str, Any]) -> tuple[int, bytes]:
    """Where a list's element stands: by its key's time, then by the other bytes, which the server takes as signed."""
    key = UUID(str(element["key"]))
    return key.time, bytes(byte ^ 0x80 for byte in key.bytes[8:])


@dataclass(frozen=True, slots=True)
class _UdtField:
    """A field: its CQL and Avro names, the union branches of its cell record and its value, and how it is read."""

    name: str
    field: str
    change: str
    plain: str
    decode: Decoder


@dataclass(frozen=True, slots=True)
class UdtColumn(_ManyCells):
    """A non-frozen user-defined type."""

    fields: tuple[_UdtField, ...]

    @classmethod
    def of(cls, column: Column, cql_type: UdtType, log: LogFormat) -> UdtColumn:
        """Resolve the column."""
        cells = _Cells.of(column, log)
        removed = log.cell(deleted_elements(column.name), deleted_elements_type(cql_type))
        fields = tuple(
            _UdtField(
                name=name,
                field=avro_name(name),
                change=full_name(log.namespace, cell_name(one)),
                plain=log.branch(one),
                decode=decoder(one, log.output, log.namespace),
            )
            for name, one in cql_type.fields
        )
        return cls(cells, removed, fields)

    def writes(self, row: LogRow) -> bool:
        """See `ColumnReader`: the value is there even where the row only removes fields."""
        return any(one is not None for one in self._written(row[self.cells.value.index]))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """See `ColumnReader`: a null field in the value says nothing, only the deleted elements do (spec 2.3)."""
        del empty  # The value is never "empty": it has a length for each field.
        if not self.touched(row):
            return None
        cells = self.cells
        raw = row[cells.value.index]
        written = self._written(raw)
        removed = self._removed(row)
        fields: dict[str, object] = {}
        for at, (one, value) in enumerate(zip(self.fields, written, strict=True)):
            if value is None:
                fields[one.field] = (one.change, {"value": None}) if at in removed else None
            elif at in removed:
                raise cells.value.error(f"field {one.name!r} has a value although {self.removed.column!r} has it", raw)
            else:
                fields[one.field] = one.change, {"value": (one.plain, self._value(one, value))}
        return cells.change, {"cleared": cells.is_deleted(row), "fields": fields}

    def _written(self, raw: bytes | None) -> list[bytes | None]:
        """Return the cell of each field."""
        try:
            return field_cells(self.cells.value.cql_type, raw or b"", len(self.fields))
        except CellError as error:
            raise error.located(self.column, self.cells.value.cql_type) from error

    def _value(self, field: _UdtField, raw: bytes) -> object:
        try:
            return field.decode(raw)
        except CellError as error:
            raise error.located(self.column, self.cells.value.cql_type) from error

    def _removed(self, row: LogRow) -> frozenset[int]:
        """Return the indices of the fields that were removed."""
        raw = row[self.removed.index]
        if raw is None:
            return frozenset()
        indices = self.removed.value(raw)
        assert isinstance(indices, list)
        for index in indices:
            if not 0 <= index < len(self.fields):
                raise self.removed.error(f"there is no field {index}; the type has {len(self.fields)}", raw)
        return frozenset(indices)

    def outcome(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: known where the first one clears it."""
        del empty  # The value is never "empty": it has a length for each field.
        return self.laid_over(rows, None) if self.cells.is_deleted(rows[0]) else (False, None)

    def laid_over(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """See `ColumnReader`: the fields that they leave alone are as they were."""
        fields: dict[str, object] = {} if earlier is None else dict(cast("dict[str, object]", earlier[1]))
        for row in rows:
            done = self.change(row, [])
            assert done is not None
            what = cast("dict[str, Any]", done[1])
            if what["cleared"]:
                fields.clear()
            changed: dict[str, Branch | None] = what["fields"]
            for name, change in changed.items():
                if change is not None:
                    fields[name] = cast("dict[str, object]", change[1])["value"]
        return True, (self.cells.plain, fields) if any(one is not None for one in fields.values()) else None
