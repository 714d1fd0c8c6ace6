"""The parts of a table's schemas: key, primary key, range, columns, row, source.

This module knows the Avro form of the parts. ``schemas.shapes`` puts them together, and ``schemas.log.change_records``
provides their values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.avro.names import avro_name
from schemas.avro.types import AvroTypes, unit
from schemas.cql.table import Column, TableSchema
from schemas.errors import OutputError, UnsupportedTypeError
from schemas.options import OutputOptions

ENVELOPE_VERSION: Final = 1

UNKNOWN_OPERATION: Final = "unknown"
OPERATIONS: Final = (
    UNKNOWN_OPERATION,
    "insert",
    "update",
    "static_update",
    "row_delete",
    "partition_delete",
    "range_delete",
    "row_expiry",
    "partition_expiry",
)
"""Symbols of the enum ``Operation``. New ones go to the end, because the encoding of a symbol is its position."""

PRIMARY_KEY: Final = "PrimaryKey"
COLUMNS: Final = "Columns"
RANGE: Final = "Range"
BOUND: Final = "Bound"
ROW: Final = "Row"

_EMPTY_DOC: Final = "with a zero-length value that their Avro type lacks; they read as null."


class Records:
    """Makes the parts of one schema.

    A named type is defined where it is used first. So an instance belongs to one schema, and its methods are called in
    the order of the schema's text. Every method raises an UnsupportedTypeError for a column whose type has no Avro
    form; it names table, column and type.
    """

    def __init__(self, table: TableSchema, output: OutputOptions) -> None:
        """Start a schema that has no named types yet."""
        self._table = table
        self._output = output
        self._types = AvroTypes(output)

    def partition_key_fields(self) -> list[object]:
        """Return the fields of the partition key columns in order, none nullable."""
        return [self._field(column, self._type(column)) for column in self._table.partition_key]

    def primary_key_fields(self) -> list[object]:
        """Return the fields of the partition key columns, then of the clustering columns, nullable."""
        return self.partition_key_fields() + self._clustering_fields(with_order=True)

    def operation(self) -> object:
        """Return the field ``op``."""
        return {
            "name": "op",
            "doc": "What happened.",
            "type": {
                "name": "Operation",
                "type": "enum",
                "symbols": list(OPERATIONS),
                "default": UNKNOWN_OPERATION,
            },
        }

    def primary_key(self) -> object:
        """Return the field ``key``: partition key columns, then clustering columns, nullable."""
        return {
            "name": "key",
            "doc": "The primary key; clustering columns are null where the change carries none.",
            "type": {"name": PRIMARY_KEY, "type": "record", "fields": self.primary_key_fields()},
        }

    def range(self) -> list[object]:
        """Return the field ``range``; no field for a table without clustering columns, which has no ranges."""
        if not self._table.clustering:
            return []
        prefix = {"name": "ClusteringPrefix", "type": "record", "fields": self._clustering_fields(with_order=False)}
        bound = {
            "name": BOUND,
            "type": "record",
            "fields": [
                {"name": "inclusive", "doc": "Whether rows at the bound are in the range.", "type": "boolean"},
                {
                    "name": "key",
                    "doc": "Leading clustering columns; the others are null: the bound lies before or after all "
                    "rows that begin so.",
                    "type": prefix,
                },
                _names("empty_columns", f"CQL names of columns of the bound {_EMPTY_DOC}"),
            ],
        }
        sides = [
            {**_nullable("start", bound), "doc": "Where it begins in clustering order; null = with the first row."},
            {**_nullable("end", BOUND), "doc": "Where it ends in clustering order; null = with the last row."},
        ]
        doc = "The rows that a range delete removes; null for any other change."
        return [{**_nullable("range", {"name": RANGE, "type": "record", "fields": sides}), "doc": doc}]

    def columns(self) -> object:
        """Return the field ``columns``: what the change did to each static and regular column."""
        fields = [
            self._nullable(column, self._located(column, lambda one: self._types.change(one.type)))
            for column in self._table.values
        ]
        doc = (
            "What happened to the static and regular columns: null = not touched. A column of one cell: {value: null} "
            "= set to null. A collection or a non-frozen user-defined type: to be applied in the order of the fields. "
            "Null as a whole in deletes, and where the log row names no column: the change touched none, its log held "
            "keys only (cdc option 'delta': 'keys'), or all that was touched was dropped since."
        )
        return {**_nullable("columns", {"name": COLUMNS, "type": "record", "fields": fields}), "doc": doc}

    def empty_columns(self) -> object:
        """Return the field ``empty_columns``."""
        return _names("empty_columns", f"CQL names of columns of `key` and `columns` {_EMPTY_DOC}")

    def ttl(self) -> object:
        """Return the field ``ttl``."""
        return {**_nullable("ttl", "long"), "doc": "Time to live in seconds; null without one."}

    def images(self) -> list[object]:
        """Return the fields with the row before and after the change, and with the names of columns that they lack."""
        fields = [self._nullable(column, self._type(column)) for column in self._table.values]
        row = {"name": ROW, "type": "record", "fields": fields}
        kinds = "Static columns stand in images of the static row only, regular ones in the others."
        unknown = (
            "CQL names of columns that `before` does not show (cdc option 'preimage': true shows those that "
            "the change touches); they read as null."
        )
        return [
            {**_nullable("before", row), "doc": f"The row before the change; null without a pre-image. {kinds}"},
            _names("before_unknown", unknown),
            _names("before_empty", f"CQL names of columns of `before` {_EMPTY_DOC}"),
            {**_nullable("after", ROW), "doc": f"The row after the change; null without a post-image. {kinds}"},
            _names("after_empty", f"CQL names of columns of `after` {_EMPTY_DOC}"),
        ]

    def whole_row(self, name: str) -> object:
        """Return a record of all columns, key columns first."""
        return {"name": name, "type": "record", "fields": self.whole_row_fields(frozenset())}

    def whole_row_fields(self, reserved: frozenset[str]) -> list[object]:
        """Return the fields of all columns, key columns first; only the partition key is not nullable.

        Args:
            reserved: names that no column may have.

        Raises:
            OutputError: a column has a reserved name.
        """
        for column in self._table.columns:
            if avro_name(column.name) in reserved:
                raise OutputError(
                    f"table {self._table.full_name}: column {column.name!r} has the name of a field of this output "
                    "shape; choose another shape"
                )
        keys = self.primary_key_fields()  # These must come first, because they define the types that they use.
        return [*keys, *(self._nullable(column, self._type(column)) for column in self._table.values)]

    def source(self) -> object:
        """Return the field ``source``."""
        return {"name": "source", "doc": "Where the change stands in the CDC log.", "type": _source()}

    def _clustering_fields(self, *, with_order: bool) -> list[object]:
        fields: list[object] = []
        for column in self._table.clustering:
            order = {"clusteringOrder": "desc"} if with_order and column.descending else {}
            fields.append({**self._nullable(column, self._type(column)), **order})
        return fields

    def _type(self, column: Column) -> object:
        return self._located(column, lambda one: self._types.of(one.type))

    def _located(self, column: Column, make: Callable[[Column], object]) -> object:
        try:
            return make(column)
        except UnsupportedTypeError as error:
            raise error.located(self._table.full_name, column.name) from error

    def _field(self, column: Column, avro_type: object) -> dict[str, object]:
        name = avro_name(column.name)
        field: dict[str, object] = {"name": name, "type": avro_type}
        doc = unit(column.type, self._output)
        if doc is not None:
            field["doc"] = doc
        if name != column.name:
            field["cqlName"] = column.name
        return field

    def _nullable(self, column: Column, avro_type: object) -> dict[str, object]:
        return {**self._field(column, ["null", avro_type]), "default": None}


def _nullable(name: str, avro_type: object) -> dict[str, object]:
    return {"name": name, "type": ["null", avro_type], "default": None}


def _names(name: str, doc: str) -> dict[str, object]:
    return {"name": name, "doc": doc, "type": {"type": "array", "items": "string"}, "default": []}


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
        {
            "name": "operation",
            "doc": "cdc$operation: the log's own number, also where `op` is unknown; of a range delete its start's.",
            "type": "int",
        },
        {"name": "last_in_group", "doc": "Whether no change of that group follows.", "type": "boolean"},
    ]
    return {"name": "Source", "type": "record", "fields": fields}
