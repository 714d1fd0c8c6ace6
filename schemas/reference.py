"""A log row as Avro, by way of decoded values and fastavro: the definition of what the encoder writes.

Knows every row there can be, and says what is wrong with a bad one. ``schemas.row_code`` writes the
same bytes several times as fast for the rows that it knows; the tests hold the two against each other.
"""

from __future__ import annotations

from typing import Final

from schemas.avro_names import namespace
from schemas.avro_schema import ENVELOPE_VERSION, key_schema, value_schema
from schemas.codec import compile_writer
from schemas.cql_types import NativeType
from schemas.log_cells import LogRow, key_cell, log_cell, value_cell
from schemas.log_columns import BATCH_SEQ_NO, STREAM_ID, TIME, TTL
from schemas.operations import WITH_COLUMNS, symbol_of
from schemas.table_schema import TableSchema

GREGORIAN_OFFSET_TICKS100NS: Final = 0x01B21DD213814000
"""Ticks between the timeuuid's epoch (1582-10-15) and Unix's (spec section 3)."""


class ReferenceEncoder:
    """Encodes the changes of one table; immutable once made, threads may share it."""

    __slots__ = (
        "_batch_seq_no",
        "_clustering",
        "_columns_record",
        "_partition_key",
        "_source",
        "_stream_id",
        "_time",
        "_ttl",
        "_values",
        "_write_key",
        "_write_value",
    )

    def __init__(self, table: TableSchema, positions: dict[str, int]) -> None:
        """Resolve everything that does not depend on a row.

        Args:
            table: the base table.
            positions: where the log's columns are in a row (`schemas.log_columns.log_positions`).

        Raises:
            UnsupportedTypeError: a column's type has no Avro form yet.
        """
        self._write_key, self._write_value = compile_writer(key_schema(table)), compile_writer(value_schema(table))
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

    def encode(self, row: LogRow, *, operation: int, generation_ms: int, last_in_group: bool) -> tuple[bytes, bytes]:
        """Return the bodies of the record's key and value; see `schemas.envelope.TableCodec.encode`."""
        return self.encode_key(row), self._value(row, operation, generation_ms, last_in_group=last_in_group)

    def encode_key(self, row: LogRow) -> bytes:
        """Return the body of the record's key."""
        return self._write_key({key.field: key.cell.required(row) for key in self._partition_key})

    def _value(self, row: LogRow, operation: int, generation_ms: int, *, last_in_group: bool) -> bytes:
        symbol = symbol_of(operation)
        empty: list[str] = []
        ttl = row[self._ttl.index]
        return self._write_value(
            {
                "op": symbol,
                "key": self._primary_key(row, empty),
                "columns": (self._columns_record, self._columns(row, empty)) if symbol in WITH_COLUMNS else None,
                "empty_columns": empty,
                "ttl": None if ttl is None else ("long", self._ttl.value(ttl)),
                "source": self._source_of(row, generation_ms, last_in_group=last_in_group),
            }
        )

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
    return (ticks - GREGORIAN_OFFSET_TICKS100NS) // 10
