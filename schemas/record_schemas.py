"""From a table to its two Avro schemas: the record key and the value (envelope version 1).

Both schemas live in the namespace ``<keyspace>.<table>``.

The key is the record ``Key`` with the columns of the partition key or of the primary key. The value is the record
``Envelope`` (``Value`` in the shape ``flat``). In the shape ``delta`` its fields are::

    op             what happened; an enum that may grow (old readers read new symbols as "unknown")
    key            PrimaryKey: partition key columns, then clustering columns (null where the
                   change has none: static rows, partition and range deletes)
    range          for range deletes {start, end}: each null (unbounded) or {inclusive, key}, where key
                   has leading clustering columns; no such field in tables without clustering columns
    columns        null for deletes and expiries, else the record Columns: for each non-key column null
                   (not touched) or, for a column of one cell,
                       {value: null}   set to null
                       {value: x}      set to x
                   and for a column of many cells, in the order in which a reader applies them,
                       set<T>          {cleared, added: [T], removed: [T]}
                       map<K, V>       {cleared, added: [{key: K, value: V}], removed: [K]}
                       list<V>         {cleared, added: [{key: timeuuid, value: V}], removed: [timeuuid]}
                       non-frozen UDT  {cleared, fields: {<field>: null | {value: null | T}}}
    empty_columns  CQL names of the columns whose cell is CQL's zero-length "empty" value where the Avro
                   type has no such value (int, uuid, ...); they read as null
    ttl            time to live in seconds, or null
    source         the position of the change: the log's own columns

The shape ``full`` also has the row before and after the change, from the log's images: `before`, `before_unknown`,
`before_empty`, `after`, `after_empty`.

The envelope grows by nullable fields with the default null, so that a newer schema reads older records (BACKWARD). In
the same way a new column of the table becomes a field of ``Columns``, and a new field of a user-defined type becomes a
field of its record.
"""

from __future__ import annotations

import json
from typing import Final

from schemas.avro.names import namespace
from schemas.avro.records import Records
from schemas.cql.table import TableSchema
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.shapes.catalog import shape_of

_ATTRIBUTE_ORDER: Final = {
    attribute: order
    for order, attribute in enumerate(
        ("name", "namespace", "doc", "type", "logicalType", "symbols", "size", "items", "fields", "default")
    )
}


def key_schema(table: TableSchema, output: OutputOptions = DEFAULT_OUTPUT) -> dict[str, object]:
    """Return the Avro schema of the record key: the partition key columns in order, none nullable.

    With `OutputOptions.key` "primary_key" the clustering columns follow, nullable.

    Args:
        table: the base table.
        output: the columns of the key and the forms of the values.

    Raises:
        UnsupportedTypeError: a column's type has no Avro form; names the table, the column and the type.
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
    """Return the Avro schema of the record value.

    Args:
        table: the base table.
        output: the shape and the forms of the values.

    Raises:
        UnsupportedTypeError: a column's type has no Avro form; names the table, the column and the type.
        OutputError: the shape does not exist, or the table does not fit it.
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

    The text is one line of ASCII. Attributes are in a fixed order: well-known ones first, then by name.
    """
    return json.dumps(_with_ordered_attributes(schema), separators=(",", ":"))


def _with_ordered_attributes(node: object) -> object:
    if isinstance(node, dict):
        last = len(_ATTRIBUTE_ORDER)
        names = sorted(node, key=lambda name: (_ATTRIBUTE_ORDER.get(name, last), name))
        return {name: _with_ordered_attributes(node[name]) for name in names}
    if isinstance(node, list):
        return [_with_ordered_attributes(item) for item in node]
    return node
