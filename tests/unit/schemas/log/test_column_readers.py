"""Changes of columns of many cells, for the log rows that a server writes (spec section 2.3)."""

from __future__ import annotations

import pytest

from schemas.errors import CellError
from schemas.log.columns import deleted_elements_type, value_type
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import counted, log_columns, row, sized, table

ONE, TWO = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02"
FIRST, SECOND = bytes.fromhex("50554d6e29bb11e5b345feff819cdc9f"), bytes.fromhex("50554d6f29bb11e5b345feff819cdc9f")
FIRST_TEXT, SECOND_TEXT = "50554d6e-29bb-11e5-b345-feff819cdc9f", "50554d6f-29bb-11e5-b345-feff819cdc9f"
OF = table(
    {"pk": "int"},
    {"ck": "int"},
    {"s": "set<text>", "m": "map<text, int>", "l": "list<int>", "u": "u"},
    {"st": "set<int>"},
    types={"u": {"a": "int", "b c": "text", "c": "frozen<set<int>>"}},
)
CODEC = TableCodec(OF, log_columns(OF))
TRUE = b"\x01"


def columns(cells: dict[str, bytes | None], *, static: bool = False) -> dict[str, object]:
    """The touched columns of an update."""
    given = row(OF, {"pk": ONE, "ck": None if static else ONE, **cells})
    value = CODEC.decode_value(CODEC.encode(given, operation=1, generation_ms=0, last_in_group=True)[1])
    assert value["op"] == ("static_update" if static else "update")
    if value["columns"] is None:
        return {}
    assert isinstance(value["columns"], dict)
    return {name: _text(one) for name, one in value["columns"].items() if one is not None}


def _text(value: object) -> object:
    match value:
        case dict():
            return {name: _text(one) for name, one in value.items()}
        case list():
            return [_text(one) for one in value]
        case str() | int() | None:
            return value
    return str(value)


def delta(*, cleared: bool = False, added: list[object] = [], removed: list[object] = []) -> dict[str, object]:  # noqa: B006
    return {"cleared": cleared, "added": added, "removed": removed}


def fields(a: object = None, b: object = None, c: object = None, *, cleared: bool = False) -> dict[str, object]:
    return {"cleared": cleared, "fields": {"a": a, "b_u20_c": b, "c": c}}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, {}),
        ({"cdc$deleted_s": b"\x00"}, {}),
        # s = {'a', 'b'}
        ({"s": counted(b"a", b"b"), "cdc$deleted_s": TRUE}, {"s": delta(cleared=True, added=["a", "b"])}),
        # s = {}, s = null, DELETE s
        ({"cdc$deleted_s": TRUE}, {"s": delta(cleared=True)}),
        # s + {'a'}
        ({"s": counted(b"a")}, {"s": delta(added=["a"])}),
        # s - {'a', ''}
        ({"cdc$deleted_elements_s": counted(b"", b"a")}, {"s": delta(removed=["", "a"])}),
        (
            {"s": counted(b"x"), "cdc$deleted_s": TRUE, "cdc$deleted_elements_s": counted(b"y")},
            {"s": delta(cleared=True, added=["x"], removed=["y"])},
        ),
        ({"m": counted(b"k", ONE, of=2)}, {"m": delta(added=[{"key": "k", "value": 1}])}),
        ({"cdc$deleted_elements_m": counted(b"k")}, {"m": delta(removed=["k"])}),
        # l + [1, 2], in the server's order
        (
            {"l": counted(FIRST, ONE, SECOND, TWO, of=2)},
            {"l": delta(added=[{"key": FIRST_TEXT, "value": 1}, {"key": SECOND_TEXT, "value": 2}])},
        ),
        ({"cdc$deleted_elements_l": counted(SECOND)}, {"l": delta(removed=[SECOND_TEXT])}),
        # u.a = 1: a null field is untouched
        ({"u": sized(ONE, None, None)}, {"u": fields({"value": 1})}),
        # u['b c'] = null
        ({"u": sized(None, None, None), "cdc$deleted_elements_u": counted(b"\0\1")}, {"u": fields(b={"value": None})}),
        # u = null
        ({"u": sized(None, None, None), "cdc$deleted_u": TRUE}, {"u": fields(cleared=True)}),
        # u = {a: 1, c: {2}}
        (
            {"u": sized(ONE, None, counted(TWO)), "cdc$deleted_u": TRUE},
            {"u": fields({"value": 1}, None, {"value": [2]}, cleared=True)},
        ),
        # Written before ALTER TYPE ADD c, with an empty text.
        ({"u": sized(None, b"")}, {"u": fields(b={"value": ""})}),
        ({"cdc$deleted_u": TRUE}, {"u": fields(cleared=True)}),
    ],
)
def test_delta(cells: dict[str, bytes | None], expected: dict[str, object]) -> None:
    """Cleared, added, removed and untouched differ."""
    assert columns(cells) == expected


def test_static_delta() -> None:
    """A static collection changes in a static update."""
    assert columns({"st": counted(TWO), "cdc$deleted_st": TRUE}, static=True) == {"st": delta(cleared=True, added=[2])}


@pytest.mark.parametrize(
    ("cells", "column", "reason"),
    [
        ({"s": counted(b"\xff")}, "s", "inside it, text: not valid utf-8"),
        ({"cdc$deleted_s": b""}, "cdc$deleted_s", "1 bytes long"),
        ({"cdc$deleted_elements_s": b""}, "cdc$deleted_elements_s", "ends too early"),
        ({"l": counted(FIRST, b"", of=2)}, "l", "inside it, int"),
        ({"l": counted(b"x", ONE, of=2)}, "l", "inside it, timeuuid"),
        ({"cdc$deleted_elements_u": counted(b"\0\3")}, "cdc$deleted_elements_u", "not exist; the type has 3"),
        ({"cdc$deleted_elements_u": counted(b"\xff\xff")}, "cdc$deleted_elements_u", "does not exist"),
        ({"cdc$deleted_elements_u": counted(b"\0\0\1")}, "cdc$deleted_elements_u", "2 bytes long"),
        ({"u": sized(None, None, None, None)}, "u", "after the last of its 3 fields"),
        ({"u": sized(b"")}, "u", "inside it, int"),
        ({"u": sized(ONE), "cdc$deleted_elements_u": counted(b"\0\0")}, "u", "field 'a' has a value although"),
    ],
)
def test_malformed_delta(cells: dict[str, bytes | None], column: str, reason: str) -> None:
    """Malformed and contradictory cells name their column."""
    with pytest.raises(CellError, match=reason) as caught:
        columns(cells)
    assert caught.value.column == column


def test_log_types() -> None:
    """The types of the log's columns are those of the server (spec section 1.2)."""
    found = {
        column.name: (str(value_type(column.type)), str(deleted_elements_type(column.type))) for column in OF.values
    }
    assert found == {
        "l": ("frozen<map<timeuuid, int>>", "frozen<set<timeuuid>>"),
        "m": ("frozen<map<text, int>>", "frozen<set<text>>"),
        "s": ("frozen<set<text>>", "frozen<set<text>>"),
        "st": ("frozen<set<int>>", "frozen<set<int>>"),
        "u": ("frozen<u>", "frozen<set<smallint>>"),
    }
    atomic = OF.clustering[0].type
    assert value_type(atomic) == atomic
    with pytest.raises(ValueError, match="has one cell"):
        deleted_elements_type(atomic)


def test_rows_that_name_no_column() -> None:
    """`columns` is null and not all untouched, because the log may have held keys only."""
    assert "held keys only" in CODEC.value_avro_schema
    for operation, cells, shown in ((1, {}, False), (2, {}, False), (77, {}, False), (2, {"s": counted(b"x")}, True)):
        body = CODEC.encode(
            row(OF, {"pk": ONE, "ck": ONE, **cells}), operation=operation, generation_ms=0, last_in_group=True
        )[1]
        assert (CODEC.decode_value(body)["columns"] is not None) is shown
