"""The columns of one CDC log, resolved for encoding: where each cell is and how it is read.

Made once for a table; ``schemas.log.change_records`` walks them for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from schemas.avro.names import avro_name
from schemas.avro.types import union_branch
from schemas.cql.table import Column
from schemas.cql.types import CqlType
from schemas.errors import CellError
from schemas.log.cells import decoder, empty_is_value
from schemas.log.scalar_cells import Decoder
from schemas.options import OutputOptions

LogRow: TypeAlias = Sequence[bytes | None]
"""Raw cells of one log row in the order of the codec's `log_columns`; None is CQL null."""

_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class LogFormat:
    """What cells of one log have in common.

    Attributes:
        positions: where the log's columns are in a row.
        namespace: the Avro namespace of the table.
        output: the forms of the values.
    """

    positions: dict[str, int]
    namespace: str
    output: OutputOptions

    def cell(self, column: str, cql_type: CqlType) -> LogCell:
        """Resolve one column of the log."""
        return LogCell(
            column=column,
            cql_type=str(cql_type),
            index=self.positions[column],
            decode=decoder(cql_type, self.output, self.namespace),
            empty_is_value=empty_is_value(cql_type),
        )

    def branch(self, cql_type: CqlType) -> str:
        """Return the name by which a union selects the type."""
        return union_branch(cql_type, self.namespace, self.output)

    def key(self, column: Column) -> KeyCell:
        """Resolve a primary key column."""
        return KeyCell(
            field=avro_name(column.name),
            cell=self.cell(column.name, column.type),
            branch=self.branch(column.type),
        )


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
            raise error.located(self.column, self.cql_type) from error

    def required(self, row: LogRow) -> object:
        """Return the row's cell, which may be neither null nor of the wrong form."""
        raw = row[self.index]
        if raw is None:
            raise self.error("is null where the log must have a value", raw)
        return self.value(raw)

    def sixteen_bytes(self, row: LogRow) -> bytes:
        """Return the row's cell as it is, which must be 16 bytes."""
        raw = row[self.index]
        if raw is None or len(raw) != _ID_BYTES:
            raise self.error(f"must be {_ID_BYTES} bytes long", raw)
        return raw

    def is_empty(self, raw: bytes) -> bool:
        """Whether a cell is CQL's "empty", which the column's Avro type does not have."""
        return not raw and not self.empty_is_value

    def error(self, reason: str, raw: bytes | None) -> CellError:
        """Return the error that names this column."""
        return CellError(self.cql_type, reason, raw, column=self.column)


@dataclass(frozen=True, slots=True)
class KeyCell:
    """A primary key column; `branch` selects its type in the union of a clustering column."""

    field: str
    cell: LogCell
    branch: str
