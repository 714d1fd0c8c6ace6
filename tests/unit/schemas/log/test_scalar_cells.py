from __future__ import annotations

import ipaddress
import math
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cql.types import parse
from schemas.errors import CellError, UnsupportedTypeError
from schemas.log.cells import decoder
from tests.unit.schemas.example_tables import NATIVE
from tests.unit.schemas.recorded_cells import RECORDED


def decode(cql_type: str, raw: bytes) -> object:
    return decoder(parse(cql_type))(raw)


@pytest.mark.parametrize(("cql_type", "raw", "value"), RECORDED)
def test_recorded(cql_type: str, raw: str, value: object) -> None:
    """A cell that a real node sent decodes to what was written."""
    decoded = decode(cql_type, bytes.fromhex(raw))
    assert type(decoded) is type(value)
    if isinstance(value, float) and math.isnan(value):
        assert isinstance(decoded, float)
        assert math.isnan(decoded)
    else:
        assert repr(decoded) == repr(value)


@pytest.mark.parametrize("cql_type", sorted(set(NATIVE) - {"ascii", "blob", "text", "varchar"}))
def test_empty(cql_type: str) -> None:
    """Every type whose Avro type has no zero-length value refuses it."""
    with pytest.raises(CellError, match="zero bytes"):
        decode(cql_type, b"")


@pytest.mark.parametrize(
    ("cql_type", "raw", "reason"),
    [
        ("int", "0000000000", "4 bytes long"),
        ("bigint", "00000000", "8 bytes long"),
        ("boolean", "0000", "1 bytes long"),
        ("date", "000000", "4 bytes long"),
        ("uuid", "00", "16 bytes long"),
        ("inet", "0000000000", "4 or 16 bytes long"),
        ("decimal", "00000000", "5 or more bytes long"),
        ("text", "61ff62", "not valid utf-8 at byte 1"),
        ("text", "eda080", "not valid utf-8"),
        ("ascii", "6180", "not valid ascii at byte 1"),
        ("duration", "0000", "ends too early"),
        ("duration", "0000ff00", "ends too early"),
        ("duration", "00000000", "1 bytes after the end"),
        ("duration", "f1000000000000", "months do not fit in 32 bits"),
    ],
)
def test_malformed(cql_type: str, raw: str, reason: str) -> None:
    """The error about a malformed cell names the type and the reason."""
    with pytest.raises(CellError, match=f"of type {cql_type}: .*{reason}") as caught:
        decode(cql_type, bytes.fromhex(raw))
    assert caught.value.column is None
    assert caught.value.cql_type == cql_type


def test_message_has_no_bytes() -> None:
    """A message has the length of a cell, and none of its bytes."""
    with pytest.raises(CellError) as caught:
        decode("int", b"\xab" * 1000)
    assert str(caught.value).endswith("(1000 bytes)")
    assert "ab" * 2 not in repr(vars(caught.value))


def test_boolean_is_nonzero() -> None:
    """Every byte but zero is true, as in CQL."""
    assert decode("boolean", b"\x02") is True
    assert decode("boolean", b"\xff") is True


@given(st.binary(min_size=16, max_size=16))
def test_uuid_bits(raw: bytes) -> None:
    """A uuid keeps all 128 bits, for any variant and version."""
    text = decode("uuid", raw)
    assert isinstance(text, str)
    assert uuid.UUID(text).bytes == raw
    assert str(uuid.UUID(text)) == text


@given(st.one_of(st.binary(min_size=16, max_size=16), st.binary(min_size=4, max_size=4)))
def test_inet_bits(raw: bytes) -> None:
    """The text of an address gives back its bytes, 4 or 16 of them."""
    text = decode("inet", raw)
    assert isinstance(text, str)
    assert ipaddress.ip_address(text).packed == raw


@given(st.binary(min_size=4, max_size=4))
def test_inet_mapped(raw: bytes) -> None:
    """An IPv4-mapped address stays an IPv6 text."""
    text = decode("inet", bytes(10) + b"\xff\xff" + raw)
    assert isinstance(text, str)
    assert text.startswith("::ffff:")
    assert ipaddress.ip_address(text).packed[12:] == raw


def zigzag_vint(value: int) -> bytes:
    """Cassandra's signed vint, from its definition: the shortest length that fits."""
    unsigned = value << 1 if value >= 0 else (-value << 1) - 1
    for more in range(8):
        if unsigned < 1 << (7 * (more + 1)):
            ones = (0xFF00 >> more) & 0xFF
            body = unsigned.to_bytes(more + 1, "big")
            return bytes([body[0] | ones]) + body[1:]
    return b"\xff" + unsigned.to_bytes(8, "big")


I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


@given(I32, I32, I64)
def test_duration_parts(months: int, days: int, nanoseconds: int) -> None:
    """Every duration decodes from its three vints."""
    raw = zigzag_vint(months) + zigzag_vint(days) + zigzag_vint(nanoseconds)
    assert decode("duration", raw) == {"months": months, "days": days, "nanoseconds": nanoseconds}


@given(st.integers(-(10**60), 10**60), I32)
def test_decimal_parts(unscaled: int, scale: int) -> None:
    """Scale and unscaled value are exact at any size."""
    value = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    assert decode("decimal", struct.pack(">i", scale) + value) == {"scale": scale, "value": value}
    assert decode("varint", value) == {"scale": 0, "value": value}


@pytest.mark.parametrize("cql_type", ["frozen<list<empty>>", "frozen<udt>", "udt", "tuple<int, empty>", "empty"])
def test_unsupported(cql_type: str) -> None:
    """A type without an Avro form has no decoder."""
    with pytest.raises(UnsupportedTypeError):
        decoder(parse(cql_type))
