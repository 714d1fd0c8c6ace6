"""A log row as Avro, by way of decoded values and fastavro: the definition of what the encoder writes.

Knows every shape and every row there can be, and says what is wrong with a bad one.
``schemas.compiled.row_encoder`` writes the same bytes several times as fast for the rows that it knows; the
tests hold the two against each other.
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
from schemas.shapes import shape_of


class ReferenceEncoder:
    """Encodes the changes of one table; immutable once made, threads may share it."""

    __slots__ = ("_records", "_shape", "_write_key", "_write_primary_key", "_write_value")

    def __init__(
        self,
        table: TableSchema,
        positions: dict[str, int],
        output: OutputOptions = DEFAULT_OUTPUT,
    ) -> None:
        """Resolve everything that does not depend on a row.

        Args:
            table: the base table.
            positions: where the log's columns are in a row (`schemas.log.columns.log_positions`).
            output: the shape and the forms of the values.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
            OutputError: there is no such shape.
        """
        self._shape = shape_of(output.shape)
        self._write_key = compile_writer(key_schema(table, replace(output, key="partition_key")))
        self._write_primary_key = compile_writer(key_schema(table, replace(output, key="primary_key")))
        self._write_value = compile_writer(value_schema(table, output))
        self._records = LogRecords(table, positions, output)

    def encode(self, change: LogChange) -> tuple[bytes, bytes]:
        """Return the bodies of the record's key and value; see `schemas.table_codec.TableCodec.encode`."""
        return self.encode_key(change.row), self._write_value(self._shape.value(self._records, change))

    def encode_key(self, row: LogRow) -> bytes:
        """Return the body of a key of the partition key columns."""
        return self._write_key(self._records.partition_key(row))

    def encode_primary_key(self, change: LogChange) -> bytes:
        """Return the body of a key of the primary key columns; CellError where a clustering column is "empty"."""
        return self._write_primary_key(self._records.record_key(change, self.symbol(change)))

    def symbol(self, change: LogChange) -> str:
        """Return the symbol of ``op``."""
        return self._records.symbol(change)
