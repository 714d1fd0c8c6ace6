from __future__ import annotations

import re

import pytest
from fastavro import parse_schema
from hypothesis import given
from hypothesis import strategies as st

from schemas.avro.type_names import type_name, udt_record_name
from schemas.avro.types import cell_name, change_name
from schemas.cql.types import (
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    parse,
    resolve,
)
from schemas.record_schemas import value_schema
from tests.unit.schemas.example_tables import table

FIELDS = (("f", NativeType("int")),)
ODD_NAMES = st.sampled_from(["a", "a_udt1_b", "b", "int", "list_int", "udt1_a", "a_cell", "A", "ą", "", "a b", "1"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("int", "int"),
        ("map<text, frozen<list<int>>>", "map_text_list_int"),
        ("tuple<int, text>", "tuple2_int_text"),
        ("vector<float, 3>", "vector3_float"),
        ("set<frozen<address>>", "set_udt7_address"),
        ('"My Type"', "udt11_My_u20_Type"),
    ],
)
def test_names(text: str, name: str) -> None:
    """Names are readable."""
    definitions = dict.fromkeys(("address", "My Type"), FIELDS)
    assert type_name(resolve(parse(text), definitions)) == name


def _types() -> st.SearchStrategy[CqlType]:
    leaves = st.one_of(
        st.sampled_from(["int", "inet", "text", "timeuuid"]).map(NativeType),
        ODD_NAMES.filter(bool).map(lambda name: UdtType(name, FIELDS)),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(ListType),
            inner.map(SetType),
            st.builds(MapType, inner, inner),
            st.builds(VectorType, inner, st.integers(1, 12)),
            st.lists(inner, min_size=1, max_size=12).map(lambda elements: TupleType(tuple(elements))),
        ),
        max_leaves=5,
    )


@given(_types(), _types())
def test_injective(one: CqlType, two: CqlType) -> None:
    """Different types have different names, also with suffixes; frozen does not change the name."""
    names = {name(cql_type) for cql_type in (one, two) for name in (type_name, cell_name, change_name)}
    names |= {udt_record_name(cql_type) for cql_type in (one, two) if isinstance(cql_type, UdtType)}
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9_]*", name) for name in names)
    assert type_name(FrozenType(one)) == type_name(one)
    assert (type_name(one) == type_name(two)) == (one == two)
    for suffix in ("_cell", "_delta", "_entry", "_element", "_fields"):
        assert type_name(one) != type_name(two) + suffix
    if isinstance(one, UdtType):
        assert udt_record_name(one) not in {type_name(two), cell_name(two), change_name(two)}


def test_one_definition() -> None:
    """Types that occur in many places, frozen and not, are defined once, and the schema is valid."""
    types = {"address": {"a": "frozen<list<int>>"}, "address_cell": {"a": "int"}, "Address": {"a": "text"}}
    texts = ["address", "frozen<address>", "address_cell", "frozen<address_cell>", '"Address"', "list<frozen<address>>"]
    texts += ["map<int, frozen<address>>", "frozen<map<int, frozen<address>>>", "tuple<frozen<address>, int>"]
    texts += ["set<int>", "frozen<set<int>>", "list<int>", "frozen<list<int>>", "list<frozen<list<int>>>"]
    regular = {f"v{at}": text for at, text in enumerate(texts * 2)}
    of = table({"pk": "frozen<address>"}, {"ck": "frozen<address>"}, regular, types=types)
    parse_schema(value_schema(of))
