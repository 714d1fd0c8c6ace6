"""From the rows of a CDC log that make one change to the Avro key and value of one Kafka record.

Knows which log column means what (spec sections 1.2, 2.1 and 2.3) and fills the records that
``schemas.record_schemas`` describes. It must not know groups (``bridge.encoding.grouping``), schema ids or Kafka.

There are two encoders: code compiled for the table (``schemas.compiled.row_encoder``), and the reference
(``schemas.compiled.reference_encoder``), which gets what the other does not know or declines: range deletes, other
shapes than ``delta``, and rows with a cell that is malformed or CQL's "empty".
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
from schemas.shapes import shape_of

__all__ = ["OPERATION_SYMBOLS", "TableCodec"]

_FINGERPRINT_HEX_DIGITS: Final = 16


class TableCodec:
    """Encodes the changes of one table whose log is read with one list of columns.

    Immutable once made, except `page_encoder`: threads may share one; it is made anew in each process.

    Attributes:
        key_avro_schema: canonical text of the record key's schema.
        value_avro_schema: canonical text of the envelope's schema.
        key_fingerprint: first 16 hex digits of the SHA-256 of the key schema's text.
        value_fingerprint: the same of the value schema's text.
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
        """Resolve everything that does not depend on a row.

        Args:
            table: the base table.
            log_columns: names of the log's columns in the order of the rows' cells. Unknown
                ``cdc$`` columns are ignored.
            output: the shape of the value and the forms of the values in it.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
            OutputError: there is no such shape.
            TableSchemaError: the log lacks a column of the table, has one that the table
                lacks, or names one twice.
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

        The key holds the columns of the partition key (see `encode_primary_key` for the other form), the value
        the change that the rows describe.
        All rows are raw cells in the order of `log_columns`.

        Args:
            row: the delta; of a range delete its start (``cdc$operation`` 5 or 6).
            operation: the row's ``cdc$operation``; numbers not known become "unknown".
            generation_ms: start of the row's generation, ms since the Unix epoch.
            last_in_group: whether the change ends its (stream, time) group.
            range_end: the end row of a range delete (``cdc$operation`` 7 or 8).
            before: the pre-image (0) of the same row in the group; the shape `delta` does not look at it.
            after: the post-image (9), likewise.
            more: further deltas of the same row in the group; only for shapes that describe rows
                (`schemas.shapes.Shape.by_row`).

        Raises:
            CellError: a cell is malformed, contradicts another one of its column, or is one of the
                partition key and null or "empty"; names its column.
            OperationError: a row is not of the kind that is due, or its cells contradict its operation.
            EncodeError: an argument is of the wrong type.
        """
        if range_end is None and (self._ignores_images or (before is None and after is None)):
            try:
                return self._encode(row, operation, generation_ms, last_in_group)
            except DECLINED:
                pass  # And out of the handler, so that the reference's errors stand alone.
        return self._reference.encode(
            LogChange(row, operation, generation_ms, last_in_group, range_end, before, after, more)
        )

    def symbol(self, row: LogRow, operation: int, range_end: LogRow | None = None) -> str:
        """Return the symbol of ``op`` for a change, see `encode`."""
        return self._reference.symbol(LogChange(row, operation, 0, last_in_group=False, range_end=range_end))

    def encode_primary_key(self, row: LogRow, operation: int, range_end: LogRow | None = None) -> bytes:
        """Return the body of a key of the primary key columns, see `encode` and `OutputOptions.key`."""
        return self._reference.encode_primary_key(
            LogChange(row, operation, 0, last_in_group=False, range_end=range_end)
        )

    def encode_key(self, row: LogRow) -> bytes:
        """Return a key of the partition key columns alone, see `encode`."""
        try:
            return self._encode_key(row)
        except DECLINED:
            pass
        return self._reference.encode_key(row)

    def decode_key(self, body: bytes) -> dict[str, object]:
        """Return the record in a key body, for people and tests.

        Raises:
            DecodeError: not a body of this key schema.
        """
        return self._read_key(body)

    def decode_value(self, body: bytes) -> dict[str, object]:
        """Return the record in a value body, for people and tests.

        Raises:
            DecodeError: not a body of this value schema.
        """
        return self._read_value(body)


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_HEX_DIGITS]
