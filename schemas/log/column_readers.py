"""Readers for static and regular columns of a log row: what a change did to a column, and its value in an image.

There are three kinds of columns (spec sections 1.2 and 2.3): columns of one cell, collections, and non-frozen
user-defined types. The log has a value and a "deleted" flag for each of them. For the last two kinds it also has the
set of the deleted elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

from schemas.avro.names import avro_name
from schemas.avro.types import cell_name, full_name
from schemas.cql.table import Column
from schemas.cql.types import ListType, UdtType, is_multi_cell
from schemas.errors import CellError
from schemas.log.cell_readers import LogFormat, LogRow
from schemas.log.cells import decoder, field_cells
from schemas.log.column_cells import Branch, ColumnCells, ColumnReader, ManyCellsReader, ReaderBase
from schemas.log.columns import deleted_elements, deleted_elements_type
from schemas.log.scalar_cells import Decoder
from schemas.log.timeuuid import FLIPPED_SIGNS


def column_reader(column: Column, log: LogFormat) -> ColumnReader:
    """Return the reader of a static or regular column."""
    if isinstance(column.type, UdtType):
        return UdtColumn.of(column, column.type, log)
    return CollectionColumn.of(column, log) if is_multi_cell(column.type) else CellColumn.of(column, log)


@dataclass(frozen=True, slots=True)
class CellColumn(ReaderBase):
    """Reader of a column of one cell: a scalar, a frozen type, a tuple or a vector."""

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> CellColumn:
        """Make the reader of a column."""
        return cls(ColumnCells.of(column, log))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """Return whether the change set the column to null or to a value; None if it did nothing."""
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

    def value_after(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """Return the value of the last delta."""
        return self.image(rows[-1], empty)


@dataclass(frozen=True, slots=True)
class CollectionColumn(ManyCellsReader):
    """Reader of a non-frozen list, set or map."""

    is_list: bool

    @classmethod
    def of(cls, column: Column, log: LogFormat) -> CollectionColumn:
        """Make the reader of a column."""
        removed = log.cell(deleted_elements(column.name), deleted_elements_type(column.type))
        return cls(ColumnCells.of(column, log), removed, isinstance(column.type, ListType))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """Return whether the change cleared the collection, and which elements it added and removed."""
        del empty  # A non-frozen collection has no "empty" value.
        if not self.is_touched_by(row):
            return None
        cells = self.cells
        added, removed = row[cells.value.index], row[self.removed.index]
        return cells.change, {
            "cleared": cells.is_deleted(row),
            "added": [] if added is None else cells.value.value(added),
            "removed": [] if removed is None else self.removed.value(removed),
        }

    def image(self, row: LogRow, empty: list[str]) -> tuple[bool, Branch | None]:
        """Return whether an image shows the value, and the value; that of a list is without its cells' keys."""
        known, value = self.cells.image(row, empty)
        if value is None:
            return known, None
        assert isinstance(value, list)
        return known, (self.cells.plain, [one["value"] for one in value] if self.is_list else value)

    def value_after(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """Return the elements that the deltas added, if the first delta clears the column and none removes elements."""
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
    """Return the sort key of a list's element: its cell key's time, then the key's last 8 bytes as signed bytes."""
    key = UUID(str(element["key"]))
    return key.time, key.bytes[8:].translate(FLIPPED_SIGNS)


@dataclass(frozen=True, slots=True)
class _UdtField:
    """One field of a user-defined type.

    Attributes:
        name: its CQL name.
        field: its Avro name.
        change: union branch of what a change does to the field.
        plain: union branch of the field's value.
        decode: decodes the field's cell.
    """

    name: str
    field: str
    change: str
    plain: str
    decode: Decoder


@dataclass(frozen=True, slots=True)
class UdtColumn(ManyCellsReader):
    """Reader of a non-frozen user-defined type."""

    fields: tuple[_UdtField, ...]

    @classmethod
    def of(cls, column: Column, cql_type: UdtType, log: LogFormat) -> UdtColumn:
        """Make the reader of a column."""
        cells = ColumnCells.of(column, log)
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
        """Return whether a row gives a value to a field; the log has a value even where a row only removes fields."""
        return any(one is not None for one in self._written(row[self.cells.value.index]))

    def change(self, row: LogRow, empty: list[str]) -> Branch | None:
        """Return whether the change cleared the value, and what it did to each field.

        A null field in the log's value means nothing; only the deleted elements show a removal (spec section 2.3).
        """
        del empty  # The value has a length for each field, so it is never "empty".
        if not self.is_touched_by(row):
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
        """Return the cell of each field; None where the delta gives it no value."""
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
        if not all(0 <= index < len(self.fields) for index in indices):
            raise self.removed.error(f"names a field that does not exist; the type has {len(self.fields)}", raw)
        return frozenset(indices)

    def value_after(self, rows: Sequence[LogRow], empty: list[str]) -> tuple[bool, Branch | None]:
        """Return the value that the deltas give, if the first delta clears the column."""
        del empty  # The value has a length for each field, so it is never "empty".
        return self.applied_to(rows, None) if self.cells.is_deleted(rows[0]) else (False, None)

    def applied_to(self, rows: Sequence[LogRow], earlier: Branch | None) -> tuple[bool, Branch | None]:
        """Return the earlier value with the fields replaced that the deltas touch; it is always known."""
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
