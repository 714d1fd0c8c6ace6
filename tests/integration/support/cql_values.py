"""CQL values with what a reader must give for them, written without the project's encoder.

Each value is made of its type, its cell as the native protocol has it (v4, section 6; vectors as in v5), and the plain
value that a reader of the topic must give. Values of compound types are put together from other values.
"""

from __future__ import annotations

import math
import struct
import uuid
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

NOTHING: Final = struct.pack(">i", -1)


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a CQL type.

    Attributes:
        type: CQL text of the type.
        cell: the value as the server sends it.
        read: what a reader gives.
    """

    type: str
    cell: bytes
    read: Any

    @property
    def inner_type(self) -> str:
        """The type's text inside another type, where collections and user-defined types must be frozen."""
        is_native = self.type in BY_TYPE or self.type.startswith(("tuple<", "vector<", "frozen<"))
        return self.type if is_native else f"frozen<{self.type}>"

    @property
    def frozen(self) -> Value:
        """The same value of the frozen type."""
        return Value(self.inner_type, self.cell, self.read)


def scaled(number: Decimal) -> dict[str, Any]:
    """A number as scale and minimal two's complement."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    whole = int(number.scaleb(-exponent))
    size = (whole + (whole < 0)).bit_length() // 8 + 1
    return {"scale": -exponent, "value": whole.to_bytes(size, "big", signed=True)}


def whole(number: int) -> bytes:
    """A whole number in minimal two's complement."""
    return bytes(scaled(Decimal(number))["value"])


_HUGE = 3**500
_SOME_UUID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
_NOT_RFC = uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")

# Type, cell, what a reader gives; the values of a type ascend in the server's order, so that they make a set.
SCALARS: Final[tuple[Value, ...]] = tuple(
    Value(*case)
    for case in (
        ("ascii", b"", ""),
        ("ascii", b"abc~", "abc~"),
        ("text", b"", ""),
        ("text", "żółć 😀\0\u2028".encode(), "żółć 😀\0\u2028"),
        ("varchar", b"plain", "plain"),
        ("bigint", struct.pack(">q", -(2**63)), -(2**63)),
        ("bigint", struct.pack(">q", 2**63 - 1), 2**63 - 1),
        ("int", struct.pack(">i", -(2**31)), -(2**31)),
        ("int", struct.pack(">i", 2**31 - 1), 2**31 - 1),
        ("smallint", struct.pack(">h", -(2**15)), -(2**15)),
        ("smallint", struct.pack(">h", 2**15 - 1), 2**15 - 1),
        ("tinyint", struct.pack(">b", -128), -128),
        ("tinyint", struct.pack(">b", 127), 127),
        ("boolean", b"\x00", False),
        ("boolean", b"\x01", True),
        ("float", struct.pack(">f", -3.4028234663852886e38), -3.4028234663852886e38),
        ("float", struct.pack(">f", -0.0), -0.0),
        ("float", struct.pack(">f", 1e-45), 1.401298464324817e-45),
        ("float", struct.pack(">f", math.inf), math.inf),
        ("float", struct.pack(">f", math.nan), math.nan),
        ("double", struct.pack(">d", -math.inf), -math.inf),
        ("double", struct.pack(">d", -0.0), -0.0),
        ("double", struct.pack(">d", 5e-324), 5e-324),
        ("double", struct.pack(">d", 0.1), 0.1),
        ("double", struct.pack(">d", math.nan), math.nan),
        ("blob", b"", b""),
        ("blob", bytes(range(256)), bytes(range(256))),
        ("date", struct.pack(">I", 0), -(2**31)),
        ("date", struct.pack(">I", 2**31 - 1), -1),
        ("date", struct.pack(">I", 2**32 - 1), 2**31 - 1),
        ("time", struct.pack(">q", 0), 0),
        ("time", struct.pack(">q", 86_399_999_999_999), 86_399_999_999_999),
        ("timestamp", struct.pack(">q", -(2**63)), -(2**63)),
        ("timestamp", struct.pack(">q", -62_135_596_800_001), -62_135_596_800_001),
        ("timestamp", struct.pack(">q", -1), -1),
        ("timestamp", struct.pack(">q", 253_402_300_800_000), 253_402_300_800_000),
        ("timestamp", struct.pack(">q", 2**63 - 1), 2**63 - 1),
        ("uuid", _SOME_UUID.bytes, _SOME_UUID),
        ("uuid", _NOT_RFC.bytes, _NOT_RFC),
        ("timeuuid", _SOME_UUID.bytes, _SOME_UUID),
        ("inet", bytes(15) + b"\x01", "::1"),
        ("inet", bytes([192, 168, 1, 1]), "192.168.1.1"),
        ("varint", whole(-(2**127) - 1), scaled(Decimal(-(2**127) - 1))),
        ("varint", whole(0), scaled(Decimal(0))),
        ("varint", whole(_HUGE), {"scale": 0, "value": whole(_HUGE)}),
        ("decimal", struct.pack(">i", 2**31 - 1) + whole(-_HUGE), {"scale": 2**31 - 1, "value": whole(-_HUGE)}),
        ("decimal", struct.pack(">i", 10) + whole(10**19 + 1), {"scale": 10, "value": whole(10**19 + 1)}),
        ("decimal", struct.pack(">i", -(2**31) + 1) + whole(1), {"scale": -(2**31) + 1, "value": whole(1)}),
        # Zigzag vints: 14 months, 25 days, 18367008009010 ns (recorded from a server).
        (
            "duration",
            bytes.fromhex("1c32fc2168cdf9d664"),
            {"months": 14, "days": 25, "nanoseconds": 18_367_008_009_010},
        ),
        ("duration", bytes.fromhex("010305"), {"months": -1, "days": -2, "nanoseconds": -3}),
    )
)

MAPPED_INET: Final = Value("inet", bytes(10) + b"\xff\xff" + bytes([1, 2, 3, 4]), "::ffff:1.2.3.4")
"""An IPv4 address in IPv6's form. Only alone: inside a collection, the local stack's server makes it four bytes."""

BY_TYPE: Final[dict[str, list[Value]]] = defaultdict(list)
"""The values of each scalar type, ascending."""
for _value in SCALARS:
    BY_TYPE[_value.type].append(_value)

HAVE_NO_EMPTY: Final = frozenset({"smallint", "tinyint", "date", "time", "duration"})
"""Scalar types for which the server takes no cell without bytes."""
EMPTY_IS_A_VALUE: Final[dict[str, Any]] = {"ascii": "", "text": "", "varchar": "", "blob": b""}
"""Types for which no bytes are a value like others; elsewhere they are CQL's "empty", which reads as null."""


def list_of(*items: Value) -> Value:
    """A list with at least one item."""
    return Value(f"list<{items[0].inner_type}>", _counted(items), [item.read for item in items])


def set_of(*items: Value) -> Value:
    """A set; the items ascend."""
    return Value(f"set<{items[0].inner_type}>", _counted(items), [item.read for item in items])


def map_of(*entries: tuple[Value, Value]) -> Value:
    """A map; the keys ascend."""
    (key, value), *_ = entries
    cell = struct.pack(">i", len(entries)) + b"".join(framed(part) for entry in entries for part in entry)
    read = [{"key": key.read, "value": value.read} for key, value in entries]
    return Value(f"map<{key.inner_type}, {value.inner_type}>", cell, read)


def no_items(value: Value) -> Value:
    """The empty collection of a collection's type."""
    return Value(value.type, struct.pack(">i", 0), [])


def tuple_of(*fields: Value, absent: frozenset[int] = frozenset(), missing: int = 0) -> Value:
    """A tuple, in which the fields of the positions `absent` are null and the last `missing` ones not there at all."""
    written = len(fields) - missing
    return Value(
        f"tuple<{', '.join(field.inner_type for field in fields)}>",
        b"".join(NOTHING if position in absent else framed(field) for position, field in enumerate(fields[:written])),
        {
            f"field_{position}": None if position in absent or position >= written else field.read
            for position, field in enumerate(fields)
        },
    )


def udt_of(name: str, fields: dict[str, Value], *, absent: frozenset[str] = frozenset(), missing: int = 0) -> Value:
    """A value of the user-defined type `name`; `absent` and `missing` as for a tuple."""
    written = list(fields)[: len(fields) - missing]
    return Value(
        name,
        b"".join(NOTHING if field in absent else framed(fields[field]) for field in written),
        {field: value.read if field in written and field not in absent else None for field, value in fields.items()},
    )


def vector_of(*items: Value) -> Value:
    """A vector: fixed-size items stand one after the other, others each with its size as an unsigned vint."""
    is_fixed = items[0].type in _FIXED_SIZE or items[0].type.startswith("vector<float")
    return Value(
        f"vector<{items[0].inner_type}, {len(items)}>",
        b"".join(item.cell if is_fixed else _vint(len(item.cell)) + item.cell for item in items),
        [item.read for item in items],
    )


_FIXED_SIZE: Final = frozenset({"bigint", "boolean", "double", "float", "int", "timestamp", "timeuuid", "uuid"})


def _vint(size: int) -> bytes:
    assert size < 2**14
    return bytes([size]) if size < 2**7 else struct.pack(">H", 0x8000 | size)


def framed(value: Value) -> bytes:
    """A value inside another one: its length, then its bytes."""
    return struct.pack(">i", len(value.cell)) + value.cell


def _counted(items: tuple[Value, ...]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(map(framed, items))


def exact(value: Any) -> Any:
    """A form in which values are equal only if they are the same: 1, 1.0 and True differ, so do 0.0 and -0.0."""
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else struct.pack(">d", value).hex())
    return (type(value).__name__, value)
