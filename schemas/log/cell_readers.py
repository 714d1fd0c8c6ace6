"""Readers for single columns of one CDC log: where a column's cell is in a row, and how to decode it.

They are made once for a table; ``schemas.log.change_records`` uses them for each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from schemas.avro.names import avro_name
from schemas.avro.types import union_branch
from schemas.cql.table import Column
from schemas.cql.types import CqlType
from schemas.errors import CellError, OperationError
from schemas.log.cells import decoder, empty_is_value
from schemas.log.scalar_cells import Decoder
from schemas.options import OutputOptions

LogRow: TypeAlias = Sequence[bytes | None]
"""Raw cells of one log row in the order in which the log's columns are read; None is CQL null."""

_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class LogFormat:
    """The properties of one log that the readers of all its columns depend on.

    Attributes:
        positions: name -> index of the log's columns in a row.
        namespace: the Avro namespace of the table.
        output: the forms of the values.
    """

    positions: dict[str, int]
    namespace: str
    output: OutputOptions

    def cell(self, column: str, cql_type: CqlType) -> LogCell:
        """Return the reader of one column of the log."""
        return LogCell(
            column=column,
            cql_type=str(cql_type),
            index=self.positions[column],
            decode=decoder(cql_type, self.output, self.namespace),
            empty_is_value=empty_is_value(cql_type),
        )

    def branch(self, cql_type: CqlType) -> str:
        """Return the name of the type's branch in a union."""
        return union_branch(cql_type, self.namespace, self.output)

    def key(self, column: Column) -> KeyCell:
        """Return the reader of a primary key column."""
        return KeyCell(
            field=avro_name(column.name),
            cell=self.cell(column.name, column.type),
            branch=self.branch(column.type),
        )


@dataclass(frozen=True, slots=True)
class LogCell:
    """The reader of one column of the log.

    Attributes:
        column: the column's CQL name.
        cql_type: the text of its type.
        index: the place of its cell in a row.
        decode: turns a cell that is neither null nor "empty" into a value.
        empty_is_value: whether a zero-length cell is an ordinary value of the type.
    """

    column: str
    cql_type: str
    index: int
    decode: Decoder
    empty_is_value: bool

    def value(self, raw: bytes) -> object:
        """Return a decoded cell; the CellError for a malformed one names the column."""
        try:
            return self.decode(raw)
        except CellError as error:
            raise error.located(self.column, self.cql_type) from error

    def required(self, row: LogRow) -> object:
        """Return the decoded cell of a row; CellError if it is null or malformed."""
        raw = row[self.index]
        if raw is None:
            raise self.error("is null, but the log always has a value here", raw)
        return self.value(raw)

    def sixteen_bytes(self, row: LogRow) -> bytes:
        """Return the raw cell of a row; CellError if it is not 16 bytes long."""
        raw = row[self.index]
        if raw is None or len(raw) != _ID_BYTES:
            raise self.error(f"must be {_ID_BYTES} bytes long", raw)
        return raw

    def is_empty(self, raw: bytes) -> bool:
        """Return whether a cell is CQL's zero-length "empty" value, which the column's Avro type lacks."""
        return not raw and not self.empty_is_value

    def error(self, reason: str, raw: bytes | None) -> CellError:
        """Return an error about a cell of this column."""
        return CellError(self.cql_type, reason, None if raw is None else len(raw), column=self.column)


@dataclass(frozen=True, slots=True)
class KeyCell:
    """The reader of a primary key column.

    Attributes:
        field: the column's Avro name.
        cell: the reader of its cell.
        branch: name of its type's branch in the union of a clustering column.
    """

    field: str
    cell: LogCell
    branch: str


def require_same_key(row: LogRow, other: LogRow, keys: Iterable[KeyCell], subject: str) -> None:
    """Check that two rows of a change have the same key.

    Args:
        row: the change's delta.
        other: the other row.
        keys: the key columns to compare.
        subject: what the other row is, for the message.

    Raises:
        OperationError: a cell differs; names the column.
    """
    for key in keys:
        if row[key.cell.index] != other[key.cell.index]:
            raise OperationError(f"{subject} differs from the change in key column {key.cell.column!r}")
