"""Decoders from raw CQL cells of the native types (native protocol v4 serialization) to values that fastavro writes.

The decoders are strict: a cell of the wrong length or content raises ``CellError``. Values do not pass through
``datetime``, and `Decimal` is built from exact parts, so nothing overflows or rounds at the limits. Source: CQL native
protocol v4, section 6; checked with cells recorded from a ScyllaDB 5.2 node.

For most types a zero-length cell is CQL's special "empty" value. Only text and blob have such a value in Avro. The
decoders of all other types refuse it, so a caller that accepts it (``schemas.log.cell_readers``) must check for it
before it decodes a cell.
"""

from __future__ import annotations

import ipaddress
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Final, Literal, TypeAlias, cast

from schemas.errors import CellError, UnsupportedTypeError
from schemas.options import DEFAULT_OUTPUT, OutputOptions

Decoder: TypeAlias = Callable[[bytes], object]
"""Bytes of a cell that is neither null nor "empty" -> its value; raises a CellError that names no column."""

DATE_OF_EPOCH: Final = 1 << 31
"""CQL's number of 1970-01-01: dates are unsigned days with this day in the middle of the range."""

SCALE_BYTES: Final = 4
"""Width of the scale, a signed number, at the beginning of a decimal; the rest is the unscaled value."""

_DECIMALS: Final = frozenset({"decimal", "varint"})
_LONGEST_CONVERTED_BYTES: Final = 8192
"""Longer decimals are not converted to digits, because the time for this grows with the square of the length."""

_DURATION_PARTS: Final = (("months", 32), ("days", 32), ("nanoseconds", 64))
_MAPPED_IPV4: Final = bytes(10) + b"\xff\xff"
_IPV4_BYTES: Final = 4
_IPV6_BYTES: Final = 16


def scalar_decoder(name: str, output: OutputOptions = DEFAULT_OUTPUT) -> Decoder:
    """Return the function that decodes cells of a native type.

    Raises:
        UnsupportedTypeError: the type has no Avro form.
    """
    if name in _DECIMALS and output.decimals != "record":
        return _converted_decimal_decoder(name, output.decimals)
    if name == "timestamp" and output.timestamps == "timestamp-micros":
        return _millis_to_micros_decoder(name)
    if name == "time" and output.times == "time-micros":
        return _nanos_to_micros_decoder(name)
    if name in _STRUCTS:
        return _fixed_width_decoder(name, _STRUCTS[name])
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


def _length_error(cql_type: str, wanted: str, raw: bytes) -> CellError:
    return CellError(cql_type, f"must be {wanted} bytes long", len(raw))


def _fixed_width_decoder(cql_type: str, layout: str) -> Decoder:
    one = struct.Struct(layout)
    unpack, width = one.unpack, one.size

    def decode(raw: bytes) -> object:
        if len(raw) != width:
            raise _length_error(cql_type, str(width), raw)
        (value,) = unpack(raw)
        return value

    return decode


def _boolean_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> bool:
        if len(raw) != 1:
            raise _length_error(cql_type, "1", raw)
        return raw != b"\x00"

    return decode


def _date_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> int:
        if len(raw) != 4:
            raise _length_error(cql_type, "4", raw)
        return int.from_bytes(raw, "big") - DATE_OF_EPOCH

    return decode


def _string_decoder(encoding: str) -> Callable[[str], Decoder]:
    def of(cql_type: str) -> Decoder:
        def decode(raw: bytes) -> str:
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError as error:
                at = error.start
            # Outside of the handler: the codec's error holds the cell, and would be this error's context.
            raise CellError(cql_type, f"not valid {encoding} at byte {at}", len(raw))

        return decode

    return of


def _blob_decoder(_cql_type: str) -> Decoder:
    return bytes


def _uuid_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> str:
        if len(raw) != 16:
            raise _length_error(cql_type, "16", raw)
        text = raw.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    return decode


def _inet_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> str:
        if len(raw) == _IPV4_BYTES:
            return str(ipaddress.IPv4Address(raw))
        if len(raw) != _IPV6_BYTES:
            raise _length_error(cql_type, "4 or 16", raw)
        if raw.startswith(_MAPPED_IPV4):
            # str() of such an address differs between Python 3.11 and 3.13, so this code makes the text.
            return f"::ffff:{ipaddress.IPv4Address(raw[12:])}"
        return str(ipaddress.IPv6Address(raw))

    return decode


def _varint_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        if not raw:
            raise _length_error(cql_type, "1 or more", raw)
        return {"scale": 0, "value": raw}

    return decode


def _decimal_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        if len(raw) <= SCALE_BYTES:
            raise _length_error(cql_type, "5 or more", raw)
        scale = int.from_bytes(raw[:SCALE_BYTES], "big", signed=True)
        return {"scale": scale, "value": raw[SCALE_BYTES:]}

    return decode


def _converted_decimal_decoder(cql_type: str, form: Literal["string", "double"]) -> Decoder:
    """Return the decoder of a decimal or varint to a string or a double."""
    parts = _decimal_decoder(cql_type) if cql_type == "decimal" else _varint_decoder(cql_type)

    def decode(raw: bytes) -> str | float:
        value = parts(raw)
        assert isinstance(value, dict)
        if len(value["value"]) > _LONGEST_CONVERTED_BYTES:
            reason = f"has an unscaled value of more than {_LONGEST_CONVERTED_BYTES} bytes, too long for a {form}"
            raise CellError(cql_type, reason, len(raw))
        sign, digits, _ = Decimal(int.from_bytes(value["value"], "big", signed=True)).as_tuple()
        # Arithmetic would round to the context's precision; the constructor is exact at any scale.
        number = Decimal((sign, digits, -value["scale"]))
        if form == "string":
            return str(number)
        nearest = float(number)
        if math.isinf(nearest):
            raise CellError(cql_type, "is beyond the range of a double", len(raw))
        return nearest

    return decode


def _millis_to_micros_decoder(cql_type: str) -> Decoder:
    millis = _fixed_width_decoder(cql_type, ">q")

    def decode(raw: bytes) -> int:
        micros = 1000 * cast("int", millis(raw))
        if not -(1 << 63) <= micros < 1 << 63:
            raise CellError(cql_type, "does not fit in 64 bits as microseconds", len(raw))
        return micros

    return decode


def _nanos_to_micros_decoder(cql_type: str) -> Decoder:
    nanos = _fixed_width_decoder(cql_type, ">q")
    return lambda raw: cast("int", nanos(raw)) // 1000


def _duration_decoder(cql_type: str) -> Decoder:
    def decode(raw: bytes) -> dict[str, object]:
        value: dict[str, object] = {}
        at = 0
        for part, bits in _DURATION_PARTS:
            unsigned, at = unsigned_vint(cql_type, raw, at)
            if unsigned >> bits:
                raise CellError(cql_type, f"{part} do not fit in {bits} bits", len(raw))
            value[part] = (unsigned >> 1) ^ -(unsigned & 1)
        if at != len(raw):
            raise CellError(cql_type, f"{len(raw) - at} bytes after the end of the duration", len(raw))
        return value

    return decode


def unsigned_vint(cql_type: str, raw: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned vint at `at`, and the place behind it.

    The number of leading one bits of the first byte is the number of bytes that follow. The rest of the first byte
    and those bytes are the value, big-endian.

    Args:
        cql_type: the type's text, for error messages.
        raw: the cell.
        at: where the vint begins.

    Raises:
        CellError: the cell ends inside the vint.
    """
    if at < len(raw):
        first = raw[at]
        more = 8 - (first ^ 0xFF).bit_length()
        end = at + 1 + more
        if end <= len(raw):
            head = first & (0xFF >> more)
            return (head << (8 * more)) | int.from_bytes(raw[at + 1 : end], "big"), end
    raise CellError(cql_type, "the cell ends too early", len(raw))


_OTHERS: Final[dict[str, Callable[[str], Decoder]]] = {
    "ascii": _string_decoder("ascii"),
    "blob": _blob_decoder,
    "boolean": _boolean_decoder,
    "date": _date_decoder,
    "decimal": _decimal_decoder,
    "duration": _duration_decoder,
    "inet": _inet_decoder,
    "text": _string_decoder("utf-8"),
    "timeuuid": _uuid_decoder,
    "uuid": _uuid_decoder,
    "varchar": _string_decoder("utf-8"),
    "varint": _varint_decoder,
}
