"""What the bridge makes of log rows, held against the changes that the rules of the log make of the same groups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from bridge.encoding.group_encoder import GroupEncoder
from bridge.encoding.grouping import groups
from bridge.model.log_rows import Cells, LogLayout
from bridge.model.times import UnixMillis
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.log.log_rows import LogGroup
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.codec import compile_reader
from schemas.cql.table import TableSchema
from schemas.options import OutputOptions, RecordForm, ShapeName
from schemas.table_codec import TableCodec
from tests.replica import frozen

Pairs = list[tuple[object, object]]
"""Keys and values of records; the value of a tombstone is None."""


class BridgeReader:
    """Encodes the groups of one table's log, and says what they must be."""

    def __init__(self, table: TableSchema, names: Sequence[str], options: CdcOptions) -> None:
        """Take a table with resolved types, the log's columns in the order of its rows, and the table's cdc option."""
        full = options.images.wanted
        self._keys_only = options.delta == "keys"
        keys = ([column.name for column in part] for part in (table.partition_key, table.clustering))
        self._layout = LogLayout.of(tuple(names), *keys)
        codec = codec_of(table, tuple(names), "full" if full else "delta")
        self._encoder = GroupEncoder(codec, self._layout, (table.keyspace, table.name), RecordForm())
        self._truth = ExpectedRecords(table, full=full)
        self._table = table
        self._read_key, self._read_value = readers_of(codec)

    def found(self, rows: Sequence[Cells]) -> Pairs:
        """The records that the bridge makes of the rows of one group."""
        (group,) = groups(list(rows), self._layout)
        return [
            (in_order(self._read_key(one.key)), None if one.value is None else in_order(self._read_value(one.value)))
            for one in self._encoder.encode(group, UnixMillis(1))
        ]

    def wanted(self, group: LogGroup, place: Place) -> Pairs:
        """The records that the group's changes are."""
        changes = expected_changes(CapturedTable.of(self._table, keys_only=self._keys_only), group, place)
        return [(in_order(self._truth.key(one)), in_order(self._truth.value(one))) for one in changes]


@cache
def codec_of(table: TableSchema, names: tuple[str, ...], shape: ShapeName) -> TableCodec:
    return TableCodec(table, list(names), OutputOptions(shape=shape))


@cache
def readers_of(codec: TableCodec) -> tuple[Any, Any]:
    key, value = (compile_reader(json.loads(text)) for text in (codec.key_avro_schema, codec.value_avro_schema))
    return key, value


def in_order(record: dict[str, Any]) -> object:
    return frozen(dict(sorted(record.items())))
