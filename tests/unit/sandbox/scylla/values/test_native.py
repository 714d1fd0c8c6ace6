"""Serialized values: every scalar type, checked against cells that ScyllaDB sent."""

from __future__ import annotations

from decimal import Decimal
from random import Random
from uuid import UUID

import pytest

from sandbox.recordings.recording import Recording
from sandbox.scylla.values.native import EXTREMES, Duration, draw, encode
from schemas.cql.types import NATIVE_TYPES, parse

# Values of the recorded statements, whose cells must be among those that the server logged.
RECORDED: list[tuple[str, object]] = [
    ("bigint", -(1 << 63)),
    ("blob", b""),
    ("boolean", False),
    ("date", -1),
    ("date", -(1 << 31)),
    ("date", (1 << 31) - 1),
    ("decimal", Decimal("-1E-30")),
    ("decimal", Decimal("1E+100")),
    ("decimal", Decimal("12345678901234567890123456789012345678901234567890.5")),
    ("decimal", Decimal("0.00")),
    ("double", -1.7976931348623157e308),
    ("double", float("nan")),
    ("double", -0.0),
    ("duration", Duration(-1, -2, -3)),
    ("duration", Duration(14, 10, 9_000_000_000_000)),
    ("duration", Duration(2_147_483_647, 0, 0)),
    ("duration", Duration(0, 0, -9_223_372_036_854_775_807)),
    ("duration", Duration(0, 1, 0)),
    ("float", -3.4028235e38),
    ("float", float("-inf")),
    ("inet", "2001:db8::1"),
    ("inet", "255.255.255.255"),
    ("inet", "::"),
    ("int", -2_147_483_648),
    ("smallint", -32_768),
    ("text", ""),
    ("time", 0),
    ("timestamp", -1),
    ("timestamp", 253_402_300_800_000),
    ("timeuuid", UUID("00000000-0000-1000-8080-808080808080")),
    ("tinyint", -128),
    ("uuid", UUID(int=0)),
    ("varchar", "\x00x"),
    ("varint", -170_141_183_460_469_231_731_687_303_715_884_105_729),
    ("varint", 0),
    ("varint", 127),
    ("varint", 128),
    ("varint", -128),
    ("varint", -129),
    ("varint", 255),
    ("varint", 256),
    ("varint", -1),
]
SCALARS = sorted(NATIVE_TYPES - {"counter", "empty"})


@pytest.mark.parametrize(("type_name", "value"), RECORDED)
def test_a_value_is_serialized_as_the_server_does(type_name: str, value: object) -> None:
    """The very bytes stand in a recorded log of the same values."""
    table = Recording.load("native_types").table("nt")
    at = [name for name, _type in table.log_columns].index(f"c_{type_name}")
    assert encode(parse(type_name), value) in {row[at] for row in table.log}


def test_a_type_that_is_no_scalar_is_refused() -> None:
    """Collections come later."""
    with pytest.raises(ValueError, match="list<int> can't be made"):
        encode(parse("list<int>"), [1])


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("Infinity")])
def test_a_decimal_that_is_no_number_is_refused(value: Decimal) -> None:
    """CQL has none."""
    with pytest.raises(TypeError, match="decimal has no"):
        encode(parse("decimal"), value)


def test_a_number_out_of_range_is_refused() -> None:
    """Instead of losing its upper bits."""
    with pytest.raises(OverflowError):
        encode(parse("tinyint"), 128)


@pytest.mark.parametrize("type_name", SCALARS)
def test_drawn_values_have_their_types_width_and_repeat_with_the_seed(type_name: str) -> None:
    """Extremes are among them."""
    drawn = [[draw(type_name, random) for _ in range(400)] for random in (Random(5), Random(5))]
    assert drawn[0] == drawn[1]
    assert set(EXTREMES[type_name]) & set(drawn[0])
    plain = {draw(type_name, Random(seed), 0.0) for seed in range(50)}
    assert len(plain) >= 2
    width = getattr(parse(type_name), "fixed_width_bytes", None)
    if width is not None:
        assert {len(cell) for cell in (*plain, *EXTREMES[type_name])} == {width}
