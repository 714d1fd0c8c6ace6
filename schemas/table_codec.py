"""From the rows of a CDC log that make one change to the Avro key and value of one Kafka record.

A `TableCodec` fills the records that ``schemas.record_schemas`` describes. It does not know groups of changes, schema
ids or Kafka.

There are two encoders: code compiled for the table (``schemas.compiled.row_encoder``), and the reference
(``schemas.compiled.reference_encoder``). The reference encodes what the compiled code declines: range deletes, changes
with images, the shapes ``debezium`` and ``flat``, and rows with a cell that is malformed or CQL's "empty".
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from schemas.avro.codec import compile_reader
from schemas.compiled.cell_source import DECLINED
from schemas.compiled.page_encoder import PageEncoder
from schemas.compiled.reference_encoder import ReferenceEncoder
from schemas.compiled.row_encoder import compile_encoders
from schemas.cql.table import TableSchema
from schemas.log.cell_readers import LogRow
from schemas.log.columns import log_positions
from schemas.log.log_change import LogChange
from schemas.log.operations import OPERATION_SYMBOLS
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.record_schemas import key_schema, schema_text, value_schema
from schemas.shapes.catalog import shape_of

__all__ = ["OPERATION_SYMBOLS", "TableCodec"]

_FINGERPRINT_HEX_DIGITS: Final = 16


class TableCodec:
    """Encodes the changes of one table whose log is read with one list of columns.

    Threads may share a codec, except its `page_encoder`. A codec cannot be pickled, so each process makes its own.

    Attributes:
        key_avro_schema: canonical text of the record key's schema.
        value_avro_schema: canonical text of the value's schema.
        key_fingerprint: first 16 hex digits of the SHA-256 of the key schema's text.
        value_fingerprint: first 16 hex digits of the SHA-256 of the value schema's text.
        page_encoder: encodes rows page by page; for one thread.
    """

    __slots__ = (
        "_encode",
        "_encode_key",
        "_ignores_images",
        "_read_key",
        "_read_value",
        "_reference",
        "key_avro_schema",
        "key_fingerprint",
        "page_encoder",
        "value_avro_schema",
        "value_fingerprint",
    )

    def __init__(
        self,
        table: TableSchema,
        log_columns: Sequence[str],
        output: OutputOptions = DEFAULT_OUTPUT,
    ) -> None:
        """Compile the encoders and readers of the table.

        Args:
            table: the base table.
            log_columns: names of the log's columns in the order of the rows' cells. Unknown
                ``cdc$`` columns are ignored.
            output: the shape of the value and the forms of the values in it.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
            OutputError: the shape does not exist, or the table does not fit it.
            TableSchemaError: the log lacks a column of the table, has a column that the table lacks, or names one
                twice.
        """
        key, value = key_schema(table, output), value_schema(table, output)
        self.key_avro_schema: str = schema_text(key)
        self.value_avro_schema: str = schema_text(value)
        self.key_fingerprint: str = _fingerprint(self.key_avro_schema)
        self.value_fingerprint: str = _fingerprint(self.value_avro_schema)
        self._read_key, self._read_value = compile_reader(key), compile_reader(value)
        self._ignores_images = not shape_of(output.shape).uses_images
        positions = log_positions(table, log_columns)
        self._reference = ReferenceEncoder(table, positions, output)
        self._encode_key, self._encode = compile_encoders(table, positions, output)
        self.page_encoder = PageEncoder(table, positions, output, self._encode)

    def encode(
        self,
        row: LogRow,
        *,
        operation: int,
        generation_ms: int,
        last_in_group: bool,
        range_end: LogRow | None = None,
        before: LogRow | None = None,
        after: LogRow | None = None,
        more: Sequence[LogRow] = (),
    ) -> tuple[bytes, bytes]:
        """Return the unframed Avro bodies of the record's key and value, in that order.

        The key has the columns of the partition key; `encode_primary_key` gives the other form. All rows are raw cells
        in the order of `log_columns`.

        Args:
            row: the delta, or the start row of a range delete (``cdc$operation`` 5 or 6).
            operation: the row's ``cdc$operation``; an unknown number gives the symbol "unknown".
            generation_ms: start of the row's CDC generation, ms since the Unix epoch.
            last_in_group: whether the change ends its (stream, time) group.
            range_end: the end row of a range delete (``cdc$operation`` 7 or 8).
            before: the pre-image (0) of the same row in the group; the shape `delta` ignores it.
            after: the post-image (9) of the same row in the group; the shape `delta` ignores it.
            more: further deltas of the same row in the group, only for shapes with `schemas.shapes.base.Shape.by_row`.

        Raises:
            CellError: a cell is malformed, contradicts another cell of its column, or is a null or "empty" cell of the
                partition key; names the column.
            OperationError: a row is not of the expected kind, or its cells contradict its operation.
            EncodeError: an argument is of the wrong type.
        """
        if range_end is None and (self._ignores_images or (before is None and after is None)):
            try:
                return self._encode(row, operation, generation_ms, last_in_group)
            except DECLINED:
                pass  # The reference runs outside of the handler, so that its errors have no context.
        return self._reference.encode(
            LogChange(row, operation, generation_ms, last_in_group, range_end, before, after, more)
        )

    def symbol(self, row: LogRow, operation: int, range_end: LogRow | None = None) -> str:
        """Return the symbol of ``op`` for a change.

        Args:
            row: the delta, or the start row of a range delete.
            operation: the row's ``cdc$operation``.
            range_end: the end row of a range delete.

        Raises:
            CellError: a cell is malformed.
            OperationError: the rows contradict their operations.
        """
        return self._reference.symbol(LogChange(row, operation, 0, last_in_group=False, range_end=range_end))

    def encode_primary_key(self, row: LogRow, operation: int, range_end: LogRow | None = None) -> bytes:
        """Return the Avro body of a record key with the columns of the primary key.

        Args:
            row: the delta, or the start row of a range delete.
            operation: the row's ``cdc$operation``.
            range_end: the end row of a range delete.

        Raises:
            CellError: a cell is malformed, or a clustering column is CQL's "empty".
            OperationError: the rows contradict their operations.
        """
        return self._reference.encode_primary_key(
            LogChange(row, operation, 0, last_in_group=False, range_end=range_end)
        )

    def encode_key(self, row: LogRow) -> bytes:
        """Return the Avro body of a record key with the columns of the partition key.

        Raises:
            CellError: a cell is malformed, null or "empty"; names the column.
        """
        try:
            return self._encode_key(row)
        except DECLINED:
            pass
        return self._reference.encode_key(row)

    def decode_key(self, body: bytes) -> dict[str, object]:
        """Return the record in the Avro body of a key.

        Raises:
            DecodeError: the bytes are not a record of the key schema.
        """
        return self._read_key(body)

    def decode_value(self, body: bytes) -> dict[str, object]:
        """Return the record in the Avro body of a value.

        Raises:
            DecodeError: the bytes are not a record of the value schema.
        """
        return self._read_value(body)


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_HEX_DIGITS]
