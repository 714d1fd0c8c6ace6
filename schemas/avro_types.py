"""The Avro type of each CQL type.

Knows single types only; the records around them are ``schemas.avro_schema``'s. Rules:

- Lossless: every CQL value has an Avro value, limits included.
- Readable by a plain consumer: no logical type that a library turns into a calendar object
  which overflows (Python's ``datetime`` ends in year 9999, CQL's timestamps do not). Kafka
  Connect gets its own mark (``connect.name``) instead.
- ``cqlType`` says what CQL called it wherever the Avro type alone does not.

Units: timestamp ms since the Unix epoch; date days since 1970-01-01, signed; time ns since
midnight; duration months, days and ns, each signed; decimal is ``value * 10**-scale`` with
`value` in two's complement, big-endian.
"""

from __future__ import annotations

from typing import Final

from schemas.avro_names import avro_name
from schemas.cql_types import CqlType, NativeType
from schemas.errors import UnsupportedTypeError
from schemas.type_visitor import TypeVisitor, visit

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

_MARKED: Final[dict[str, dict[str, object]]] = {
    "ascii": {"type": "string"},
    "counter": {"type": "long"},
    "date": {"type": "int", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Date"},
    "inet": {"type": "string"},
    "smallint": {"type": "int"},
    "time": {"type": "long"},
    "timestamp": {"type": "long", "connect.version": 1, "connect.name": "org.apache.kafka.connect.data.Timestamp"},
    "timeuuid": {"type": "string", "logicalType": "uuid"},
    "tinyint": {"type": "int"},
    "uuid": {"type": "string", "logicalType": "uuid"},
}

_UNITS: Final[dict[str, str]] = {
    "date": "Days since 1970-01-01.",
    "time": "Nanoseconds since midnight.",
    "timestamp": "Milliseconds since the Unix epoch.",
}

_SCALED_DOC: Final = "value * 10**-scale; the value's bytes are in two's complement, big-endian."
_WHOLE_DOC: Final = "A whole number: scale is 0; value is in two's complement, big-endian."
_DURATION_DOC: Final = "Months, days and nanoseconds, which cannot be converted into each other."
_SCALED: Final[tuple[tuple[str, str], ...]] = (("scale", "int"), ("value", "bytes"))
_DEBEZIUM_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"

_RECORDS: Final[dict[str, tuple[str, str, str | None, tuple[tuple[str, str], ...]]]] = {
    "decimal": ("Decimal", _SCALED_DOC, _DEBEZIUM_DECIMAL, _SCALED),
    "duration": ("Duration", _DURATION_DOC, None, (("months", "int"), ("days", "int"), ("nanoseconds", "long"))),
    "varint": ("Varint", _WHOLE_DOC, _DEBEZIUM_DECIMAL, _SCALED),
}
"""CQL name -> Avro record name, its doc, Connect's name for it, its fields."""


class AvroTypes(TypeVisitor[object]):
    """Avro types for one schema: a named type is defined at its first use, then referenced.

    One instance belongs to one schema text and is asked in the order of that text.
    """

    def __init__(self) -> None:
        """Begin a schema in which nothing is defined yet."""
        self._defined: set[str] = set()

    def of(self, cql_type: CqlType) -> object:
        """Return the Avro type, as JSON-able data.

        Raises:
            UnsupportedTypeError: the type has no Avro form yet.
        """
        return visit(cql_type, self)

    def cell(self, cql_type: CqlType) -> object:
        """Return the cell record of a type: ``{value: null | T}``; null is "set to null"."""
        name = cell_name(cql_type)
        if not self._first_use(name):
            return name
        value = {"name": "value", "type": ["null", self.of(cql_type)], "default": None}
        return {"name": name, "type": "record", "fields": [value]}

    def native(self, cql_type: NativeType) -> object:
        """Return the Avro type of a scalar."""
        name = cql_type.name
        if name in _PLAIN:
            return _PLAIN[name]
        if name in _MARKED:
            return {**_MARKED[name], "cqlType": name}
        if name not in _RECORDS:
            raise UnsupportedTypeError(name)
        record, doc, connect_name, fields = _RECORDS[name]
        if not self._first_use(record):
            return record
        return {
            "name": record,
            "doc": doc,
            "type": "record",
            "fields": [{"name": field, "type": avro_type} for field, avro_type in fields],
            "cqlType": name,
            **({} if connect_name is None else {"connect.version": 1, "connect.name": connect_name}),
        }

    def _first_use(self, name: str) -> bool:
        first = name not in self._defined
        self._defined.add(name)
        return first


def unit(cql_type: CqlType) -> str | None:
    """Return what a column of this type counts, for the doc of its field; None if nothing needs saying."""
    return _UNITS.get(str(cql_type))


def cell_name(cql_type: CqlType) -> str:
    """Return the name of a type's cell record, such as ``text_cell``."""
    return f"{avro_name(str(cql_type))}_cell"


def union_branch(cql_type: CqlType, namespace: str) -> str:
    """Return the name by which a union of this type's schema selects it.

    A named type is selected by its full name, anything else by its Avro type's name.
    """
    avro_type = AvroTypes().of(cql_type)
    if not isinstance(avro_type, dict):
        return str(avro_type)
    return f"{namespace}.{avro_type['name']}" if "name" in avro_type else str(avro_type["type"])
