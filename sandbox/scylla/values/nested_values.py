"""Serialized values of every CQL type, nested to any depth, from Python values or at random. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, cast

from sandbox.scylla.values.native import draw, encode
from sandbox.scylla.values.nested import (
    UserTypes,
    fields_of,
    pack_elements,
    pack_fields,
    pack_pairs,
    pack_vector,
    unfrozen,
)
from sandbox.scylla.values.ordering import order_of
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType

EQUAL_BUT_DIFFERENT: Final = frozenset({"decimal", "double", "float"})
"""Types with values that compare equal and serialize differently; keys have none of their extremes."""


def encode_nested(cql_type: CqlType, value: object, user_types: UserTypes = ()) -> bytes:
    """Return the serialized cell of a value of any type.

    Args:
        cql_type: the type; `frozen<>` makes no difference.
        value: as for `native.encode`; an iterable for a list, set or vector; a mapping for a map; a sequence for a
            tuple; a mapping by field for a UDT. None and missing fields of tuples and UDTs are null.
        user_types: all UDTs that the type uses.

    Raises:
        ValueError: elements of the type can't be ordered, or a UDT's fields are not given.
        TypeError, OverflowError, struct.error: a value has another Python type, or is too large.
    """

    def inner(element_type: CqlType) -> Callable[[object], bytes]:
        return lambda element: encode_nested(element_type, element, user_types)

    match unfrozen(cql_type):
        case ListType(element):
            return pack_elements(list(map(inner(element), cast("Iterable[object]", value))))
        case SetType(element):
            found = {*map(inner(element), cast("Iterable[object]", value))}
            return pack_elements(sorted(found, key=order_of(element, user_types)))
        case MapType(key, element):
            items = cast("Mapping[object, object]", value).items()
            pairs = {inner(key)(name): inner(element)(item) for name, item in items}
            return pack_pairs([(name, pairs[name]) for name in sorted(pairs, key=order_of(key, user_types))])
        case TupleType(elements):
            parts = zip(elements, cast("Iterable[object]", value), strict=True)
            return pack_fields(None if part is None else inner(element)(part) for element, part in parts)
        case UdtType() as udt:
            given = cast("Mapping[str, object]", value)
            named = ((given.get(name), field) for name, field in fields_of(udt, user_types))
            return pack_fields(None if part is None else inner(field)(part) for part, field in named)
        case VectorType(element):
            return pack_vector(map(inner(element), cast("Iterable[object]", value)), element)
        case scalar:
            return encode(scalar, value)


@dataclass(frozen=True, slots=True)
class Draw:
    """Draws values of any type.

    Attributes:
        random: the source of randomness.
        user_types: all UDTs that the types use.
        extremes: share of extreme values among scalars.
        most: the largest number of elements of a collection.
        nulls: share of null fields in tuples and UDTs.
    """

    random: Random
    user_types: UserTypes = ()
    extremes: float = 0.125
    most: int = 3
    nulls: float = 0.15

    def value(self, cql_type: CqlType) -> bytes:
        """Return a serialized value; collections inside may be empty."""
        return self._draw(cql_type, self.extremes)

    def key(self, cql_type: CqlType) -> bytes:
        """Return a serialized key or element of a set. No two values are equal but serialized differently."""
        return self._draw(cql_type, None)

    def _draw(self, cql_type: CqlType, extremes: float | None) -> bytes:
        count = self.random.randint(0, self.most)
        match unfrozen(cql_type):
            case NativeType(name):
                if extremes is None:
                    return draw(name, self.random, 0.0 if name in EQUAL_BUT_DIFFERENT else self.extremes)
                return draw(name, self.random, extremes)
            case ListType(element):
                return pack_elements([self._draw(element, extremes) for _ in range(count)])
            case SetType(element):
                found = {self._draw(element, None) for _ in range(count)}
                return pack_elements(sorted(found, key=order_of(element, self.user_types)))
            case MapType(key, element):
                pairs = {self._draw(key, None): self._draw(element, extremes) for _ in range(count)}
                order = order_of(key, self.user_types)
                return pack_pairs([(name, pairs[name]) for name in sorted(pairs, key=order)])
            case TupleType(elements):
                return pack_fields([self._field(element, extremes) for element in elements])
            case UdtType() as udt:
                return pack_fields([self._field(field, extremes) for _name, field in fields_of(udt, self.user_types)])
            case VectorType(element, dimension):
                return pack_vector([self._draw(element, extremes) for _ in range(dimension)], element)
        raise ValueError(f"values of type {cql_type} can't be made here")

    def _field(self, cql_type: CqlType, extremes: float | None) -> bytes | None:
        return None if self.random.random() < self.nulls else self._draw(cql_type, extremes)
