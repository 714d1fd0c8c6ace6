"""Serializes the values of statements into cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from struct import error as StructError  # noqa: N812  # it is a class
from typing import Any, Final, TypeVar
from uuid import UUID

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.term_grammar import duration
from sandbox.cql.parser.terms import Call, ListTerm, MapTerm, SetTerm, Term, TupleTerm, UdtTerm, elements_of
from sandbox.scylla.values.native import Duration, encode
from sandbox.scylla.values.nested import UserTypes, fields_of, pack_elements, pack_fields, pack_pairs, pack_vector
from sandbox.scylla.values.ordering import order_of
from schemas.cql.types import (
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
)

T = TypeVar("T")

_EPOCH: Final = date(1970, 1, 1).toordinal()
_EPOCH_INSTANT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNSIGNED_EPOCH: Final = 1 << 31
_TIME: Final = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_TEXTS: Final = frozenset({"ascii", "text", "varchar"})
_INTEGERS: Final = frozenset({"bigint", "counter", "int", "smallint", "tinyint", "varint"})
_REFUSED: Final = (TypeError, ValueError, OverflowError, StructError)


class Serializer:
    """Serializes terms into cells."""

    def __init__(self, user_types: UserTypes) -> None:
        """Take the user-defined types of the keyspace."""
        self._user_types = user_types

    def cell(self, cql_type: CqlType, term: Term) -> bytes | None:
        """Serialize a term; None is null.

        Raises:
            CqlError: the value does not fit the type.
        """
        if term is None:
            return None
        if isinstance(term, Call):
            return _called(cql_type, term)
        match cql_type:
            case NativeType(name):
                return _scalar(name, term)
            case FrozenType(inner):
                return self.cell(inner, term)
            case ListType(element):
                return pack_elements([self.value(element, item) for item in elements_of(term)])
            case SetType(element):
                return pack_elements(self.set_elements(element, term))
            case MapType(key, value):
                return pack_pairs(self.map_entries(key, value, term))
            case TupleType(types):
                # A tuple value may have fewer elements than its type.
                parts = zip(types, _parts(term, len(types)), strict=False)
                return pack_fields(self.cell(kind, part) for kind, part in parts)
            case UdtType():
                given = self.udt_fields(cql_type, term)
                # A tuple literal may be shorter than the type, and so is its serialized value.
                whole = len(fields_of(cql_type, self._user_types))
                count = len(term.elements) if isinstance(term, TupleTerm) else whole
                return pack_fields(given.get(place) for place in range(count))
            case VectorType(element, dimension):
                return self._vector(element, dimension, term)

    def value(self, cql_type: CqlType, term: Term) -> bytes:
        """Serialize a term that must not be null: a key, or an element of a collection.

        Raises:
            CqlError: the value is null or does not fit the type.
        """
        cell = self.cell(cql_type, term)
        if cell is None:
            raise CqlError(f"null can't stand here, where a value of type {cql_type} is needed")
        return cell

    def set_elements(self, element: CqlType, term: Term) -> list[bytes]:
        """Serialize a set's elements, without duplicates, in the server's order.

        Raises:
            CqlError: the value is not such a set.
        """
        cells = {self.value(element, item) for item in elements_of(term)}
        return sorted(cells, key=self.order(element))

    def map_entries(self, key: CqlType, value: CqlType, term: Term) -> list[tuple[bytes, bytes]]:
        """Serialize a map's entries in the server's order of keys. The last value of a duplicate key counts.

        Raises:
            CqlError: the value is not such a map.
        """
        entries = {self.value(key, name): self.value(value, item) for name, item in _entries(term)}
        order = self.order(key)
        return sorted(entries.items(), key=lambda entry: order(entry[0]))

    def udt_fields(self, cql_type: UdtType, term: Term) -> dict[int, bytes | None]:
        """Serialize the fields that a value of a user-defined type has, by their position in the type.

        Args:
            cql_type: the type.
            term: `{name: a}`, or a tuple literal `(a, b)`, which has the first fields and may leave out the last ones.

        Raises:
            CqlError: the value is not such a value, or names a field that the type does not have.
        """
        fields = fields_of(cql_type, self._user_types)
        if isinstance(term, TupleTerm):
            parts = zip(fields, _parts(term, len(fields)), strict=False)
            return {place: self.cell(kind, part) for place, ((_name, kind), part) in enumerate(parts)}
        places = {name: (place, kind) for place, (name, kind) in enumerate(fields)}
        found: dict[int, bytes | None] = {}
        for name, item in term.fields if isinstance(term, UdtTerm) else _entries(term):
            if name not in places:
                raise CqlError(f"type {cql_type.name} has no field {name!r}; it has {', '.join(places)}")
            place, kind = places[name]
            found[place] = self.cell(kind, item)
        return found

    def field(self, cql_type: UdtType, name: str) -> tuple[int, CqlType]:
        """Return position and type of a field.

        Raises:
            CqlError: the type has no such field.
        """
        for place, (field_name, kind) in enumerate(fields_of(cql_type, self._user_types)):
            if field_name == name:
                return place, kind
        raise CqlError(f"type {cql_type.name} has no field {name!r}")

    def order(self, cql_type: CqlType) -> Callable[[bytes], Any]:
        """Return the sort key of a type's cells.

        Raises:
            ValueError: the server does not order cells of this type.
        """
        return order_of(cql_type, self._user_types)

    def _vector(self, element: CqlType, dimension: int, term: Term) -> bytes:
        cells = [self.value(element, item) for item in elements_of(term)]
        if len(cells) != dimension:
            raise CqlError(f"a vector of {dimension} elements expected, found {len(cells)}")
        return pack_vector(cells, element)


def _entries(term: Term) -> Iterable[tuple[Any, Term]]:
    match term:
        case MapTerm(entries):
            return entries
        case SetTerm(()):
            return ()
        case ListTerm(elements):
            # A bound map that has passed through JSON.
            return [(key, value) for key, value in (_parts(pair, 2) for pair in elements)]
        case _:
            raise CqlError(f"a map expected, found {term!r}")


def _parts(term: Term, most: int) -> tuple[Term, ...]:
    if not isinstance(term, TupleTerm | ListTerm):
        raise CqlError(f"a tuple expected, found {term!r}")
    if len(term.elements) > most:
        raise CqlError(f"too many elements: expected {most} at most, found {len(term.elements)}")
    return term.elements


def _called(cql_type: CqlType, call: Call) -> bytes:
    match call:
        case Call(name, (bytes(raw),)) if name.startswith("blobas"):
            return raw
        case _:
            raise CqlError(f"the function {call.name} is not understood where a value of type {cql_type} is needed")


def _scalar(name: str, term: Term) -> bytes:
    try:
        return encode(NativeType(name), _plain(name, term))
    except _REFUSED as error:
        raise CqlError(f"not a value of type {name}: {term!r} ({error})") from error


def _plain(name: str, term: Term) -> object:
    """Convert a term to the Python value that `encode` accepts for the type."""
    if name in _TEXTS and isinstance(term, str):
        return term
    if name in _INTEGERS and isinstance(term, int) and not isinstance(term, bool):
        return term
    reader = _READERS.get(name)
    if reader is None:
        raise TypeError(f"it is of Python's type {type(term).__name__}")
    return reader(term)


def _floating(term: Term) -> float:
    if isinstance(term, bool) or not isinstance(term, int | Decimal | float):
        raise TypeError("it is no number")
    return float(term)


def _exact(term: Term) -> Decimal:
    if isinstance(term, bool) or not isinstance(term, int | Decimal):
        raise TypeError("it is no finite number")
    return Decimal(term)


def _boolean(term: Term) -> bool:
    if not isinstance(term, bool):
        raise TypeError("it is neither true nor false")
    return term


def _blob(term: Term) -> bytes:
    if isinstance(term, str):
        return bytes.fromhex(term.removeprefix("0x"))
    if not isinstance(term, bytes):
        raise TypeError("it is no blob")
    return term


def _uuid(term: Term) -> UUID:
    return UUID(term) if isinstance(term, str) else _only(UUID, term)


def _duration(term: Term) -> Duration:
    return duration(term) if isinstance(term, str) else _only(Duration, term)


def _inet(term: Term) -> str:
    return _only(str, term)


def _timestamp(term: Term) -> int:
    if isinstance(term, str):
        instant = datetime.fromisoformat(term)
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        return (aware - _EPOCH_INSTANT) // timedelta(milliseconds=1)
    return _only(int, term)


def _date(term: Term) -> int:
    """Convert to days since the epoch. In a statement, a number counts from 2**31 days before the epoch."""
    if isinstance(term, str):
        return date.fromisoformat(term).toordinal() - _EPOCH
    return _only(int, term) - _UNSIGNED_EPOCH


def _time(term: Term) -> int:
    if not isinstance(term, str):
        return _only(int, term)
    match = _TIME.fullmatch(term)
    if match is None:
        raise ValueError("it is no time of day")
    hours, minutes, seconds, fraction = match.groups(default="0")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def _only(kind: type[T], term: Term) -> T:
    if isinstance(term, bool) or not isinstance(term, kind):
        raise TypeError(f"it is of Python's type {type(term).__name__}")
    return term


_READERS: Final[Mapping[str, Callable[[Term], object]]] = {
    "blob": _blob,
    "boolean": _boolean,
    "date": _date,
    "decimal": _exact,
    "double": _floating,
    "duration": _duration,
    "float": _floating,
    "inet": _inet,
    "time": _time,
    "timestamp": _timestamp,
    "timeuuid": _uuid,
    "uuid": _uuid,
}
