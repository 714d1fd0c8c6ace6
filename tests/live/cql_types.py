"""CQL types: random literals, and one form for the values of records and of SELECT.

`of_record` takes decoded Avro values in the replica's hashable form, `of_driver` those of the CQL driver. Both return
the same for the same value. `pack` returns the serialized value, which decides between two writes at one timestamp.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


def framed(raw: bytes | None) -> bytes:
    """A value inside another one: its length, then its bytes."""
    return struct.pack(">i", -1) if raw is None else struct.pack(">i", len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Elements:
    """`list<E>` or `set<E>`."""

    kind: str
    element: CqlType

    @property
    def cql(self) -> str:
        return f"{self.kind}<{self.element.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return True

    def literals(self, random: Random, least: int = 0) -> list[str]:
        return [self.element.literal(random) for _ in range(random.randint(least, 3))]

    def literal(self, random: Random) -> str:
        opened, closed = "[]" if self.kind == "list" else "{}"
        return opened + ", ".join(self.literals(random)) + closed

    def of_record(self, value: Any) -> Value:
        return self._gathered(map(self.element.of_record, value))

    def of_driver(self, value: Any) -> Value:
        return self._gathered(map(self.element.of_driver, value))

    def pack(self, value: Any) -> bytes:
        return struct.pack(">i", len(value)) + b"".join(framed(self.element.pack(one)) for one in value)

    def _gathered(self, values: Any) -> Value:
        return tuple(values) if self.kind == "list" else frozenset(values)


@dataclass(frozen=True, slots=True)
class Map:
    """`map<K, V>`."""

    key: CqlType
    value: CqlType

    @property
    def cql(self) -> str:
        return f"map<{self.key.cql}, {self.value.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return True

    def entries(self, random: Random, least: int = 0) -> list[tuple[str, str]]:
        # Two entries of one key: the server's choice is nobody's concern.
        made = {self.key.literal(random): self.value.literal(random) for _ in range(random.randint(least, 3))}
        return list(made.items())

    def literal(self, random: Random) -> str:
        return "{" + ", ".join(f"{key}: {value}" for key, value in self.entries(random)) + "}"

    def of_record(self, value: Any) -> Value:
        pairs = map(dict, value)
        return frozenset((self.key.of_record(one["key"]), self.value.of_record(one["value"])) for one in pairs)

    def of_driver(self, value: Any) -> Value:
        return frozenset((self.key.of_driver(key), self.value.of_driver(one)) for key, one in value.items())

    def pack(self, value: Any) -> bytes:
        pairs = [dict(one) for one in value]
        packed = (framed(self.key.pack(one["key"])) + framed(self.value.pack(one["value"])) for one in pairs)
        return struct.pack(">i", len(pairs)) + b"".join(packed)


@dataclass(frozen=True, slots=True)
class Tuple:
    """`tuple<...>`, which is always frozen."""

    elements: tuple[CqlType, ...]

    @property
    def cql(self) -> str:
        return f"tuple<{', '.join(one.cql for one in self.elements)}>"

    @property
    def is_multi_cell(self) -> bool:
        return False

    def literal(self, random: Random) -> str:
        return f"({', '.join(maybe_null(one, random) for one in self.elements)})"

    def of_record(self, value: Any) -> Value:
        fields = dict(value)
        return tuple(
            None if fields[f"field_{place}"] is None else one.of_record(fields[f"field_{place}"])
            for place, one in enumerate(self.elements)
        )

    def of_driver(self, value: Any) -> Value:
        parts = [*value, *[None] * (len(self.elements) - len(value))]
        return tuple(
            None if part is None else one.of_driver(part) for one, part in zip(self.elements, parts, strict=True)
        )

    def pack(self, value: Any) -> bytes:
        fields = dict(value)
        return b"".join(
            framed(None if fields[f"field_{place}"] is None else one.pack(fields[f"field_{place}"]))
            for place, one in enumerate(self.elements)
        )


@dataclass(slots=True, eq=False)
class Udt:
    """A user-defined type; ALTER TYPE adds to `fields`."""

    name: str
    fields: list[tuple[str, CqlType]] = field(default_factory=list)

    @property
    def cql(self) -> str:
        return self.name

    @property
    def is_multi_cell(self) -> bool:
        return True

    def literal(self, random: Random) -> str:
        # A value with no field at all can't be told from null by a SELECT of a non-frozen column.
        first, *others = self.fields
        parts = [f"{first[0]}: {first[1].literal(random)}"]
        parts += [f"{name}: {maybe_null(kind, random)}" for name, kind in others if random.random() < 0.8]
        return "{" + ", ".join(parts) + "}"

    def of_record(self, value: Any) -> Value:
        given = dict(value)
        return tuple(None if given.get(name) is None else kind.of_record(given[name]) for name, kind in self.fields)

    def of_driver(self, value: Any) -> Value:
        given = value._asdict()
        return tuple(None if given.get(name) is None else kind.of_driver(given[name]) for name, kind in self.fields)

    def pack(self, value: Any) -> bytes:
        return b"".join(
            framed(None if part is None else kind.pack(part))
            for (_, part), (_, kind) in zip(value, self.fields, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Frozen:
    """`frozen<T>`."""

    inner: Elements | Map | Udt

    @property
    def cql(self) -> str:
        return f"frozen<{self.inner.cql}>"

    @property
    def is_multi_cell(self) -> bool:
        return False

    def literal(self, random: Random) -> str:
        return self.inner.literal(random)

    def of_record(self, value: Any) -> Value:
        return self.inner.of_record(value)

    def of_driver(self, value: Any) -> Value:
        return self.inner.of_driver(value)

    def pack(self, value: Any) -> bytes:
        return self.inner.pack(value)


CqlType = Native | Elements | Map | Tuple | Udt | Frozen


def maybe_null(kind: CqlType, random: Random) -> str:
    """A literal, or sometimes null."""
    return "null" if random.random() < 0.15 else kind.literal(random)


def list_of(element: CqlType) -> Elements:
    return Elements("list", element)


def set_of(element: CqlType) -> Elements:
    return Elements("set", element)
