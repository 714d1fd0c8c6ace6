"""Encodes changes with decoded values and fastavro: the definition of the bytes that all encoders write.

It encodes every shape and every row that a log can have, and its errors name what is wrong with a row.
``schemas.compiled.row_encoder`` writes the same bytes several times as fast for most rows; tests compare the two.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.avro.codec import compile_writer
from schemas.cql.table import TableSchema
from schemas.log.cell_readers import LogRow
from schemas.log.change_records import LogRecords
from schemas.log.log_change import LogChange
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.record_schemas import key_schema, value_schema
from schemas.shapes.catalog import shape_of


class ReferenceEncoder:
    """Encodes the changes of one table. Threads may share it, because it does not change."""

    __slots__ = ("_records", "_shape", "_write_key", "_write_primary_key", "_write_value")

    def __init__(
        self,
        table: TableSchema,
        positions: dict[str, int],
        output: OutputOptions = DEFAULT_OUTPUT,
    ) -> None:
        """Prepare everything that does not depend on a row.

        Args:
            table: the base table.
            positions: name -> index of the log's columns in a row, as `schemas.log.columns.log_positions` returns.
            output: the shape and the forms of the values.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
            OutputError: the shape does not exist, or the table does not fit it.
        """
        self._shape = shape_of(output.shape)
        self._write_key = compile_writer(key_schema(table, replace(output, key="partition_key")))
        self._write_primary_key = compile_writer(key_schema(table, replace(output, key="primary_key")))
        self._write_value = compile_writer(value_schema(table, output))
        self._records = LogRecords(table, positions, output)

    def encode(self, change: LogChange) -> tuple[bytes, bytes]:
        """Return the Avro bodies of the record's key, of the partition key's columns, and of its value.

        Raises:
            CellError: a cell is malformed; names its column.
            OperationError: the change's rows contradict their operations or each other.
            EncodeError: a field of the change is of the wrong type.
        """
        return self.encode_key(change.row), self._write_value(self._shape.value(self._records, change))

    def encode_key(self, row: LogRow) -> bytes:
        """Return the Avro body of a key of the partition key's columns; CellError if a cell of them is null."""
        return self._write_key(self._records.partition_key(row))

    def encode_primary_key(self, change: LogChange) -> bytes:
        """Return the Avro body of a key of the primary key's columns; CellError if a clustering column is "empty"."""
        return self._write_primary_key(self._records.record_key(change, self.symbol(change)))

    def symbol(self, change: LogChange) -> str:
        """Return the symbol of ``op``, after a check of the change's rows."""
        return self._records.symbol(change)
