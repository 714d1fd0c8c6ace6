"""The Avro type of each CQL type. ``schemas.avro.records`` makes the records around them.

Rules:

- Lossless: every CQL value has an Avro value, also at the limits, unless `OutputOptions` choose otherwise.
- Readable by a plain consumer: no logical type that libraries turn into calendar objects, because these overflow
  (Python's ``datetime`` ends in the year 9999, CQL's timestamps do not). For Kafka Connect there is ``connect.name``
  instead.
- ``cqlType`` names the CQL type wherever the Avro type alone does not determine it.
- A list, set or vector is an array. A map is an array of entries, because the keys of Avro's maps are texts. A tuple
  and a user-defined type are records with nullable fields.

Units: timestamp ms since the Unix epoch; date days since 1970-01-01, signed; time ns since
midnight; duration months, days and ns, each signed; decimal is ``value * 10**-scale`` with
`value` in two's complement, big-endian.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schemas.avro.names import avro_name
from schemas.avro.type_names import type_name, udt_record_name
from schemas.cql.types import (
    CqlType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    is_multi_cell,
    unfrozen,
)
from schemas.cql.visitor import TypeVisitor, visit
from schemas.errors import UnsupportedTypeError
from schemas.options import DEFAULT_OUTPUT, OutputOptions

_PLAIN: Final[dict[str, str]] = {
    "bigint": "long",
    "blob": "bytes",
    "boolean": "boolean",
    "double": "double",
    "float": "float",
    "int": "int",
    "text": "string",
    "varchar": "string",
}

_CONNECT_TIMESTAMP: Final = {"connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Timestamp"}

_MARKED: Final[dict[str, dict[str, object]]] = {
    "ascii": {"type": "string"},
    "counter": {"type": "long"},
    "date": {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Date"},
    "inet": {"type": "string"},
    "smallint": {"type": "int"},
    "time": {"type": "long"},
    "timestamp": {"type": "long", **_CONNECT_TIMESTAMP},
    "timeuuid": {"type": "string", "logicalType": "uuid"},
    "tinyint": {"type": "int"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}

_TIMESTAMPS: Final[dict[str, dict[str, object]]] = {
    "millis": _MARKED["timestamp"],
    "timestamp-millis": {"type": "long", "logicalType": "timestamp-millis", **_CONNECT_TIMESTAMP},
    "timestamp-micros": {"type": "long", "logicalType": "timestamp-micros"},
}
_TIMES: Final[dict[str, dict[str, object]]] = {
    "nanos": _MARKED["time"],
    "time-micros": {"type": "long", "logicalType": "time-micros"},
}

_SCALED_DOC: Final = "value * 10**-scale; the value's bytes are in two's complement, big-endian."
_WHOLE_DOC: Final = "A whole number: scale is 0; value is in two's complement, big-endian."
_DURATION_DOC: Final = "Months, days and nanoseconds, which cannot be converted into each other."
_SCALED: Final[tuple[tuple[str, str], ...]] = (("scale", "int"), ("value", "bytes"))
_DEBEZIUM_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
_DECIMALS: Final = frozenset({"decimal", "varint"})

_RECORDS: Final[dict[str, tuple[str, str, str | None, tuple[tuple[str, str], ...]]]] = {
    "decimal": ("Decimal", _SCALED_DOC, _DEBEZIUM_DECIMAL, _SCALED),
    "duration": ("Duration", _DURATION_DOC, None, (("months", "int"), ("days", "int"), ("nanoseconds", "long"))),
    "varint": ("Varint", _WHOLE_DOC, _DEBEZIUM_DECIMAL, _SCALED),
}
"""CQL type -> name of the Avro record, its doc, its Kafka Connect name, its fields."""

_DELTA_DOC: Final = "What the change did, to be applied in this order: cleared, added, removed."
_UDT_DELTA_DOC: Final = (
    "What the change did: cleared first, then each field; null = not touched, {value: null} = removed."
)
_LIST_KEY_DOC: Final = (
    "The list cell's key. Cells are in the order of their keys: by time, then by the last 8 bytes as signed ones."
)
LIST_KEY: Final = NativeType("timeuuid")
"""Type of the keys that a list's cells have in the log."""


class AvroTypes(TypeVisitor[object]):
    """Makes the Avro types of one schema.

    A named type is defined at its first use and referenced afterwards. So an instance belongs to one schema, and its
    methods are called in the order of the schema's text.
    """

    def __init__(self, output: OutputOptions = DEFAULT_OUTPUT) -> None:
        """Start a schema that has no named types yet."""
        self._output = output
        self._defined: set[str] = set()

    def of(self, cql_type: CqlType) -> object:
        """Return the Avro type of a CQL type, as data for JSON.

        Raises:
            UnsupportedTypeError: the type has no Avro form, or the fields of a user-defined type are not known.
        """
        return visit(cql_type, self)

    def cell(self, cql_type: CqlType) -> object:
        """Return the type of a change of a column with one cell: ``{value: null | T}``; null means "set to null"."""
        name = cell_name(cql_type)
        if not self._first_use(name):
            return name
        return _record(name, [_field("value", ["null", self.of(cql_type)], default=None)])

    def change(self, cql_type: CqlType) -> object:
        """Return the type of a change of a static or regular column.

        For a column with one cell this is the type that `cell` returns. For others it is a record of `cleared`
        (whether the earlier content was deleted), and of the `added` and `removed` elements or the changed `fields`.
        """
        if not is_multi_cell(cql_type):
            return self.cell(cql_type)
        name = change_name(cql_type)
        if not self._first_use(name):
            return name
        if isinstance(cql_type, UdtType):
            fields, doc = [_field("fields", self._udt_fields(cql_type))], _UDT_DELTA_DOC
        else:
            fields = [_field(part, _array(one)) for part, one in self._added_removed(cql_type)]
            doc = _DELTA_DOC
        record = _record(name, [_field("cleared", "boolean"), *fields], cql_type)
        return {**record, "doc": doc}

    def _added_removed(self, cql_type: CqlType) -> tuple[tuple[str, object], tuple[str, object]]:
        """Return the types of the elements that a change of a collection adds and removes."""
        match cql_type:
            case SetType():
                return ("added", self.of(cql_type.element)), ("removed", self.of(cql_type.element))
            case MapType():
                return ("added", self._entry(cql_type)), ("removed", self.of(cql_type.key))
            case ListType():
                key = self.of(LIST_KEY)
                fields = [{**_field("key", key), "doc": _LIST_KEY_DOC}, _field("value", self.of(cql_type.element))]
                return ("added", _record(f"{type_name(cql_type)}_element", fields)), ("removed", key)
        raise UnsupportedTypeError(str(cql_type))

    def _udt_fields(self, cql_type: UdtType) -> object:
        return _record(
            f"{type_name(cql_type)}_fields",
            [_named_field(name, ["null", self.cell(one)], default=None) for name, one in cql_type.fields],
        )

    def _entry(self, cql_type: MapType) -> object:
        name = entry_name(cql_type)
        if not self._first_use(name):
            return name
        key, value = _field("key", self.of(cql_type.key)), _field("value", self.of(cql_type.value))
        return _record(name, [key, value])

    def native(self, cql_type: NativeType) -> object:
        """Return the Avro type of a scalar."""
        name = cql_type.name
        if name in _PLAIN:
            return _PLAIN[name]
        if name == "timestamp":
            return {**_TIMESTAMPS[self._output.timestamps], "cqlType": name}
        if name == "time":
            return {**_TIMES[self._output.times], "cqlType": name}
        if name in _MARKED:
            return {**_MARKED[name], "cqlType": name}
        if name not in _RECORDS:
            raise UnsupportedTypeError(name)
        if name in _DECIMALS and self._output.decimals != "record":
            return {"type": self._output.decimals, "cqlType": name}
        record, doc, connect_name, fields = _RECORDS[name]
        if not self._first_use(record):
            return record
        return {
            **_record(record, [_field(field, avro_type) for field, avro_type in fields], cql_type),
            "doc": doc,
            **({} if connect_name is None else {"connect.version": 1, "connect.name": connect_name}),
        }

    def list_(self, cql_type: ListType) -> object:
        """Return the array of a list."""
        return _array(self.of(cql_type.element), cql_type)

    def set_(self, cql_type: SetType) -> object:
        """Return the array of a set."""
        return _array(self.of(cql_type.element), cql_type)

    def map_(self, cql_type: MapType) -> object:
        """Return the array of a map's entries."""
        return _array(self._entry(cql_type), cql_type)

    def vector(self, cql_type: VectorType) -> object:
        """Return the array of a vector."""
        return _array(self.of(cql_type.element), cql_type)

    def tuple_(self, cql_type: TupleType) -> object:
        """Return the record of a tuple: ``field_0`` and so on."""
        name = type_name(cql_type)
        if not self._first_use(name):
            return name
        fields = [
            _field(tuple_field(at), ["null", self.of(one)], default=None) for at, one in enumerate(cql_type.elements)
        ]
        return _record(name, fields, cql_type)

    def udt(self, cql_type: UdtType) -> object:
        """Return the record of a user-defined type."""
        name = udt_record_name(cql_type)
        if not self._first_use(name):
            return name
        fields = [_named_field(field, ["null", self.of(one)], default=None) for field, one in cql_type.fields]
        return _record(name, fields, cql_type)

    def _first_use(self, name: str) -> bool:
        first = name not in self._defined
        self._defined.add(name)
        return first


def unit(cql_type: CqlType, output: OutputOptions = DEFAULT_OUTPUT) -> str | None:
    """Return the unit of a type's values, for the doc of its field; None if they have no unit."""
    match str(cql_type):
        case "date":
            return "Days since 1970-01-01."
        case "time":
            return f"{'Nanoseconds' if output.times == 'nanos' else 'Microseconds'} since midnight."
        case "timestamp":
            return f"{'Microseconds' if 'micros' in output.timestamps else 'Milliseconds'} since the Unix epoch."
    return None


def cell_name(cql_type: CqlType) -> str:
    """Return the name of the record for a change of one cell, such as ``text_cell``."""
    return f"{type_name(cql_type)}_cell"


def change_name(cql_type: CqlType) -> str:
    """Return the name of the record for a change of a column, such as ``set_text_delta``."""
    return f"{type_name(cql_type)}_delta" if is_multi_cell(cql_type) else cell_name(cql_type)


def entry_name(cql_type: MapType) -> str:
    """Return the name of the record of a map's entry, such as ``map_text_int_entry``."""
    return f"{type_name(cql_type)}_entry"


def tuple_field(at: int) -> str:
    """Return the name of a tuple's field, given its place from 0."""
    return f"field_{at}"


def union_branch(cql_type: CqlType, namespace: str, output: OutputOptions = DEFAULT_OUTPUT) -> str:
    """Return the name of a type's branch in a union: a named type's full name, or the name of its Avro type."""
    avro_type = AvroTypes(output).of(cql_type)
    if not isinstance(avro_type, dict):
        return str(avro_type)
    return full_name(namespace, avro_type["name"]) if "name" in avro_type else str(avro_type["type"])


def full_name(namespace: str, name: str) -> str:
    """Return a record's full name; the namespace may be empty."""
    return f"{namespace}.{name}" if namespace else name


def _record(name: str, fields: Sequence[object], cql_type: CqlType | None = None) -> dict[str, object]:
    record: dict[str, object] = {"name": name, "type": "record", "fields": fields}
    return record if cql_type is None else {**record, "cqlType": str(cql_type)}


def _array(items: object, cql_type: CqlType | None = None) -> dict[str, object]:
    array: dict[str, object] = {"type": "array", "items": items}
    return array if cql_type is None else {**array, "cqlType": str(unfrozen(cql_type))}


_NO_DEFAULT: Final = object()


def _field(name: str, avro_type: object, *, default: object = _NO_DEFAULT) -> dict[str, object]:
    field: dict[str, object] = {"name": name, "type": avro_type}
    return field if default is _NO_DEFAULT else {**field, "default": default}


def _named_field(name: str, avro_type: object, *, default: object) -> dict[str, object]:
    field = _field(avro_name(name), avro_type, default=default)
    return field if field["name"] == name else {**field, "cqlName": name}
