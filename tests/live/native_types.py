"""CQL's scalar types. `tests.live.cql_types` describes what a type can do."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from uuid import UUID

Value = Any
"""A value of `of_record` and `of_driver`: hashable, and equal exactly if the CQL values are."""


@dataclass(frozen=True, slots=True)
class Native:
    """A scalar type.

    Attributes:
        cql: the type's name.
        literal: returns a random literal.
        of_record: converts a decoded Avro value.
        of_driver: converts a value of the driver.
        pack: serializes a decoded Avro value.
        order: returns the sort key of a decoded Avro value as a clustering column.
    """

    cql: str
    literal: Callable[[Random], str]
    of_record: Callable[[Any], Value]
    of_driver: Callable[[Any], Value]
    pack: Callable[[Any], bytes]
    order: Callable[[Any], Any]

    @property
    def is_multi_cell(self) -> bool:
        return False


def _same(value: Any) -> Any:
    return value


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_TEXTS: Final = ("", "a", "it's", "żółć", "line\nbreak", '"quoted"', "0x00", "zz top", "😀", "a" * 200)


def _packer(form: str) -> Callable[[Any], bytes]:
    made = struct.Struct(form)
    return lambda value: made.pack(value)


def _integer(name: str, bits: int, form: str) -> Native:
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def literal(random: Random) -> str:
        edge = random.random() < 0.1
        return str(random.choice((lowest, highest, 0, -1)) if edge else random.randint(-99, 99))

    return Native(name, literal, _same, _same, _packer(form), _same)


def _floating(name: str, form: str) -> Native:
    literals = ("0.0", "-0.0", "1.5", "-2.25", "NaN", "Infinity", "-Infinity", "3.0e10", "0.1")
    made = struct.Struct(form)
    # The replica keeps floats as their text, in which NaN equals itself.
    return Native(name, lambda r: r.choice(literals), _same, repr, lambda text: made.pack(float(text)), float)


def _whole(number: int) -> bytes:
    size = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


def _scaled(record: Any) -> tuple[int, int]:
    fields = dict(record)
    return fields["scale"], int.from_bytes(fields["value"], "big", signed=True)


def _scaled_decimal(value: Any) -> tuple[int, int]:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits)) or "0")
    return -exponent, -number if sign else number


def _decimal_order(record: Any) -> Any:
    scale, number = _scaled(record)
    return number * 10 ** (30 - scale)


def _timeuuid_order(text: str) -> tuple[int, bytes]:
    made = UUID(text)
    return made.time, bytes(byte ^ 0x80 for byte in made.bytes[8:])


def _date_literal(random: Random) -> str:
    return f"'{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}'"


def _time_literal(random: Random) -> str:
    seconds = random.randrange(86_400)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"'{hours:02}:{minutes:02}:{seconds % 60:02}.{random.randrange(10**9):09}'"


def _timestamp_ms(value: Any) -> int:
    # The driver calculates with floats.
    days = value.toordinal() - 719_163
    return (
        ((days * 24 + value.hour) * 60 + value.minute) * 60_000 + value.second * 1000 + round(value.microsecond / 1000)
    )


def _duration_bytes(record: Any) -> bytes:
    fields = dict(record)
    return b"".join(_vint(fields[name]) for name in ("months", "days", "nanoseconds"))


def _vint(number: int) -> bytes:
    zigzag = number * 2 if number >= 0 else -number * 2 - 1
    size = max(0, (zigzag.bit_length() - 1) // 7)
    if size >= 8:
        return b"\xff" + zigzag.to_bytes(8, "big")
    raw = bytearray(zigzag.to_bytes(size + 1, "big"))
    raw[0] |= (0xFF << (8 - size)) & 0xFF
    return bytes(raw)


def _duration_literal(random: Random) -> str:
    sign = random.choice(("", "-"))
    return f"{sign}{random.randint(0, 20)}mo{random.randint(0, 40)}d{random.randrange(10**15)}ns"


def _uuid_literal(random: Random) -> str:
    return str(UUID(int=random.getrandbits(128), version=random.choice((1, 4))))


def _timeuuid_literal(random: Random) -> str:
    raw = bytearray(UUID(int=random.getrandbits(128), version=1).bytes)
    # Few times, so that the second half decides the order.
    raw[0:4] = bytes(3) + bytes([random.randrange(3)])
    return str(UUID(bytes=bytes(raw)))


def _textual(name: str, texts: Sequence[str]) -> Native:
    return Native(name, lambda r: quoted_text(r.choice(texts)), _same, _same, str.encode, str.encode)


def _packed_inet(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


_INETS: Final = ("192.168.1.1", "10.0.0.7", "2001:db8::1", "::1", "255.255.255.255")

BOOLEAN: Final = Native("boolean", lambda r: r.choice(("true", "false")), _same, _same, _packer(">?"), _same)
TINYINT: Final = _integer("tinyint", 8, ">b")
SMALLINT: Final = _integer("smallint", 16, ">h")
INT: Final = _integer("int", 32, ">i")
BIGINT: Final = _integer("bigint", 64, ">q")
FLOAT: Final = _floating("float", ">f")
DOUBLE: Final = _floating("double", ">d")
TEXT: Final = _textual("text", _TEXTS)
ASCII: Final = _textual("ascii", [text for text in _TEXTS if text.isascii()])
BLOB: Final = Native("blob", lambda r: "0x" + r.randbytes(r.choice((0, 1, 3, 40))).hex(), _same, bytes, bytes, bytes)
UUID_: Final = Native("uuid", _uuid_literal, _same, str, lambda t: UUID(t).bytes, _same)
TIMEUUID: Final = Native("timeuuid", _timeuuid_literal, _same, str, lambda t: UUID(t).bytes, _timeuuid_order)
INET: Final = Native("inet", lambda r: f"'{r.choice(_INETS)}'", _packed_inet, _packed_inet, _packed_inet, _packed_inet)
DATE: Final = Native(
    "date", _date_literal, _same, lambda d: d.days_from_epoch, lambda d: struct.pack(">I", d + 2**31), _same
)
TIME: Final = Native("time", _time_literal, _same, lambda t: t.nanosecond_time, _packer(">q"), _same)
TIMESTAMP: Final = Native(
    "timestamp", lambda r: str(r.randint(-(10**12), 10**13)), _same, _timestamp_ms, _packer(">q"), _same
)
DURATION: Final = Native(
    "duration",
    _duration_literal,
    lambda record: tuple(dict(record)[name] for name in ("months", "days", "nanoseconds")),
    lambda value: (value.months, value.days, value.nanoseconds),
    _duration_bytes,
    _same,
)
VARINT: Final = Native(
    "varint",
    lambda r: str(r.choice((r.randint(-999, 999), r.getrandbits(200) - 2**199))),
    _scaled,
    lambda number: (0, number),
    lambda record: _whole(_scaled(record)[1]),
    lambda record: _scaled(record)[1],
)
DECIMAL: Final = Native(
    "decimal",
    lambda r: f"{r.randint(-9999, 9999)}.{r.randrange(10 ** r.randint(1, 9))}",
    _scaled,
    _scaled_decimal,
    lambda record: struct.pack(">i", _scaled(record)[0]) + _whole(_scaled(record)[1]),
    _decimal_order,
)

NATIVES: Final = (
    *(BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, TEXT, ASCII, BLOB, UUID_, TIMEUUID, INET, DATE, TIME),
    *(TIMESTAMP, DURATION, VARINT, DECIMAL),
)
