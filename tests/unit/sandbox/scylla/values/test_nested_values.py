"""Nested values are serialized as the driver serializes them, and drawn in the server's own form."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest
from cassandra import cqltypes

from sandbox.scylla.values.nested import UserType, unpack_vector
from sandbox.scylla.values.nested_values import Draw, encode_nested
from sandbox.scylla.values.ordering import order_of
from schemas.cql.types import VectorType, parse

POINT = UserType("point", (("x", parse("int")), ("label", parse("text"))))
IDS = [UUID(int=3), UUID(int=1)]


@pytest.mark.parametrize(
    ("type_text", "driver_type", "value"),
    [
        ("list<int>", "ListType(Int32Type)", [3, 1, 2]),
        ("set<text>", "SetType(UTF8Type)", {"é", "a", ""}),
        ("map<int, text>", "MapType(Int32Type, UTF8Type)", {2: "b", 10: "", 1: "a"}),
        ("frozen<tuple<int, text>>", "TupleType(Int32Type, UTF8Type)", (1, None)),
        ("list<frozen<map<text, uuid>>>", "ListType(MapType(UTF8Type, UUIDType))", [{"b": IDS[0], "a": IDS[1]}, {}]),
        ("vector<float, 3>", "VectorType(FloatType, 3)", [1.5, -2.0, 0.0]),
        ("vector<text, 2>", "VectorType(UTF8Type, 2)", ["a" * 200, ""]),
        ("vector<smallint, 2>", "VectorType(ShortType, 2)", [1, -1]),
        ("vector<frozen<vector<int, 2>>, 2>", "VectorType(VectorType(Int32Type, 2), 2)", [[1, 2], [3, 4]]),
    ],
)
def test_a_value_is_serialized_as_the_driver_does(type_text: str, driver_type: str, value: object) -> None:
    """Sets and maps in the order of their elements and keys."""
    ordered = dict(sorted(value.items())) if isinstance(value, dict) else value
    ordered = sorted(ordered) if isinstance(ordered, set) else ordered
    if isinstance(ordered, list):
        ordered = [dict(sorted(each.items())) if isinstance(each, dict) else each for each in ordered]
    driver = cqltypes.lookup_casstype(driver_type)
    assert encode_nested(parse(type_text), value) == driver.to_binary(ordered, 4)


def test_a_udt_is_serialized_field_by_field() -> None:
    """A field that is not given is null."""
    raw = encode_nested(parse("frozen<point>"), {"label": "a"}, (POINT,))
    assert raw == b"\xff\xff\xff\xff\x00\x00\x00\x01a"
    with pytest.raises(ValueError, match="fields of type point are not given"):
        encode_nested(parse("point"), {"x": 1})


@pytest.mark.parametrize(
    "type_text",
    ["list<int>", "set<frozen<point>>", "map<text, frozen<tuple<int, decimal>>>", "tuple<duration, point>",
     "vector<text, 3>", "frozen<set<frozen<list<timeuuid>>>>"],
)  # fmt: skip
def test_drawn_values_repeat_with_the_seed_and_can_be_ordered(type_text: str) -> None:
    """Those of key types; collections are empty at times."""
    cql_type = parse(type_text)
    one, same = ([Draw(Random(3), (POINT,)).value(cql_type) for _ in range(1)] for _ in range(2))
    assert one == same
    draw = Draw(Random(5), (POINT,))
    drawn = [draw.key(cql_type) for _ in range(60)]
    assert len(set(drawn)) > 20
    if isinstance(cql_type, VectorType):
        assert {len(unpack_vector(raw, cql_type)) for raw in drawn} == {cql_type.dimension}
    if "duration" not in type_text:
        assert sorted(drawn, key=order_of(cql_type, (POINT,))) == sorted(
            sorted(drawn), key=order_of(cql_type, (POINT,))
        )


def test_nested_values_are_ordered_part_by_part() -> None:
    """Lists by their elements, the shorter first; null fields before all; maps by keys, then values."""
    for type_text, values in {
        "frozen<list<int>>": [[], [-1, 5], [1], [1, -9], [2]],
        "frozen<tuple<int, text>>": [(None, "z"), (1, None), (1, "a"), (2, None)],
        "frozen<map<int, int>>": [{}, {1: 9}, {1: 9, 2: 0}, {2: -1}, {2: 0}],
        "vector<int, 2>": [[-1, 0], [0, -1], [0, 0]],
    }.items():
        cells = [encode_nested(parse(type_text), value) for value in values]
        assert sorted(cells[::-1], key=order_of(parse(type_text))) == cells  # noqa: C415  # sorting must do the work
