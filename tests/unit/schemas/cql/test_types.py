from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cql.types import (
    NATIVE_TYPES,
    CqlType,
    FrozenType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    is_multi_cell,
    parse,
    resolve,
    unfrozen,
    user_types,
)
from schemas.cql.visitor import TypeVisitor, visit
from schemas.errors import TypeTextError, UnsupportedTypeError

INT, TEXT = NativeType("int"), NativeType("text")


@pytest.mark.parametrize("name", sorted(NATIVE_TYPES))
def test_native(name: str) -> None:
    """The name of a native type is its text and parses to the type."""
    assert parse(name) == NativeType(name)
    assert str(parse(name)) == name


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("frozen<map<text, int>>", FrozenType(MapType(TEXT, INT))),
        ("list<frozen<tuple<int,text>>>", ListType(FrozenType(TupleType((INT, TEXT))))),
        ("vector<float, 3>", VectorType(NativeType("float"), 3)),
        (" set < blob > ", SetType(NativeType("blob"))),
        ("tuple<int>", TupleType((INT,))),
        ("frozen<udt1>", FrozenType(UdtType("udt1"))),
        ('frozen<"My ""odd"" Type">', FrozenType(UdtType('My "odd" Type'))),
        ('"int"', UdtType("int")),
        ("BigInt", NativeType("bigint")),
        ("Addr", UdtType("addr")),
        ("_u", UdtType("_u")),
    ],
)
def test_trees(text: str, tree: CqlType) -> None:
    """Every constructor parses to its node, with any spacing, and the node's text parses to the node."""
    assert parse(text) == tree
    assert parse(str(tree)) == tree


def _types() -> st.SearchStrategy[CqlType]:
    leaves: st.SearchStrategy[CqlType] = st.one_of(
        st.sampled_from(sorted(NATIVE_TYPES)).map(NativeType), st.text(min_size=1).map(UdtType)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(ListType),
            inner.map(SetType),
            inner.map(FrozenType),
            st.builds(MapType, inner, inner),
            st.builds(VectorType, inner, st.integers(1, 9999)),
            st.lists(inner, min_size=1, max_size=4).map(lambda elements: TupleType(tuple(elements))),
        ),
        max_leaves=8,
    )


@given(_types())
def test_round_trip(cql_type: CqlType) -> None:
    """The text of any type parses to the type."""
    assert parse(str(cql_type)) == cql_type


@pytest.mark.parametrize(
    "text",
    [
        "",
        "list",
        "list<int",
        "list<int>>",
        "map<int>",
        "map<int, text, text>",
        "vector<float>",
        "vector<float, 0>",
        "vector<float, x>",
        "vector<float, 65536>",
        "vector<float, 99999999999999999999>",
        "tuple<>",
        "int text",
        '""',
        "'org.apache.cassandra.db.marshal.X'",
        "3",
        "frozen<,>",
        "list<" * 70 + "int" + ">" * 70,
    ],
)
def test_invalid_texts(text: str) -> None:
    """A text that is not a type is refused; the message has the text."""
    with pytest.raises(TypeTextError, match="not a CQL type"):
        parse(text)


def test_properties() -> None:
    """Native types know their width and whether "empty" is a value."""
    assert INT.fixed_width_bytes == 4
    assert TEXT.fixed_width_bytes is None
    assert TEXT.empty_is_value
    assert not INT.empty_is_value
    assert NativeType("empty").is_hidden


@pytest.mark.parametrize(
    "text", ["int", "list<int>", "set<int>", "map<int, int>", "tuple<int>", "vector<int, 2>", "udt"]
)
def test_visitor(text: str) -> None:
    """A visitor that handles nothing refuses every kind of type by its text."""
    with pytest.raises(UnsupportedTypeError, match=text):
        visit(parse(text), TypeVisitor[int]())
    with pytest.raises(UnsupportedTypeError, match=text):
        visit(FrozenType(parse(text)), TypeVisitor[int]())


DEFINITIONS = {
    "outer": [("i", parse("frozen<inner>")), ("l", parse("list<frozen<inner>>"))],
    "inner": [("a", INT), ("B", TEXT)],
    "self": [("s", parse("frozen<list<frozen<self>>>"))],
    "none": [],
}
INNER = UdtType("inner", (("a", INT), ("B", TEXT)))


def test_resolve() -> None:
    """Every user-defined type in a type gets its fields, at any depth; the text stays the same."""
    outer = UdtType("outer", (("i", FrozenType(INNER)), ("l", ListType(FrozenType(INNER)))))
    text = "frozen<map<int, frozen<tuple<vector<frozen<outer>, 2>, set<frozen<inner>>>>>>"
    resolved = resolve(parse(text), DEFINITIONS)
    inside = TupleType((VectorType(FrozenType(outer), 2), SetType(FrozenType(INNER))))
    assert resolved == FrozenType(MapType(INT, FrozenType(inside)))
    assert str(resolved) == text
    assert resolve(resolved, DEFINITIONS) == resolved
    assert list(user_types(resolved)) == [INNER, INNER, outer, INNER]
    assert outer != UdtType("outer")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("list<frozen<gone>>", "'gone' is not known"), ("self", "'self' contains itself"), ("none", "no fields")],
)
def test_unresolvable(text: str, reason: str) -> None:
    """A type without a definition, or one that contains itself, is refused by name."""
    with pytest.raises(TypeTextError, match=reason):
        resolve(parse(text), DEFINITIONS)


@pytest.mark.parametrize(
    ("text", "multi_cell"),
    [
        *((text, True) for text in ("list<int>", "set<int>", "map<int, int>", "inner")),
        *((f"frozen<{text}>", False) for text in ("list<int>", "set<int>", "map<int, int>", "inner")),
        *((text, False) for text in ("int", "tuple<int>", "vector<float, 3>")),
    ],
)
def test_multi_cell(text: str, multi_cell: bool) -> None:
    """Only non-frozen collections and user-defined types have many cells."""
    assert is_multi_cell(parse(text)) is multi_cell
    assert not is_multi_cell(FrozenType(parse(text)))
    assert unfrozen(FrozenType(FrozenType(parse(text)))) == unfrozen(parse(text))
