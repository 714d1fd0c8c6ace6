"""Rows sort by serialized keys as the server sorts them."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.scylla.values.native import EXTREMES, encode
from sandbox.scylla.values.ordering import ClusteringOrder, order_of
from schemas.cql.types import parse

ASCENDING: dict[str, list[object]] = {
    "ascii": ["", "A", "B", "a", "aa"],
    "bigint": [-(1 << 63), -1, 0, 1, (1 << 63) - 1],
    "blob": [b"", b"\x00", b"\x7f", b"\x80", b"\xff\x00"],
    "boolean": [False, True],
    "date": [-(1 << 31), -1, 0, 1, (1 << 31) - 1],
    "decimal": [Decimal("-1E+50"), Decimal("-0.5"), Decimal(0), Decimal("1E-9"), Decimal("0.5"), Decimal(2)],
    "double": [float("-inf"), -1.5, -0.0, 0.0, 5e-324, float("inf"), float("nan")],
    "float": [float("-inf"), -1.5, -0.0, 0.0, 1.0, float("inf"), float("nan")],
    "inet": ["0.0.0.1", "10.0.0.1", "192.168.0.1", "255.255.255.255"],
    "text": ["", "a", "é", "漢", "😀"],
    "timestamp": [-(1 << 63), -1, 0, (1 << 63) - 1],
    "tinyint": [-128, -1, 0, 127],
    "uuid": [UUID(int=0), UUID("00000000-0000-4000-8000-000000000000"), UUID("ffffffff-ffff-4fff-8fff-ffffffffffff")],
    "varint": [-(1 << 200), -256, -1, 0, 127, 128, 1 << 200],
}


@pytest.mark.parametrize(("type_name", "values"), ASCENDING.items(), ids=ASCENDING)
def test_values_ascend(type_name: str, values: list[object]) -> None:
    """An empty value, which most types may have, comes before all."""
    cells = [encode(parse(type_name), value) for value in values]
    assert sorted(cells[::-1], key=order_of(parse(type_name))) == cells  # noqa: C415  # sorting must do the work
    assert order_of(parse(type_name))(b"") <= order_of(parse(type_name))(cells[0])


def test_timeuuids_ascend_by_time_and_signed_low_bytes() -> None:
    """A `timeuuid` column compares the last 8 bytes signed, a `uuid` column unsigned, also those of version 1."""
    ids = [timeuuid_of(UnixMicros(at), bytes([low]) * 8) for at, low in ((1, 0x80), (1, 0x7F), (2, 0x80), (1 << 45, 0))]
    assert sorted([*ids[2:], *ids[:2]], key=order_of(parse("timeuuid"))) == ids
    assert sorted([*ids[2:], *ids[:2]], key=order_of(parse("uuid"))) == [ids[1], ids[0], *ids[2:]]


def test_every_extreme_can_be_ordered() -> None:
    """Of all types that may stand in a clustering key."""
    for type_name, cells in EXTREMES.items():
        if type_name != "duration":
            assert len(sorted(cells, key=order_of(parse(type_name)))) == len(cells)


def test_a_type_without_order_is_refused() -> None:
    """A duration can't be a clustering key."""
    with pytest.raises(ValueError, match="duration can't be ordered"):
        order_of(parse("duration"))


def test_columns_are_compared_in_turn_each_in_its_direction() -> None:
    """The first decides; a DESC column runs the other way."""
    rows = [(bytes([a]), bytes([b])) for a in (0xFF, 1) for b in (1, 2)]
    order = ClusteringOrder([parse("tinyint")] * 2, [False, True])
    assert order.sorted(rows, key=lambda row: row) == [
        (b"\xff", b"\2"),
        (b"\xff", b"\1"),
        (b"\1", b"\2"),
        (b"\1", b"\1"),
    ]
