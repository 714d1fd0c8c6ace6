"""The types of columns and fields as the server keeps them and as `system_schema` shows them. Pure."""

from __future__ import annotations

from schemas.cql.types import CqlType, FrozenType, ListType, MapType, SetType, TupleType, UdtType, VectorType


def as_stored(cql_type: CqlType) -> CqlType:
    """Return a declared type as the server keeps it.

    Tuples are always frozen, and so is everything inside of a frozen type: `tuple<int, list<int>>` becomes
    `frozen<tuple<int, frozen<list<int>>>>`.
    """
    match cql_type:
        case FrozenType(inner):
            return _frozen(inner)
        case TupleType():
            return _frozen(cql_type)
        case ListType(element):
            return ListType(as_stored(element))
        case SetType(element):
            return SetType(as_stored(element))
        case MapType(key, value):
            return MapType(as_stored(key), as_stored(value))
        case VectorType(element, dimension):
            return VectorType(_frozen(element), dimension)
        case _:
            return cql_type


def _frozen(cql_type: CqlType) -> CqlType:
    match cql_type:
        case FrozenType(inner):
            return _frozen(inner)
        case TupleType(elements):
            return FrozenType(TupleType(tuple(map(_frozen, elements))))
        case ListType(element):
            return FrozenType(ListType(_frozen(element)))
        case SetType(element):
            return FrozenType(SetType(_frozen(element)))
        case MapType(key, value):
            return FrozenType(MapType(_frozen(key), _frozen(value)))
        case UdtType():
            return FrozenType(cql_type)
        case VectorType(element, dimension):
            return VectorType(_frozen(element), dimension)
        case _:
            return cql_type
