"""Columns of a non-frozen list, set, map or UDT, and their form in the log (spec section 1.2). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal

from sandbox.scylla.values.nested import UserTypes, fields_of, is_multi_cell, pack_elements, pack_fields, pack_pairs
from sandbox.scylla.values.ordering import OrderKey, order_of
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, UdtType

_SMALLINT: Final = Struct(">h")


@dataclass(frozen=True, slots=True)
class MultiCell:
    """The order and the serialization of the elements of one column.

    Attributes:
        kind: the kind of collection.
        order: sorts the element keys.
        field_count: number of fields of a UDT; otherwise 0.
    """

    kind: Literal["list", "set", "map", "udt"]
    order: OrderKey
    field_count: int = 0

    @classmethod
    def of(cls, cql_type: CqlType, user_types: UserTypes = ()) -> MultiCell | None:
        """Return the properties of a column's type; None for an atomic type.

        Raises:
            ValueError: keys of the type can't be ordered, or a UDT's fields are not given.
        """
        match cql_type:
            case ListType():
                return cls("list", order_of(NativeType("timeuuid")))
            case SetType(element):
                return cls("set", order_of(element, user_types))
            case MapType(key):
                return cls("map", order_of(key, user_types))
            case UdtType() as udt:
                return cls("udt", order_of(NativeType("smallint")), len(fields_of(udt, user_types)))
        return None

    def sorted(self, elements: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the elements in the order of their keys."""
        return {key: elements[key] for key in sorted(elements, key=self.order)}

    def pack(self, elements: Mapping[bytes, bytes]) -> bytes:
        """Return the log's value of these elements: a frozen collection; for a list, a map by timeuuid."""
        if self.kind == "udt":
            return pack_fields(elements.get(_SMALLINT.pack(index)) for index in range(self.field_count))
        found = self.sorted(elements)
        return pack_elements(list(found)) if self.kind == "set" else pack_pairs(list(found.items()))

    def pack_keys(self, keys: Iterable[bytes]) -> bytes:
        """Return the value of `cdc$deleted_elements_` for these element keys."""
        return pack_elements(sorted(keys, key=self.order))


def log_types(cql_type: CqlType) -> tuple[str, str | None]:
    """Return the CQL types of a column in the log and of its `cdc$deleted_elements_`; None for an atomic column."""
    match cql_type:
        case ListType(element):
            return f"frozen<map<timeuuid, {element}>>", "frozen<set<timeuuid>>"
        case SetType(element):
            return f"frozen<{cql_type}>", f"frozen<set<{element}>>"
        case MapType(key):
            return f"frozen<{cql_type}>", f"frozen<set<{key}>>"
        case UdtType():
            return f"frozen<{cql_type}>", "frozen<set<smallint>>"
    assert not is_multi_cell(cql_type)
    return str(cql_type), None


def field_key(index: int) -> bytes:
    """Return the element key of a UDT's field."""
    return _SMALLINT.pack(index)
