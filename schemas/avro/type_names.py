"""Names of CQL types as parts of Avro names: readable, and different for different types.

``map<text, frozen<list<int>>>`` -> ``map_text_list_int``, ``tuple<int, text>`` -> ``tuple2_int_text``,
``vector<float, 3>`` -> ``vector3_float``, a user-defined type ``address`` -> ``udt7_address``.

The names are injective, except that ``frozen``, which changes no value, is left out. Every constructor fixes how many
types follow it, and the length of a user-defined type's name (any text) precedes the name. So a name can be read back
in one way only, also with a suffix such as ``_cell``.
"""

from __future__ import annotations

from schemas.avro.names import avro_name
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType
from schemas.cql.visitor import TypeVisitor, visit


def type_name(cql_type: CqlType) -> str:
    """Return the name of a type.

    Raises:
        UnsupportedTypeError: the type contains a user-defined type whose fields are not known.
    """
    return visit(cql_type, _NAMES)


def udt_record_name(cql_type: UdtType) -> str:
    """Return the name of the record of a user-defined type, such as ``udt_address``.

    No other name begins with ``udt_``.
    """
    return f"udt_{avro_name(cql_type.name)}"


class _Names(TypeVisitor[str]):
    """Makes the name of each kind of type."""

    def native(self, cql_type: NativeType) -> str:
        return cql_type.name

    def list_(self, cql_type: ListType) -> str:
        return f"list_{type_name(cql_type.element)}"

    def set_(self, cql_type: SetType) -> str:
        return f"set_{type_name(cql_type.element)}"

    def map_(self, cql_type: MapType) -> str:
        return f"map_{type_name(cql_type.key)}_{type_name(cql_type.value)}"

    def tuple_(self, cql_type: TupleType) -> str:
        return f"tuple{len(cql_type.elements)}_{'_'.join(map(type_name, cql_type.elements))}"

    def vector(self, cql_type: VectorType) -> str:
        return f"vector{cql_type.dimension}_{type_name(cql_type.element)}"

    def udt(self, cql_type: UdtType) -> str:
        name = avro_name(cql_type.name)
        return f"udt{len(name)}_{name}"


_NAMES = _Names()
