"""The forms of decimals, timestamps and times in `OutputOptions`."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cql.types import parse
from schemas.errors import CellError
from schemas.log.cells import decoder
from schemas.options import OutputOptions
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import counted, log_columns, row, table

STRING, DOUBLE = OutputOptions(decimals="string"), OutputOptions(decimals="double")


def decimal_cell(unscaled: int, scale: int) -> bytes:
    return scale.to_bytes(4, "big", signed=True) + unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    ("unscaled", "scale", "text"),
    [
        (-150, 2, "-1.50"),
        (0, 0, "0"),
        (1, -40, "1E+40"),
        (1, 2**31 - 1, "1E-2147483647"),
        (1, -(2**31), "1E+2147483648"),
    ],
)
def test_decimal_text(unscaled: int, scale: int, text: str) -> None:
    """A decimal's text is exact, for any scale and size."""
    assert decoder(parse("decimal"), STRING)(decimal_cell(unscaled, scale)) == text


def test_long_decimal_text() -> None:
    """A decimal may have more digits than Python converts an int to by default."""
    assert decoder(parse("decimal"), STRING)(decimal_cell(10**5000, 5000)) == "1." + "0" * 5000


@given(st.integers(-(10**25), 10**25), st.integers(-400, 400))
def test_double(unscaled: int, scale: int) -> None:
    """A decimal becomes the nearest double, or is refused."""
    decode = decoder(parse("decimal"), DOUBLE)
    try:
        nearest = float(f"{unscaled}e{-scale}")
    except OverflowError:
        nearest = float("inf")
    if abs(nearest) == float("inf"):
        with pytest.raises(CellError, match="beyond the range of a double"):
            decode(decimal_cell(unscaled, scale))
    else:
        assert decode(decimal_cell(unscaled, scale)) == nearest


@pytest.mark.parametrize("output", [STRING, DOUBLE])
def test_too_long(output: OutputOptions) -> None:
    """A number of a million digits is refused, because its conversion would take minutes."""
    with pytest.raises(CellError, match="more than 8192 bytes"):
        decoder(parse("varint"), output)(b"\x01" + bytes(500_000))
    with pytest.raises(CellError, match="5 or more"):
        decoder(parse("decimal"), output)(bytes(4))


@pytest.mark.parametrize(
    ("output", "avro", "seen"),
    [
        (OutputOptions(), "long", 86_399_999),
        (OutputOptions(timestamps="timestamp-millis"), "timestamp-millis", 86_399_999),
        (OutputOptions(timestamps="timestamp-micros"), "timestamp-micros", 86_399_999),
    ],
)
def test_timestamps(output: OutputOptions, avro: str, seen: int) -> None:
    """A timestamp is a plain long or has the logical type, in every place."""
    of = table({"pk": "timestamp"}, {"ck": "timestamp"}, {"v": "timestamp", "s": "set<timestamp>"})
    codec = TableCodec(of, log_columns(of), output)
    cell = seen.to_bytes(8, "big")
    cells = row(of, {"pk": cell, "ck": cell, "v": cell, "s": counted(cell)})
    key, value = codec.encode(cells, operation=2, generation_ms=0, last_in_group=True)
    expected = seen if avro == "long" else dt.datetime(1970, 1, 1, 23, 59, 59, 999000, tzinfo=dt.UTC)
    found = codec.decode_value(value)
    assert codec.decode_key(key) == {"pk": expected}
    assert found["key"] == {"pk": expected, "ck": expected}
    assert found["columns"]["v"] == {"value": expected}  # type: ignore[index]
    assert found["columns"]["s"]["added"] == [expected]  # type: ignore[index]
    unit = "Microseconds" if "micros" in output.timestamps else "Milliseconds"
    assert json.loads(codec.key_avro_schema)["fields"][0]["doc"] == f"{unit} since the Unix epoch."
    assert codec.key_avro_schema.count(avro) == 1


def test_micros_overflow() -> None:
    """A timestamp whose microseconds do not fit in 64 bits is refused."""
    decode = decoder(parse("timestamp"), OutputOptions(timestamps="timestamp-micros"))
    assert decode((-1).to_bytes(8, "big", signed=True)) == -1000
    with pytest.raises(CellError, match="does not fit in 64 bits"):
        decode(b"\x7f" + b"\xff" * 7)


def test_times() -> None:
    """A time is rounded down to microseconds."""
    of = table({"pk": "int"}, {}, {"v": "time"})
    codec = TableCodec(of, log_columns(of), OutputOptions(times="time-micros"))
    cells = row(of, {"pk": bytes(4), "v": (86_399_999_999_999).to_bytes(8, "big")})
    value = codec.decode_value(codec.encode(cells, operation=2, generation_ms=0, last_in_group=True)[1])
    assert value["columns"] == {"v": {"value": dt.time(23, 59, 59, 999999)}}
    assert "Microseconds since midnight." in codec.value_avro_schema
