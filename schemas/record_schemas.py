"""From a table to its two Avro schemas: the record key and the change envelope (version 1).

Knows the shape of the records; must not know how they are filled (``schemas.compiled.reference_encoder``).
Both schemas live in the namespace ``<keyspace>.<table>``.

Key: record ``Key`` with the partition key columns, or with the primary key's. Value: record
``Envelope`` (``Value`` in the shape ``flat``), in the shape ``delta``::

    op             what happened, an enum that may grow (unknown symbols read as "unknown")
    key            PrimaryKey: partition key columns, then clustering columns (null where the
                   change carries none: static rows, partition and range deletes)
    range          for range deletes, {start, end}: each null (unbounded) or {inclusive, key}, key
                   being leading clustering columns; absent in tables without clustering columns
    columns        null for deletes and expiries, else Columns: for each non-key column null (not
                   touched) or, for a column of one value,
                       {value: null}   set to null
                       {value: x}      set to x
                   and for a column of many cells, to be applied in this order,
                       set<T>          {cleared, added: [T], removed: [T]}
                       map<K, V>       {cleared, added: [{key: K, value: V}], removed: [K]}
                       list<V>         {cleared, added: [{key: timeuuid, value: V}], removed: [timeuuid]}
                       non-frozen UDT  {cleared, fields: {<field>: null | {value: null | T}}}
    empty_columns  CQL names of the columns whose cell is CQL's zero-length "empty" value of a
                   type that has no such value in Avro (int, uuid, ...); they read as null
    ttl            seconds, null without one
    source         where it came from: the log's own columns

The shape ``full`` has the row before and after the change besides, from the log's images: `before`,
`before_unknown`, `before_empty`, `after`, `after_empty`.

The envelope grows by nullable fields with default null, so that a newer schema reads older
records (BACKWARD). A column that is added to the table does the same inside ``Columns``, and a
field that is added to a user-defined type does inside its record.
"""

from __future__ import annotations

import json
from typing import Final

from schemas.avro.names import namespace
from schemas.avro.records import Records
from schemas.cql.table import TableSchema
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.shapes import shape_of

_ATTRIBUTE_ORDER: Final = {
    attribute: order
    for order, attribute in enumerate(
        ("name", "namespace", "doc", "type", "logicalType", "symbols", "size", "items", "fields", "default")
    )
}


def key_schema(table: TableSchema, output: OutputOptions = DEFAULT_OUTPUT) -> dict[str, object]:
    """Return the schema of the record key: the partition key columns in order, none nullable.

    With `OutputOptions.key` "primary_key" the clustering columns follow, nullable.

    Raises:
        UnsupportedTypeError: names the table, the column and the type.
    """
    records = Records(table, output)
    is_primary = output.key == "primary_key"
    return {
        "name": "Key",
        "namespace": namespace(table.keyspace, table.name),
        "doc": f"The {'primary' if is_primary else 'partition'} key of a row of the ScyllaDB table {table.full_name}.",
        "type": "record",
        "fields": records.primary_key_fields() if is_primary else records.partition_key_fields(),
    }


def value_schema(table: TableSchema, output: OutputOptions = DEFAULT_OUTPUT) -> dict[str, object]:
    """Return the schema of the change envelope.

    Raises:
        UnsupportedTypeError: names the table, the column and the type.
        OutputError: the shape does not exist.
    """
    shape = shape_of(output.shape)
    return {
        "name": shape.record_name,
        "namespace": namespace(table.keyspace, table.name),
        "doc": f"A change of the ScyllaDB table {table.full_name}, from its CDC log.",
        "type": "record",
        "fields": shape.fields(Records(table, output)),
    }


def schema_text(schema: object) -> str:
    """Return the canonical JSON text of a schema: equal schemas give equal text.

    One line, ASCII, attributes in one fixed order (well-known ones first, then by name).
    """
    return json.dumps(_ordered(schema), separators=(",", ":"))


def _ordered(node: object) -> object:
    if isinstance(node, dict):
        last = len(_ATTRIBUTE_ORDER)
        names = sorted(node, key=lambda name: (_ATTRIBUTE_ORDER.get(name, last), name))
        return {name: _ordered(node[name]) for name in names}
    if isinstance(node, list):
        return [_ordered(item) for item in node]
    return node
