"""The columns of one CDC log, resolved for encoding: where each cell is and how it is read.

Made once for a table; ``schemas.envelope`` walks them for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from schemas.avro_names import avro_name
from schemas.avro_types import cell_name, union_branch
from schemas.cells import Decoder, decoder
from schemas.cql_types import CqlType, NativeType
from schemas.errors import CellError
from schemas.log_columns import deleted_flag
from schemas.table_schema import Column

LogRow: TypeAlias = Sequence[bytes | None]
"""Raw cells of one log row in the order of the codec's `log_columns`; None is CQL null."""

_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class LogCell:
    """One column of the log, resolved: where its cell is and how it is read."""

    column: str
    cql_type: str
    index: int
    decode: Decoder
    empty_is_value: bool

    def value(self, raw: bytes) -> object:
        """Return the decoded cell; CellError names the column."""
        try:
            return self.decode(raw)
        except CellError as error:
            raise error.located(self.column) from error

    def required(self, row: LogRow) -> object:
        """Return the row's cell, which may be neither null nor of the wrong form."""
        raw = row[self.index]
        if raw is None:
            raise CellError(self.cql_type, "is null where the log must have a value", raw, column=self.column)
        return self.value(raw)

    def sixteen_bytes(self, row: LogRow) -> bytes:
        """Return the row's cell as it is, which must be 16 bytes."""
        raw = row[self.index]
        if raw is None or len(raw) != _ID_BYTES:
            raise CellError(self.cql_type, f"must be {_ID_BYTES} bytes long", raw, column=self.column)
        return raw


@dataclass(frozen=True, slots=True)
class KeyCell:
    """A primary key column; `branch` selects its type in the union of a clustering column."""

    field: str
    cell: LogCell
    branch: str


@dataclass(frozen=True, slots=True)
class ValueCell:
    """A static or regular column with its deletion flag and the ready-made "set to null"."""

    field: str
    cell: LogCell
    deleted: LogCell
    record: str
    branch: str
    set_to_null: tuple[str, dict[str, object]]


def log_cell(column: str, cql_type: CqlType, positions: dict[str, int]) -> LogCell:
    """Resolve one column of the log."""
    return LogCell(
        column=column,
        cql_type=str(cql_type),
        index=positions[column],
        decode=decoder(cql_type),
        empty_is_value=isinstance(cql_type, NativeType) and cql_type.empty_is_value,
    )


def key_cell(column: Column, positions: dict[str, int], space: str) -> KeyCell:
    """Resolve a primary key column; `space` is the Avro namespace."""
    return KeyCell(
        field=avro_name(column.name),
        cell=log_cell(column.name, column.type, positions),
        branch=union_branch(column.type, space),
    )


def value_cell(column: Column, positions: dict[str, int], space: str) -> ValueCell:
    """Resolve a static or regular column; `space` is the Avro namespace."""
    record = f"{space}.{cell_name(column.type)}"
    return ValueCell(
        field=avro_name(column.name),
        cell=log_cell(column.name, column.type, positions),
        deleted=log_cell(deleted_flag(column.name), NativeType("boolean"), positions),
        record=record,
        branch=union_branch(column.type, space),
        set_to_null=(record, {"value": None}),
    )
