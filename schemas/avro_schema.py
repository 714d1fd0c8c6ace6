"""From a table to its two Avro schemas: the record key and the change envelope (version 1).

Knows the shape of the records; must not know how they are filled (``schemas.envelope``).
Both schemas live in the namespace ``<keyspace>.<table>``.

Key: record ``Key`` with the partition key columns. Value: record ``Envelope``::

    op             what happened, an enum that may grow (unknown symbols read as "unknown")
    key            PrimaryKey: partition key columns, then clustering columns (null where the
                   change carries none: static rows, partition deletes, open range bounds)
    columns        null for deletes and expiries, else Columns: for each non-key column
                       null            not touched
                       {value: null}   set to null
                       {value: x}      set to x
    empty_columns  CQL names of the columns whose cell is CQL's zero-length "empty" value of a
                   type that has no such value in Avro (int, uuid, ...); they read as null
    ttl            seconds, null without one
    source         where it came from: the log's own columns

The envelope grows by nullable fields with default null, so that a newer schema reads older
records (BACKWARD). A column that is added to the table does the same inside ``Columns``.
"""

from __future__ import annotations

import json
from typing import Final

from schemas.avro_names import avro_name, namespace
from schemas.avro_types import AvroTypes, unit
from schemas.errors import UnsupportedTypeError
from schemas.table_schema import Column, TableSchema

ENVELOPE_VERSION: Final = 1

UNKNOWN_OPERATION: Final = "unknown"
OPERATIONS: Final = (
    UNKNOWN_OPERATION,
    "insert",
    "update",
    "row_delete",
    "partition_delete",
    "range_delete",
    "row_expiry",
    "partition_expiry",
)
"""Symbols of the enum ``Operation``: append only, readers know them by position."""

_ATTRIBUTE_ORDER: Final = {
    attribute: order
    for order, attribute in enumerate(
        ("name", "namespace", "doc", "type", "logicalType", "symbols", "size", "items", "fields", "default")
    )
}


def key_schema(table: TableSchema) -> dict[str, object]:
    """Return the schema of the record key: the partition key columns in order, none nullable.

    Raises:
        UnsupportedTypeError: names the table, the column and the type.
    """
    return {
        "name": "Key",
        "namespace": namespace(table.keyspace, table.name),
        "doc": f"The partition key of a row of the ScyllaDB table {table.full_name}.",
        "type": "record",
        "fields": _partition_key_fields(table, AvroTypes()),
    }


def value_schema(table: TableSchema) -> dict[str, object]:
    """Return the schema of the change envelope.

    Raises:
        UnsupportedTypeError: names the table, the column and the type.
    """
    types = AvroTypes()
    return {
        "name": "Envelope",
        "namespace": namespace(table.keyspace, table.name),
        "doc": f"A change of the ScyllaDB table {table.full_name}, from its CDC log.",
        "type": "record",
        "fields": [
            {
                "name": "op",
                "doc": "What happened.",
                "type": {
                    "name": "Operation",
                    "type": "enum",
                    "symbols": list(OPERATIONS),
                    "default": UNKNOWN_OPERATION,
                },
            },
            {
                "name": "key",
                "doc": "The primary key; clustering columns are null where the change carries none.",
                "type": _primary_key(table, types),
            },
            {
                "name": "columns",
                "doc": "Non-key columns: null = not touched, {value: null} = set to null. Absent (null) in deletes.",
                "type": ["null", _columns(table, types)],
                "default": None,
            },
            {
                "name": "empty_columns",
                "doc": "CQL names of columns with a zero-length value that their Avro type lacks; they read as null.",
                "type": {"type": "array", "items": "string"},
                "default": [],
            },
            {
                "name": "ttl",
                "doc": "Time to live in seconds; null without one.",
                "type": ["null", "long"],
                "default": None,
            },
            {"name": "source", "doc": "Where the change stands in the CDC log.", "type": _source()},
        ],
    }


def schema_text(schema: object) -> str:
    """Return the canonical JSON text of a schema: equal schemas give equal text.

    One line, ASCII, attributes in one fixed order (well-known ones first, then by name).
    """
    return json.dumps(_ordered(schema), separators=(",", ":"))


def _partition_key_fields(table: TableSchema, types: AvroTypes) -> list[object]:
    return [_field(column, _type_of(table, column, types)) for column in table.partition_key]


def _primary_key(table: TableSchema, types: AvroTypes) -> object:
    fields = _partition_key_fields(table, types)
    fields += [_nullable(column, _type_of(table, column, types)) for column in table.clustering]
    return {"name": "PrimaryKey", "type": "record", "fields": fields}


def _columns(table: TableSchema, types: AvroTypes) -> object:
    fields = [_nullable(column, _type_of(table, column, types, cell=True)) for column in table.values]
    return {"name": "Columns", "type": "record", "fields": fields}


def _source() -> object:
    fields = [
        {"name": "version", "doc": "Version of this envelope.", "type": "int"},
        {"name": "keyspace", "doc": "CQL name of the keyspace.", "type": "string"},
        {"name": "table", "doc": "CQL name of the base table.", "type": "string"},
        {
            "name": "generation_ms",
            "doc": "Start of the CDC generation, milliseconds since the Unix epoch.",
            "type": "long",
        },
        {
            "name": "stream_id",
            "doc": "cdc$stream_id: the CDC stream.",
            "type": {"name": "StreamId", "type": "fixed", "size": 16},
        },
        {
            "name": "time",
            "doc": "cdc$time: the timeuuid's 16 bytes.",
            "type": {"name": "TimeUuid", "type": "fixed", "size": 16},
        },
        {
            "name": "timestamp_us",
            "doc": "The instant of cdc$time, the write timestamp: microseconds since the Unix epoch.",
            "type": "long",
        },
        {
            "name": "batch_seq_no",
            "doc": "cdc$batch_seq_no: place in the group of the changes of one stream and time.",
            "type": "int",
        },
        {"name": "last_in_group", "doc": "Whether no change of that group follows.", "type": "boolean"},
    ]
    return {"name": "Source", "type": "record", "fields": fields}


def _type_of(table: TableSchema, column: Column, types: AvroTypes, *, cell: bool = False) -> object:
    try:
        return types.cell(column.type) if cell else types.of(column.type)
    except UnsupportedTypeError as error:
        raise error.located(table.full_name, column.name) from error


def _field(column: Column, avro_type: object) -> dict[str, object]:
    name = avro_name(column.name)
    field: dict[str, object] = {"name": name, "type": avro_type}
    doc = unit(column.type)
    if doc is not None:
        field["doc"] = doc
    if name != column.name:
        field["cqlName"] = column.name
    return field


def _nullable(column: Column, avro_type: object) -> dict[str, object]:
    return {**_field(column, ["null", avro_type]), "default": None}


def _ordered(node: object) -> object:
    if isinstance(node, dict):
        last = len(_ATTRIBUTE_ORDER)
        names = sorted(node, key=lambda name: (_ATTRIBUTE_ORDER.get(name, last), name))
        return {name: _ordered(node[name]) for name in names}
    if isinstance(node, list):
        return [_ordered(item) for item in node]
    return node
