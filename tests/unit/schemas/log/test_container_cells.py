"""Cells of collections, vectors, tuples and user-defined types: their values, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cql.types import CqlType, parse, resolve
from schemas.errors import CellError
from schemas.log.cells import decoder
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import counted, log_columns, row, sized, table

ONE, TWO = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"
UUID = bytes(15) + b"\x01"
UUID_TEXT = "00000000-0000-0000-0000-000000000001"
TYPES = {"u": {"a": "int", "B c": "text"}, "deep": {"u": "frozen<u>", "l": "frozen<list<frozen<u>>>"}}


def typed(text: str) -> CqlType:
    definitions = {name: [(field, parse(one)) for field, one in fields.items()] for name, fields in TYPES.items()}
    return resolve(parse(text), definitions)


GOOD = [
    ("list<int>", counted(), []),
    ("list<int>", counted(ONE, TWO, ONE), [1, 2, 1]),
    ("set<text>", counted(b"", b"x"), ["", "x"]),
    ("map<text, int>", counted(b"k", ONE, of=2), [{"key": "k", "value": 1}]),
    ("map<uuid, boolean>", counted(UUID, b"\x01", of=2), [{"key": UUID_TEXT, "value": True}]),
    ("list<frozen<set<boolean>>>", counted(counted(b"\x00"), counted()), [[False], []]),
    ("list<duration>", counted(b"\x01\x03\x05"), [{"months": -1, "days": -2, "nanoseconds": -3}]),
    ("tuple<int, text>", sized(ONE, b"x"), {"field_0": 1, "field_1": "x"}),
    ("tuple<int, text>", sized(None, b""), {"field_0": None, "field_1": ""}),
    ("tuple<int, text>", sized(ONE), {"field_0": 1, "field_1": None}),
    ("tuple<int, text>", b"", {"field_0": None, "field_1": None}),
    ("u", sized(ONE, b"x"), {"a": 1, "B_u20_c": "x"}),
    ("u", sized(ONE), {"a": 1, "B_u20_c": None}),
    (
        "deep",
        sized(sized(ONE, None), counted(sized(None, b"y"))),
        {"u": {"a": 1, "B_u20_c": None}, "l": [{"a": None, "B_u20_c": "y"}]},
    ),
    ("vector<int, 2>", ONE + TWO, [1, 2]),
    ("vector<float, 2>", bytes.fromhex("3fc00000bf800000"), [1.5, -1.0]),
    ("vector<frozen<vector<bigint, 1>>, 2>", bytes(7) + b"\x05" + bytes(7) + b"\x06", [[5], [6]]),
    # The servers write a length for each of these elements, although their width is fixed.
    ("vector<smallint, 2>", b"\x02\x00\x01\x02\xff\xff", [1, -1]),
    ("vector<date, 1>", b"\x04\x80\x00\x00\x00", [0]),
    ("vector<text, 2>", b"\x00\x80\x80" + b"x" * 128, ["", "x" * 128]),
    ("vector<frozen<list<int>>, 1>", b"\x0c" + counted(ONE), [[1]]),
]
COUNT_2_TO_31_LESS_1, NEGATIVE = b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff"
BAD = [
    ("list<int>", b"\x00\x00", "ends too early"),
    ("list<int>", NEGATIVE, "can not hold as many elements"),
    ("list<int>", COUNT_2_TO_31_LESS_1 + sized(ONE), "can not hold as many elements"),
    ("set<text>", COUNT_2_TO_31_LESS_1 + bytes(4), "can not hold as many elements"),
    ("map<int, int>", TWO + sized(ONE, ONE), "cannot have 2 elements in 20 bytes|ends too early"),
    ("list<int>", TWO + sized(ONE), "ends too early"),
    ("list<int>", counted(ONE) + b"\x00", "1 bytes after the last element"),
    ("set<text>", bytes(4) + b"\x00", "1 bytes after the last element"),
    ("list<int>", ONE + b"\x00\x00\x00\x05" + ONE, "runs past the end"),
    ("list<text>", ONE + b"\x7f\xff\xff\xff" + ONE, "runs past the end"),
    ("list<int>", ONE + NEGATIVE, "an element is null"),
    ("list<int>", counted(b""), "inside it, int: must be 4 bytes long"),
    ("list<int>", counted(bytes(5)), "inside it, int: must be 4 bytes long"),
    ("list<frozen<list<int>>>", counted(b""), "inside it, list<int>: the cell ends too early"),
    ("map<int, text>", counted(ONE, b"\xff", of=2), "inside it, text: not valid utf-8"),
    ("tuple<int, text>", sized(b""), "inside it, int: must be 4"),
    ("tuple<int, text>", sized(ONE, b"x", b"y"), "after the last of its 2 fields"),
    ("tuple<int, text>", sized(ONE) + b"\x00", "ends too early"),
    ("tuple<int, text>", b"\xff\xff\xff\xfe", "has a negative length"),
    ("tuple<int, text>", b"\x00\x00\x00\x09" + ONE, "runs past the end"),
    ("u", sized(ONE, b"x", None), "after the last of its 2 fields"),
    ("deep", sized(sized(ONE, None, None)), "inside it, u: 4 bytes after the last of its 2 fields"),
    ("vector<int, 2>", ONE, "must be 8 bytes long"),
    ("vector<int, 2>", ONE + TWO + ONE, "must be 8 bytes long"),
    ("vector<text, 2>", b"\x01x", "ends too early"),
    ("vector<text, 2>", b"\x01x\x05y", "runs past the end"),
    ("vector<text, 1>", b"\xff" + b"\xff" * 8, "runs past the end"),
    ("vector<text, 1>", b"\x01xy", "1 bytes after the last element"),
]


@pytest.mark.parametrize(("text", "raw", "value"), GOOD)
def test_decoded(text: str, raw: bytes, value: object) -> None:
    """A well-formed cell decodes to plain values."""
    assert decoder(typed(text))(raw) == value


@pytest.mark.parametrize(("text", "raw", "value"), [one for one in GOOD if one[1]])
def test_encoded(text: str, raw: bytes, value: object) -> None:
    """A frozen value keeps its value as key and as column, and a consumer reads the decoded value."""
    frozen = text if text.startswith(("tuple", "vector")) else f"frozen<{text}>"
    of = table({"pk": frozen}, {"ck": frozen}, {"v": frozen}, types=TYPES)
    codec = TableCodec(of, log_columns(of))
    key, body = codec.encode(
        row(of, {"pk": raw, "ck": raw, "v": raw}), operation=2, generation_ms=0, last_in_group=True
    )
    change = codec.decode_value(body)
    found = [codec.decode_key(key)["pk"], change["key"]["pk"], change["key"]["ck"], change["columns"]["v"]["value"]]  # type: ignore[index]
    assert [_with_text_uuids(one) for one in found] == [value] * 4


def _with_text_uuids(value: object) -> object:
    match value:
        case dict():
            return {name: _with_text_uuids(one) for name, one in value.items()}
        case list():
            return [_with_text_uuids(one) for one in value]
        case str() | int() | float() | None:
            return value
    return str(value)


@pytest.mark.parametrize(("text", "raw", "reason"), BAD)
def test_malformed(text: str, raw: bytes, reason: str) -> None:
    """The error about a malformed value names the column and its type, whichever part is wrong."""
    frozen = text if text.startswith(("tuple", "vector")) else f"frozen<{text}>"
    of = table({"pk": "int"}, {}, {"v": frozen}, types=TYPES)
    codec = TableCodec(of, log_columns(of))
    with pytest.raises(CellError, match=reason) as caught:
        codec.encode(row(of, {"pk": ONE, "v": raw}), operation=2, generation_ms=0, last_in_group=True)
    assert caught.value.column == "v"
    assert caught.value.cql_type == frozen


@given(st.sampled_from([text for text, _, _ in GOOD]), st.binary(max_size=40))
def test_any_bytes(text: str, raw: bytes) -> None:
    """Any bytes are a value or a CellError, never another error."""
    try:
        value = decoder(typed(text))(raw)
    except CellError:
        return
    assert isinstance(value, list | dict)


def test_absurd_count() -> None:
    """A count beyond the cell's size allocates no memory, also in the compiled code."""
    of = table({"pk": "int"}, {}, {"s": "set<text>", "m": "map<int, int>"})
    codec = TableCodec(of, log_columns(of))
    for column in ("s", "m", "cdc$deleted_elements_s", "cdc$deleted_elements_m"):
        cells = row(of, {"pk": ONE, column: COUNT_2_TO_31_LESS_1 + bytes(4)})
        with pytest.raises(CellError, match="can not hold as many elements as it states") as caught:
            codec.encode(cells, operation=2, generation_ms=0, last_in_group=True)
        assert caught.value.column == column


def test_empty_collection_cell() -> None:
    """A cell of no bytes is CQL's "empty" for a frozen collection, and malformed for a non-frozen one."""
    of = table({"pk": "int"}, {}, {"f": "frozen<set<int>>", "s": "set<int>"})
    codec = TableCodec(of, log_columns(of))
    body = codec.encode(row(of, {"pk": ONE, "f": b""}), operation=1, generation_ms=0, last_in_group=True)[1]
    value = codec.decode_value(body)
    assert value["columns"] == {"f": {"value": None}, "s": None}
    assert value["empty_columns"] == ["f"]
    with pytest.raises(CellError, match="ends too early"):
        codec.encode(row(of, {"pk": ONE, "s": b""}), operation=1, generation_ms=0, last_in_group=True)
