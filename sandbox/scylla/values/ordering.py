"""The order of clustering rows: compares serialized values of each type as the server does. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import total_ordering
from math import copysign, isnan
from struct import unpack
from typing import Any, Final, TypeVar

from bridge.model.times import sort_key
from sandbox.scylla.values.nested import (
    UserTypes,
    fields_of,
    unfrozen,
    unpack_elements,
    unpack_fields,
    unpack_pairs,
    unpack_vector,
)
from schemas.cql.types import CqlType, ListType, MapType, NativeType, SetType, TupleType, UdtType, VectorType

Key = tuple[bytes, ...]
"""The cells of a partition or clustering key, serialized, by position."""

OrderKey = Callable[[bytes], Any]
T = TypeVar("T")


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big", signed=True)


def _unsigned(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _float(raw: bytes) -> tuple[bool, float, float]:
    (value,) = unpack(">f" if len(raw) == 4 else ">d", raw)
    # NaN is the greatest; -0.0 comes before 0.0.
    return (True, 0.0, 0.0) if isnan(value) else (False, value, copysign(1.0, value))


def _decimal(raw: bytes) -> Decimal:
    unscaled = _number(raw[4:])
    digits = tuple(map(int, str(abs(unscaled))))
    return Decimal((int(unscaled < 0), digits, -_number(raw[:4])))


def _uuid(raw: bytes) -> tuple[int, bytes]:
    # The type uuid compares the last 8 bytes unsigned, also those of version 1; the type timeuuid compares them signed.
    version = raw[6] >> 4
    return (version, raw[6:8] + raw[4:6] + raw[:4] + raw[8:] if version == 1 else raw)


_ORDERS: Final[Mapping[str, OrderKey]] = {
    **dict.fromkeys(("ascii", "blob", "inet", "text", "varchar", "boolean"), bytes),
    **dict.fromkeys(("bigint", "int", "smallint", "time", "timestamp", "tinyint", "varint"), _number),
    "date": _unsigned,
    "decimal": _decimal,
    "double": _float,
    "float": _float,
    "timeuuid": sort_key,
    "uuid": _uuid,
}


def order_of(cql_type: CqlType, user_types: UserTypes = ()) -> OrderKey:
    """Return a key function that sorts serialized values of a type as the server does; empty values come first.

    Raises:
        ValueError: the server has no order of the type, or a UDT's fields are not given.
    """
    key = _order(cql_type, user_types)
    return lambda raw: (1, key(raw)) if raw else (0,)


def _order(cql_type: CqlType, user_types: UserTypes) -> OrderKey:
    match unfrozen(cql_type):
        case NativeType(name) if name in _ORDERS:
            return _ORDERS[name]
        case ListType(element) | SetType(element):
            inner = order_of(element, user_types)
            return lambda raw: [inner(part) for part in unpack_elements(raw)]
        case MapType(key, value):
            of_key, of_value = order_of(key, user_types), order_of(value, user_types)
            return lambda raw: [(of_key(first), of_value(second)) for first, second in unpack_pairs(raw)]
        case TupleType(elements):
            return _by_fields([order_of(element, user_types) for element in elements])
        case UdtType() as udt:
            return _by_fields([order_of(field, user_types) for _name, field in fields_of(udt, user_types)])
        case VectorType(element) as vector:
            inner = order_of(element, user_types)
            return lambda raw: [inner(part) for part in unpack_vector(raw, vector)]
    raise ValueError(f"a value of type {cql_type} can't be ordered here")


def _by_fields(orders: Sequence[OrderKey]) -> OrderKey:
    def key(raw: bytes) -> list[Any]:
        fields = unpack_fields(raw)
        return [(-1,) if field is None else order(field) for order, field in zip(orders, fields, strict=False)]

    return key


@total_ordering
class _Descending:
    """A sort key in descending order."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        self.key = key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and bool(self.key == other.key)

    def __lt__(self, other: _Descending) -> bool:
        return bool(other.key < self.key)

    __hash__ = None  # type: ignore[assignment]


Position = tuple[Any, ...]
"""The place of a row or of a bound in a partition. Positions of one table can be compared."""


class ClusteringOrder:
    """Sorts rows of one table into clustering order, and compares the bounds of ranges with them."""

    def __init__(self, types: Sequence[CqlType], descending: Sequence[bool], user_types: UserTypes = ()) -> None:
        """Create the order from the clustering columns' types and directions, by position.

        Raises:
            ValueError: as `order_of`.
        """
        orders = [order_of(cql_type, user_types) for cql_type in types]
        self._columns = list(zip(orders, descending, strict=True))
        self.descending = tuple(descending)

    def sorted(self, rows: Iterable[T], key: Callable[[T], Key]) -> list[T]:
        """Return the rows in clustering order of their keys."""
        found = list(rows)
        if len(found) < 2:
            return found
        # Sorting is stable, so the last column is sorted first; a reversed order has no key function of its own.
        for position in reversed(range(len(self._columns))):
            order, reverse = self._columns[position]
            found.sort(key=lambda row, at=position, order=order: order(key(row)[at]), reverse=reverse)  # type: ignore[misc]
        return found

    def position(self, prefix: Key, weight: int = 0) -> Position:
        """Return the position of a key, or of the bound directly before (-1) or after (1) all rows with a prefix."""
        parts = zip(prefix, self._columns, strict=False)
        keys = ((0, _Descending(order(cell)) if reverse else order(cell)) for cell, (order, reverse) in parts)
        return (*keys, (weight,))
