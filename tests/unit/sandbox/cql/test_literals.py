"""Cells of written values; those of a real server are in the tests against recordings."""

from __future__ import annotations

import pytest

from sandbox.cql.literals import Serializer
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.terms import Call, ListTerm, MapTerm, SetTerm, Term, TupleTerm, UdtTerm
from sandbox.scylla.values.nested import UserType
from schemas.cql.types import NativeType, UdtType, parse

BOX = UserType("box", (("width", NativeType("int")), ("note", NativeType("text"))))
SERIALIZER = Serializer((BOX,))

CELLS: list[tuple[str, Term, str]] = [
    ("timestamp", "2024-02-29T12:34:56.789+01:00", f"{1_709_206_496_789:016x}"),
    ("timestamp", "2024-02-29", f"{1_709_164_800_000:016x}"),
    ("date", "1970-01-02", "80000001"),
    ("date", 2147483648, "80000000"),
    ("time", "01:02", f"{3_720_000_000_000:016x}"),
    ("time", "00:00:00.5", "000000001dcd6500"),
    ("blob", "0x0102", "0102"),
    ("int", Call("blobasint", (b"",)), ""),
    ("set<int>", SetTerm((2, -1, 2)), "00000002" "00000004ffffffff" "0000000400000002"),
    ("map<int, int>", MapTerm(((2, 1), (1, 3), (2, 4))), "00000002" "0000000400000001" "0000000400000003"
     "0000000400000002" "0000000400000004"),
    ("map<int, int>", ListTerm((ListTerm((1, 2)),)), "00000001" "0000000400000001" "0000000400000002"),
    ("map<int, int>", SetTerm(()), "00000000"),
    ("tuple<int, text>", TupleTerm((1,)), "0000000400000001"),
    ("tuple<int, text>", TupleTerm((None, "a")), "ffffffff" "0000000161"),
    ("frozen<box>", UdtTerm((("note", "a"),)), "ffffffff" "0000000161"),
    ("frozen<box>", TupleTerm((1, "a")), "0000000400000001" "0000000161"),
    ("frozen<box>", TupleTerm((1,)), "0000000400000001"),
    ("box", TupleTerm((None, "a")), "ffffffff" "0000000161"),
    ("frozen<box>", MapTerm((("width", 1),)), "0000000400000001" "ffffffff"),
    ("vector<float, 2>", ListTerm((1, 2)), "3f80000040000000"),
]  # fmt: skip

REFUSED: list[tuple[str, Term, str]] = [
    ("int", "1", "not a value of type int: '1'"),
    ("int", True, "not a value of type int"),
    ("int", 2147483648, "not a value of type int"),
    ("text", 1, "not a value of type text"),
    ("ascii", "é", "not a value of type ascii"),
    ("boolean", 1, "neither true nor false"),
    ("date", "yesterday", "not a value of type date"),
    ("time", "25", "no time of day"),
    ("uuid", "x", "not a value of type uuid"),
    ("list<int>", 1, "a list or set expected"),
    ("list<int>", ListTerm((None,)), "null can't stand here"),
    ("map<int, int>", SetTerm((1,)), "a map expected"),
    ("tuple<int>", TupleTerm((1, 2)), "too many elements: expected 1 at most, found 2"),
    ("tuple<int>", 1, "a tuple expected"),
    ("frozen<box>", TupleTerm((1, "a", 2)), "too many elements: expected 2 at most, found 3"),
    ("box", UdtTerm((("depth", 1),)), "type box has no field 'depth'; it has width, note"),
    ("vector<float, 2>", ListTerm((1,)), "a vector of 2 elements expected, found 1"),
    ("int", Call("now", ()), "the function now is not understood"),
]


@pytest.mark.parametrize(("type_text", "term", "cell"), CELLS)
def test_a_value_is_serialized(type_text: str, term: Term, cell: str) -> None:
    found = SERIALIZER.cell(parse(type_text), term)
    assert found is not None
    assert found.hex() == cell


@pytest.mark.parametrize(("type_text", "term", "words"), REFUSED)
def test_a_value_that_does_not_fit_is_refused(type_text: str, term: Term, words: str) -> None:
    with pytest.raises(CqlError, match=words):
        SERIALIZER.cell(parse(type_text), term)


def test_null_has_no_cell() -> None:
    assert SERIALIZER.cell(parse("int"), None) is None


def test_a_field_is_known_by_its_place() -> None:
    assert SERIALIZER.field(UdtType("box"), "note") == (1, NativeType("text"))
    with pytest.raises(CqlError, match="has no field 'depth'"):
        SERIALIZER.field(UdtType("box"), "depth")
