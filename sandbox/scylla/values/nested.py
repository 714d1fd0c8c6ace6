"""Packs and unpacks serialized collections, tuples, UDTs and vectors, without decoding their elements. Pure.

A resolved user-defined type has its fields (`schemas.cql.types.resolve`). For others, the caller passes `UserType`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from schemas.cql.types import (
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    UdtType,
    VectorType,
    user_types,
)

_INT: Final = Struct(">i")
_NULL: Final = b"\xff\xff\xff\xff"
_FIXED_IN_VECTORS: Final = {
    "bigint": 8,
    "boolean": 1,
    "double": 8,
    "float": 4,
    "int": 4,
    "timestamp": 8,
    "timeuuid": 16,
    "uuid": 16,
}
"""Widths in bytes of the types whose elements have no length in a vector. The server has no others."""


@dataclass(frozen=True, slots=True)
class UserType:
    """A user-defined type.

    Attributes:
        name: without quotes.
        fields: names and types in the order of CREATE and ALTER TYPE.
    """

    name: str
    fields: tuple[tuple[str, CqlType], ...]


UserTypes = tuple[UserType, ...]


def fields_of(udt: UdtType, user_types: UserTypes) -> tuple[tuple[str, CqlType], ...]:
    """Return names and types of a UDT's fields: its own, or those of the user type of its name.

    Raises:
        ValueError: the type is not resolved, and not among those given.
    """
    if udt.fields:
        return udt.fields
    for user_type in user_types:
        if user_type.name == udt.name:
            return user_type.fields
    raise ValueError(f"the fields of type {udt} are not given; known are {[entry.name for entry in user_types]}")


def needed_types(cql_types: Iterable[CqlType], known: UserTypes) -> UserTypes:
    """The user-defined types that types name, and those that these name in turn, each behind those that it names."""
    by_name = {user_type.name: user_type for user_type in known}
    found: dict[str, UserType] = {}

    def add(cql_type: CqlType) -> None:
        for udt in user_types(cql_type):
            if udt.name in by_name and udt.name not in found:
                for _name, field in by_name[udt.name].fields:
                    add(field)
                found[udt.name] = by_name[udt.name]

    for cql_type in cql_types:
        add(cql_type)
    return tuple(found.values())


def is_multi_cell(cql_type: CqlType) -> bool:
    """Return whether a column of this type is stored element by element."""
    return isinstance(cql_type, ListType | SetType | MapType | UdtType)


def unfrozen(cql_type: CqlType) -> CqlType:
    """Return the type without `frozen<>` around it."""
    while isinstance(cql_type, FrozenType):
        cql_type = cql_type.inner
    return cql_type


def pack_elements(elements: Sequence[bytes]) -> bytes:
    """Return a serialized list or set."""
    return _INT.pack(len(elements)) + b"".join(_INT.pack(len(element)) + element for element in elements)


def pack_pairs(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return a serialized map."""
    flat = b"".join(_INT.pack(len(part)) + part for pair in pairs for part in pair)
    return _INT.pack(len(pairs)) + flat


def pack_fields(fields: Iterable[bytes | None]) -> bytes:
    """Return a serialized tuple or UDT."""
    return b"".join(_NULL if field is None else _INT.pack(len(field)) + field for field in fields)


def pack_vector(elements: Iterable[bytes], element_type: CqlType) -> bytes:
    """Return a serialized vector. An element of variable width has its length before it, as a vint."""
    if vector_width(element_type) is not None:
        return b"".join(elements)
    return b"".join(pack_unsigned_vint(len(element)) + element for element in elements)


def unpack_elements(raw: bytes) -> list[bytes]:
    """Return the elements of a serialized list or set."""
    return [part for part in _parts(raw, 4) if part is not None]


def unpack_pairs(raw: bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and values of a serialized map."""
    flat = unpack_elements(raw)
    return list(zip(flat[::2], flat[1::2], strict=True))


def unpack_fields(raw: bytes) -> list[bytes | None]:
    """Return the fields of a serialized tuple or UDT. Those that ALTER TYPE added later may be missing."""
    return _parts(raw, 0)


def unpack_vector(raw: bytes, vector: VectorType) -> list[bytes]:
    """Return the elements of a serialized vector."""
    width, at, elements = vector_width(vector.element), 0, []
    for _ in range(vector.dimension):
        length = width
        if length is None:
            length, at = _unsigned_vint(raw, at)
        elements.append(raw[at : at + length])
        at += length
    return elements


def vector_width(element: CqlType) -> int | None:
    """Return the width of a vector's element in bytes; None if it varies."""
    match unfrozen(element):
        case NativeType(name):
            return _FIXED_IN_VECTORS.get(name)
        case VectorType(inner, dimension):
            width = vector_width(inner)
            return None if width is None else width * dimension
    return None


def pack_unsigned_vint(number: int) -> bytes:
    """Return an unsigned vint: the first byte's leading ones count the further bytes."""
    extra = min(max(0, (number.bit_length() - 1) // 7), 8)
    if extra == 8:
        return b"\xff" + number.to_bytes(8, "big")
    raw = bytearray(number.to_bytes(extra + 1, "big"))
    raw[0] |= 0xFF & ~(0xFF >> extra)
    return bytes(raw)


def _unsigned_vint(raw: bytes, at: int) -> tuple[int, int]:
    first = raw[at]
    extra = 0
    while extra < 8 and first & (0x80 >> extra):
        extra += 1
    body = bytes((first & (0xFF >> extra),)) + raw[at + 1 : at + 1 + extra]
    return int.from_bytes(body, "big"), at + 1 + extra


def _parts(raw: bytes, at: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    while at < len(raw):
        (length,) = _INT.unpack_from(raw, at)
        at += 4
        found.append(None if length < 0 else raw[at : at + length])
        at += max(length, 0)
    return found
