"""The order of clustering rows, as the server compares serialized values of each scalar type. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import copysign, isnan
from struct import unpack
from typing import Any, Final, TypeVar

from bridge.model.times import sort_key

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
    version = raw[6] >> 4
    return (version, sort_key(raw) if version == 1 else raw)


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


def order_of(type_name: str) -> OrderKey:
    """A key function that sorts serialized values of a scalar type as the server does; empty values come first.

    Raises:
        ValueError: the type is no scalar that may stand in a clustering key.
    """
    key = _ORDERS.get(type_name)
    if key is None:
        raise ValueError(f"a value of type {type_name} can't be ordered here")
    return lambda raw: (1, key(raw)) if raw else (0,)


class ClusteringOrder:
    """Sorts rows of one table into clustering order."""

    def __init__(self, type_names: Sequence[str], descending: Sequence[bool]) -> None:
        """Take the clustering columns' types and directions, by position.

        Raises:
            ValueError: as `order_of`.
        """
        self._columns = [(order_of(name), reverse) for name, reverse in zip(type_names, descending, strict=True)]

    def sorted(self, rows: Iterable[T], key: Callable[[T], Key]) -> list[T]:
        """The rows in clustering order of their keys."""
        found = list(rows)
        if len(found) < 2:
            return found
        # Sorting is stable, so the last column is sorted first; a reversed order has no key function of its own.
        for position in reversed(range(len(self._columns))):
            order, reverse = self._columns[position]
            found.sort(key=lambda row, at=position, order=order: order(key(row)[at]), reverse=reverse)  # type: ignore[misc]
        return found
