"""Serialized values of CQL's scalar types, from Python values or at random, including extremes. Pure."""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Callable, Mapping
from decimal import Decimal
from random import Random
from struct import pack
from typing import Final, NamedTuple, cast
from uuid import UUID

from bridge.model.times import MAX_MICROS, MIN_MICROS, UnixMicros, timeuuid_of
from schemas.cql.types import CqlType

_DAY_NS: Final = 86_400_000_000_000
_INT32: Final = 1 << 31
_INT64: Final = 1 << 63


class Duration(NamedTuple):
    """A CQL duration; all three parts have the same sign."""

    months: int
    days: int
    nanoseconds: int


def _integer(width_bytes: int) -> Callable[[object], bytes]:
    return lambda value: cast("int", value).to_bytes(width_bytes, "big", signed=True)


def _varint(value: object) -> bytes:
    number = cast("int", value)
    # As many bytes as the number and its sign bit need, at least one.
    bits = (number if number >= 0 else ~number).bit_length() + 1
    return number.to_bytes(-(-bits // 8), "big", signed=True)


def _decimal(value: object) -> bytes:
    sign, digits, exponent = cast("Decimal", value).as_tuple()
    if not isinstance(exponent, int):
        raise TypeError(f"CQL's decimal has no {value}")
    unscaled = int("".join(map(str, digits)) or "0")
    return pack(">i", -exponent) + _varint(-unscaled if sign else unscaled)


def _vint(value: int) -> bytes:
    """Return a signed vint: zigzag, with the number of further bytes as leading ones of the first byte."""
    number = (value << 1) ^ (value >> 63)
    extra = min(max(0, (number.bit_length() - 1) // 7), 8)
    if extra == 8:
        return b"\xff" + number.to_bytes(8, "big")
    ones = 0xFF & ~(0xFF >> extra)
    raw = bytearray(number.to_bytes(extra + 1, "big"))
    raw[0] |= ones
    return bytes(raw)


def _duration(value: object) -> bytes:
    return b"".join(_vint(part) for part in cast("Duration", value))


def _text(value: object) -> bytes:
    return cast("str", value).encode()


_ENCODERS: Final[Mapping[str, Callable[[object], bytes]]] = {
    "ascii": lambda value: cast("str", value).encode("ascii"),
    "bigint": _integer(8),
    "blob": lambda value: bytes(cast("bytes", value)),
    "boolean": lambda value: b"\x01" if value else b"\x00",
    "date": lambda value: (cast("int", value) + _INT32).to_bytes(4, "big"),
    "decimal": _decimal,
    "double": lambda value: pack(">d", value),
    "duration": _duration,
    "float": lambda value: pack(">f", value),
    "inet": lambda value: ipaddress.ip_address(cast("str", value)).packed,
    "int": _integer(4),
    "smallint": _integer(2),
    "text": _text,
    "time": _integer(8),
    "timestamp": _integer(8),
    "timeuuid": lambda value: cast("UUID", value).bytes,
    "tinyint": _integer(1),
    "uuid": lambda value: cast("UUID", value).bytes,
    "varchar": _text,
    "varint": _varint,
}


def encode(cql_type: CqlType, value: object) -> bytes:
    """Return the serialized cell of a value.

    Args:
        cql_type: a scalar type.
        value: an int for the integers, `date` (days since the epoch), `time` (ns of the day) and `timestamp` (ms
            since the epoch); a str for texts and `inet`; a `Decimal`, `Duration`, `UUID`, float, bool or bytes.

    Raises:
        ValueError: the type is not a scalar, or the value does not fit it.
        TypeError, OverflowError, struct.error: the value has another Python type, or is too large.
    """
    encoder = _ENCODERS.get(str(cql_type))
    if encoder is None:
        raise ValueError(f"values of type {cql_type} can't be made here")
    return encoder(value)


_LETTERS: Final = string.ascii_letters + string.digits + " _-."
_WIDE_LETTERS: Final = _LETTERS + "äßéñ\"'\\/\n\t€漢字かな한글😀🚲\u0000\u2028"


def _letters(alphabet: str, most: int) -> Callable[[Random], bytes]:
    def draw(random: Random) -> bytes:
        return "".join(random.choices(alphabet, k=random.randint(1, most))).encode()

    return draw


def _draw_duration(random: Random) -> bytes:
    sign = random.choice((1, -1))
    parts = (random.randrange(1 << 20), random.randrange(1 << 20), random.randrange(1 << 60))
    return _duration(Duration(*(sign * part for part in parts)))


def _draw_decimal(random: Random) -> bytes:
    return pack(">i", random.randint(-20, 20)) + _draw_varint(random)


def _draw_varint(random: Random) -> bytes:
    return _varint(random.randint(-1, 1) * random.getrandbits(random.randint(1, 200)))


def _draw_timeuuid(random: Random) -> bytes:
    return timeuuid_of(UnixMicros(random.randrange(4_000_000_000_000_000)), _rfc_low(random))


def _rfc_low(random: Random) -> bytes:
    return bytes((0x80 | random.getrandbits(6),)) + random.randbytes(7)


_DRAWS: Final[Mapping[str, Callable[[Random], bytes]]] = {
    "ascii": _letters(_LETTERS, 24),
    "bigint": lambda random: random.randbytes(8),
    "blob": lambda random: random.randbytes(random.randint(1, 40)),
    "boolean": lambda random: random.choice((b"\x00", b"\x01")),
    # Days of the years 1 to 9999, the range of Python's date and of many consumers.
    "date": lambda random: (random.randint(-719_162, 2_932_896) + _INT32).to_bytes(4, "big"),
    "decimal": _draw_decimal,
    "double": lambda random: pack(">d", random.gauss(0, 1e6)),
    "duration": _draw_duration,
    "float": lambda random: pack(">f", random.gauss(0, 1e6)),
    "inet": lambda random: random.randbytes(random.choice((4, 16))),
    "int": lambda random: random.randbytes(4),
    "smallint": lambda random: random.randbytes(2),
    "text": _letters(_WIDE_LETTERS, 24),
    "time": lambda random: random.randrange(_DAY_NS).to_bytes(8, "big"),
    "timestamp": lambda random: random.randrange(4_000_000_000_000).to_bytes(8, "big"),
    "timeuuid": _draw_timeuuid,
    "tinyint": lambda random: random.randbytes(1),
    "uuid": lambda random: UUID(bytes=random.randbytes(16), version=4).bytes,
    "varchar": _letters(_WIDE_LETTERS, 24),
    "varint": _draw_varint,
}

_FLOATS: Final = (0.0, -0.0, 1.0, -1.5, float("inf"), float("-inf"), float("nan"))
_INTEGERS: Final = (0, 1, -1)


def _bounds(bits: int) -> tuple[int, ...]:
    return (*_INTEGERS, (1 << (bits - 1)) - 1, -(1 << (bits - 1)))


_EXTREME_VALUES: Final[Mapping[str, tuple[object, ...]]] = {
    "ascii": ("", " ", "\x00", "\x7f", "null", "x" * 1000),
    "bigint": _bounds(64),
    "blob": (b"", b"\x00", b"\xff" * 16, bytes(range(256))),
    "boolean": (False, True),
    "date": (*_INTEGERS, -_INT32, _INT32 - 1, -719_162, 2_932_896),
    "decimal": tuple(map(Decimal, ("0", "-0", "0.00", "1E+30", "-1E-30", "99999999999999999999.99", "-0.1"))),
    "double": (*_FLOATS, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324),
    "duration": (
        Duration(0, 0, 0),
        Duration(_INT32 - 1, _INT32 - 1, _INT64 - 1),
        Duration(-_INT32 + 1, -_INT32 + 1, -_INT64 + 1),
        Duration(0, 0, -1),
    ),
    "float": (*_FLOATS, 3.4028234663852886e38, -3.4028234663852886e38, 1.401298464324817e-45),
    "inet": ("0.0.0.0", "255.255.255.255", "::", "::1", "::ffff:1.2.3.4", "2001:db8::1"),  # noqa: S104
    "int": _bounds(32),
    "smallint": _bounds(16),
    "text": ("", " ", "\x00", "null", "é", "é", "😀", "\uffff", "x" * 1000),
    "time": (0, 1, _DAY_NS - 1),
    "timestamp": (*_bounds(64), 253_402_300_799_999, -62_135_596_800_000),
    "timeuuid": (
        UUID(bytes=timeuuid_of(MIN_MICROS, b"\x80" * 8)),
        UUID(bytes=timeuuid_of(MAX_MICROS, b"\x7f" * 8)),
        UUID(bytes=timeuuid_of(UnixMicros(0), b"\xff" * 8)),
    ),
    "tinyint": _bounds(8),
    "uuid": (UUID(int=0), UUID(int=(1 << 128) - 1)),
    "varchar": ("", "ÿ", "null"),
    "varint": (*_bounds(64), *_bounds(128), 127, 128, -128, -129, 255, 256),
}

EXTREMES: Final[Mapping[str, tuple[bytes, ...]]] = {
    name: tuple(_ENCODERS[name](value) for value in values) for name, values in _EXTREME_VALUES.items()
}
"""The serialized values at the limits of each scalar type."""


def draw(type_name: str, random: Random, extreme_share: float = 0.125) -> bytes:
    """Return a serialized value of a scalar type; with the given probability, one of its extremes.

    Raises:
        KeyError: the type is not a scalar.
    """
    if extreme_share and random.random() < extreme_share:
        return random.choice(EXTREMES[type_name])
    return _DRAWS[type_name](random)
