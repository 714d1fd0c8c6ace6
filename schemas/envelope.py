"""From one row of a CDC log to the Avro key and value of one Kafka record.

Knows which log column means what (spec sections 1.2, 2.1 and 2.3) and fills the records that
``schemas.avro_schema`` describes. It must not know groups, images or ranges across rows
(``bridge.assembly``), schema ids or Kafka.

Everything that depends on the table alone is resolved when a codec is made; a row costs its
key, its source block and the columns it touches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from schemas.avro_names import namespace
from schemas.avro_schema import ENVELOPE_VERSION, UNKNOWN_OPERATION, key_schema, schema_text, value_schema
from schemas.codec import compile_reader, compile_writer
from schemas.cql_types import NativeType
from schemas.errors import OperationError
from schemas.log_cells import LogRow, key_cell, log_cell, value_cell
from schemas.log_columns import BATCH_SEQ_NO, STREAM_ID, TIME, TTL, log_positions
from schemas.table_schema import TableSchema

OPERATION_SYMBOLS: Final[dict[int, str]] = {
    1: "update",
    2: "insert",
    3: "row_delete",
    4: "partition_delete",
    5: "range_delete",
    6: "range_delete",
    7: "range_delete",
    8: "range_delete",
    -3: "row_expiry",
    -4: "partition_expiry",
}
"""``cdc$operation`` -> symbol of ``op``; the server's set is open, any other number is "unknown"."""

_IMAGES: Final = frozenset({0, 9})
_WITH_COLUMNS: Final = frozenset({"insert", "update", UNKNOWN_OPERATION})

_GREGORIAN_OFFSET_TICKS100NS: Final = 0x01B21DD213814000
"""Ticks between the timeuuid's epoch (1582-10-15) and Unix's (spec section 3)."""

_FINGERPRINT_HEX_DIGITS: Final = 16


class TableCodec:
    """Encodes the changes of one table whose log is read with one list of columns.

    Immutable once made: threads may share one; it is made anew in each process.

    Attributes:
        key_avro_schema: canonical text of the record key's schema.
        value_avro_schema: canonical text of the envelope's schema.
        key_fingerprint: first 16 hex digits of the SHA-256 of the key schema's text.
        value_fingerprint: the same of the value schema's text.
    """

    __slots__ = (
        "_batch_seq_no",
        "_clustering",
        "_columns_record",
        "_partition_key",
        "_read_key",
        "_read_value",
        "_source",
        "_stream_id",
        "_time",
        "_ttl",
        "_values",
        "_write_key",
        "_write_value",
        "key_avro_schema",
        "key_fingerprint",
        "value_avro_schema",
        "value_fingerprint",
    )

    def __init__(self, table: TableSchema, log_columns: Sequence[str]) -> None:
        """Resolve everything that does not depend on a row.

        Args:
            table: the base table.
            log_columns: names of the log's columns in the order of the rows' cells. Unknown
                ``cdc$`` columns are ignored.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form yet.
            TableSchemaError: the log lacks a column of the table, has one that the table
                lacks, or names one twice.
        """
        key, value = key_schema(table), value_schema(table)
        self.key_avro_schema: str = schema_text(key)
        self.value_avro_schema: str = schema_text(value)
        self.key_fingerprint: str = _fingerprint(self.key_avro_schema)
        self.value_fingerprint: str = _fingerprint(self.value_avro_schema)
        self._write_key, self._read_key = compile_writer(key), compile_reader(key)
        self._write_value, self._read_value = compile_writer(value), compile_reader(value)

        positions = log_positions(table, log_columns)
        space = namespace(table.keyspace, table.name)
        self._columns_record = f"{space}.Columns"
        self._partition_key = tuple(key_cell(column, positions, space) for column in table.partition_key)
        self._clustering = tuple(key_cell(column, positions, space) for column in table.clustering)
        self._values = tuple(value_cell(column, positions, space) for column in table.values)
        self._stream_id = log_cell(STREAM_ID, NativeType("blob"), positions)
        self._time = log_cell(TIME, NativeType("timeuuid"), positions)
        self._batch_seq_no = log_cell(BATCH_SEQ_NO, NativeType("int"), positions)
        self._ttl = log_cell(TTL, NativeType("bigint"), positions)
        self._source = {"version": ENVELOPE_VERSION, "keyspace": table.keyspace, "table": table.name}

    def encode_key(self, row: LogRow) -> bytes:
        """Return the unframed Avro body of the row's partition key, columns in key order.

        Raises:
            CellError: a partition key cell is null, "empty" or malformed.
        """
        return self._write_key({key.field: key.cell.required(row) for key in self._partition_key})

    def encode_value(self, row: LogRow, *, operation: int, generation_ms: int, last_in_group: bool) -> bytes:
        """Return the unframed Avro body of the change that the row describes.

        Args:
            row: raw cells; a range delete is described by its start row.
            operation: the row's ``cdc$operation``; numbers not known become "unknown".
            generation_ms: start of the row's generation, ms since the Unix epoch.
            last_in_group: whether the row ends its (stream, time) group.

        Raises:
            CellError: a cell is malformed; names its column.
            OperationError: the row is a pre- or post-image.
            EncodeError: an argument is of the wrong type.
        """
        if operation in _IMAGES:
            raise OperationError(f"cdc$operation {operation} is an image of a row, not a change")
        symbol = OPERATION_SYMBOLS.get(operation, UNKNOWN_OPERATION)
        empty: list[str] = []
        ttl = row[self._ttl.index]
        return self._write_value(
            {
                "op": symbol,
                "key": self._primary_key(row, empty),
                "columns": (self._columns_record, self._columns(row, empty)) if symbol in _WITH_COLUMNS else None,
                "empty_columns": empty,
                "ttl": None if ttl is None else ("long", self._ttl.value(ttl)),
                "source": self._source_of(row, generation_ms, last_in_group=last_in_group),
            }
        )

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

    def _primary_key(self, row: LogRow, empty: list[str]) -> dict[str, object]:
        record = {key.field: key.cell.required(row) for key in self._partition_key}
        for key in self._clustering:
            cell = key.cell
            raw = row[cell.index]
            if raw is None:
                continue
            if raw or cell.empty_is_value:
                record[key.field] = (key.branch, cell.value(raw))
            else:
                empty.append(cell.column)
        return record

    def _columns(self, row: LogRow, empty: list[str]) -> dict[str, object]:
        record: dict[str, object] = {}
        for value in self._values:
            cell = value.cell
            raw = row[cell.index]
            if raw is None:
                flag = row[value.deleted.index]
                if flag is not None and value.deleted.value(flag):
                    record[value.field] = value.set_to_null
            elif raw or cell.empty_is_value:
                record[value.field] = (value.record, {"value": (value.branch, cell.value(raw))})
            else:
                empty.append(cell.column)
                record[value.field] = value.set_to_null
        return record

    def _source_of(self, row: LogRow, generation_ms: int, *, last_in_group: bool) -> dict[str, object]:
        time = self._time.sixteen_bytes(row)
        return {
            **self._source,
            "generation_ms": generation_ms,
            "stream_id": self._stream_id.sixteen_bytes(row),
            "time": time,
            "timestamp_us": _timestamp_us(time),
            "batch_seq_no": self._batch_seq_no.required(row),
            "last_in_group": last_in_group,
        }


def _timestamp_us(timeuuid: bytes) -> int:
    """Return µs since the Unix epoch, rounded down, from a timeuuid's 16 bytes.

    The version nibble is cut off unseen: old servers' timeuuids are not RFC ones.
    """
    low, middle, high = timeuuid[:4], timeuuid[4:6], timeuuid[6:8]
    ticks = int.from_bytes(high + middle + low, "big") & 0x0FFF_FFFF_FFFF_FFFF
    return (ticks - _GREGORIAN_OFFSET_TICKS100NS) // 10


def _fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT_HEX_DIGITS]
