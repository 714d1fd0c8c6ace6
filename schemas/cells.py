"""Raw CQL cells (native protocol v4 serialization) to the values that fastavro writes.

Strict: a cell of the wrong length or content raises ``CellError``, it is never guessed at.
Nothing passes through ``datetime`` or ``Decimal``, so nothing overflows or rounds at the
limits. Source: CQL native protocol v4, section 6; checked with cells recorded from a
ScyllaDB 5.2 node.

The zero-length cell is CQL's odd "empty" value for most types. Only text and blob have such a
value in Avro; the decoders of all other types refuse it, and who wants to carry it
(``schemas.envelope``) must ask before decoding.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from schemas.cql_types import CqlType, NativeType
from schemas.errors import CellError, UnsupportedTypeError
from schemas.type_visitor import TypeVisitor, visit

Decoder: TypeAlias = Callable[[bytes], object]
"""One cell's bytes, neither null nor "empty" -> the value; raises CellError without a column."""

DATE_OF_EPOCH: Final = 1 << 31
"""CQL dates count days unsigned with 1970-01-01 in the middle of the range."""

SCALE_BYTES: Final = 4
"""A decimal begins with its scale, a signed number; the rest is its unscaled value."""

_DURATION_PARTS: Final = (("months", 32), ("days", 32), ("nanoseconds", 64))
_MAPPED_IPV4: Final = bytes(10) + b"\xff\xff"
_IPV4_BYTES: Final = 4
_IPV6_BYTES: Final = 16


def decoder(cql_type: CqlType) -> Decoder:
    """Return the function that decodes cells of a type; resolve it once, not per cell.

    Raises:
        UnsupportedTypeError: the type has no Avro form yet.
    """
    return visit(cql_type, _Decoders())


class _Decoders(TypeVisitor[Decoder]):
    """Decoder of each kind of type."""

    def native(self, cql_type: NativeType) -> Decoder:
        """Return the decoder of a scalar."""
        name = cql_type.name
        if name in _STRUCTS:
            return _fixed_width(name, _STRUCTS[name])
        if name not in _OTHERS:
            raise UnsupportedTypeError(name)
        return _OTHERS[name](name)


_STRUCTS: Final[dict[str, str]] = {
    "bigint": ">q",
    "counter": ">q",
    "double": ">d",
    "float": ">f",
    "int": ">i",
    "smallint": ">h",
    "time": ">q",
    "timestamp": ">q",
    "tinyint": ">b",
}


def _wrong_length(cql_type: str, wanted: str, raw: bytes) -> CellError:
    return CellError(cql_type, f"must be {wanted} bytes long", raw)


def _fixed_width(cql_type: str, layout: str) -> Decoder:
    one = struct.Struct(layout)
    unpack, width = one.unpack, one.size

    def decode(raw: bytes) -> object:
        if len(raw) != width:
            raise _wrong_length(cql_type, str(width), raw)
        (value,) = unpack(raw)
        return value

    return decode


def _boolean(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> bool:
        if len(raw) != 1:
            raise _wrong_length(cql_type, "1", raw)
        return raw != b"\x00"

    return decode


def _date(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> int:
        if len(raw) != 4:
            raise _wrong_length(cql_type, "4", raw)
        return int.from_bytes(raw, "big") - DATE_OF_EPOCH

    return decode


def _string(encoding: str) -> Callable[[str], Decoder]:
    def of(cql_type: str) -> Decoder:
        def decode(raw: bytes) -> str:
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise CellError(cql_type, f"not valid {encoding} at byte {error.start}", raw) from error

        return decode

    return of


def _blob(_cql_type: str) -> Decoder:
    return bytes


def _uuid(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> str:
        if len(raw) != 16:
            raise _wrong_length(cql_type, "16", raw)
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return decode


def _inet(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> str:
        if len(raw) == _IPV4_BYTES:
            return str(ipaddress.IPv4Address(raw))
        if len(raw) != _IPV6_BYTES:
            raise _wrong_length(cql_type, "4 or 16", raw)
        if raw.startswith(_MAPPED_IPV4):
            # Spelled out, since Python 3.13 changed how it prints these addresses.
            return f"::ffff:{ipaddress.IPv4Address(raw[12:])}"
        return str(ipaddress.IPv6Address(raw))

    return decode


def _varint(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        if not raw:
            raise _wrong_length(cql_type, "1 or more", raw)
        return {"scale": 0, "value": raw}

    return decode


def _decimal(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        if len(raw) <= SCALE_BYTES:
            raise _wrong_length(cql_type, "5 or more", raw)
        scale = int.from_bytes(raw[:SCALE_BYTES], "big", signed=True)
        return {"scale": scale, "value": raw[SCALE_BYTES:]}

    return decode


def _duration(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        value: dict[str, object] = {}
        at = 0
        for part, bits in _DURATION_PARTS:
            unsigned, at = _unsigned_vint(cql_type, raw, at)
            if unsigned >> bits:
                raise CellError(cql_type, f"{part} do not fit in {bits} bits", raw)
            value[part] = (unsigned >> 1) ^ -(unsigned & 1)
        if at != len(raw):
            raise CellError(cql_type, f"{len(raw) - at} bytes after the end of the duration", raw)
        return value

    return decode


def _unsigned_vint(cql_type: str, raw: bytes, at: int) -> tuple[int, int]:
    """Read one of Cassandra's vints at `at`; return it and where the next one begins.

    The number of leading one bits of the first byte is the number of bytes that follow; the
    rest of the first byte and those bytes are the value, big-endian.
    """
    if at < len(raw):
        first = raw[at]
        more = 8 - (first ^ 0xFF).bit_length()
        end = at + 1 + more
        if end <= len(raw):
            head = first & (0xFF >> more)
            return (head << (8 * more)) | int.from_bytes(raw[at + 1 : end], "big"), end
    raise CellError(cql_type, "the duration ends too early", raw)


_OTHERS: Final[dict[str, Callable[[str], Decoder]]] = {
    "ascii": _string("ascii"),
    "blob": _blob,
    "boolean": _boolean,
    "date": _date,
    "decimal": _decimal,
    "duration": _duration,
    "inet": _inet,
    "text": _string("utf-8"),
    "timeuuid": _uuid,
    "uuid": _uuid,
    "varchar": _string("utf-8"),
    "varint": _varint,
}
