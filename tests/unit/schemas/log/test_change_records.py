"""Changes of several log rows (ranges, images), static updates, and rows that contradict themselves."""

from __future__ import annotations

from functools import cache

import pytest

from schemas.errors import CellError, OperationError, OutputError, SchemaError
from schemas.options import OutputOptions
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import counted, log_columns, row, sized, table

ONE, TWO, TRUE = b"\x00\x00\x00\x01", b"\x00\x00\x00\x02", b"\x01"
OF = table(
    {"pk": "int"},
    {"a": "int", "b": "text", "c": "int"},
    {"v": "int", "l": "list<int>", "u": "u"},
    {"s": "int"},
    descending=["b"],
    types={"u": {"x": "int", "y": "int"}},
)
NO_CLUSTERING = table({"pk": "int"}, {}, {"v": "int"})
NO_STATICS = table({"pk": "int"}, {"a": "int"}, {"v": "int"})
KEY: dict[str, bytes | None] = {"pk": ONE, "a": ONE, "b": b"x", "c": TWO}
FULL = OutputOptions(shape="full")


@cache
def codec_of(of: object = OF, output: OutputOptions = OutputOptions()) -> TableCodec:  # noqa: B008
    return TableCodec(of, log_columns(of), output)  # type: ignore[arg-type]


def operation_cell(operation: int) -> dict[str, bytes | None]:
    return {"cdc$operation": operation.to_bytes(1, "big", signed=True)}


def change(
    cells: dict[str, bytes | None],
    operation: int,
    *,
    of: object = OF,
    output: OutputOptions = OutputOptions(),  # noqa: B008
    **more: tuple[bytes | None, ...],
) -> dict[str, object]:
    codec = codec_of(of, output)
    _, body = codec.encode(
        row(of, {"pk": ONE, **cells}),  # type: ignore[arg-type]
        operation=operation,
        generation_ms=0,
        last_in_group=True,
        **more,  # type: ignore[arg-type]
    )
    return codec.decode_value(body)


def end(cells: dict[str, bytes | None], operation: int = 7) -> tuple[bytes | None, ...]:
    return row(OF, {"pk": ONE, **operation_cell(operation), **cells})


def bound(inclusive: bool, a: object = None, b: object = None, c: object = None) -> dict[str, object]:
    return {"inclusive": inclusive, "key": {"a": a, "b": b, "c": c}, "empty_columns": []}


@pytest.mark.parametrize(
    ("start", "operation", "stop", "stop_operation", "expected"),
    [
        ({}, 5, {}, 7, {"start": None, "end": None}),
        ({"a": ONE}, 5, {"a": ONE}, 7, {"start": bound(True, 1), "end": bound(True, 1)}),
        ({"a": ONE}, 6, {}, 7, {"start": bound(False, 1), "end": None}),
        ({}, 5, {"a": ONE, "b": b""}, 8, {"start": None, "end": bound(False, 1, "")}),
        (
            {"a": ONE, "b": b"y", "c": ONE},
            5,
            {"a": ONE, "b": b"x", "c": TWO},
            8,
            {"start": bound(True, 1, "y", 1), "end": bound(False, 1, "x", 2)},
        ),
    ],
)
def test_range(
    start: dict[str, bytes | None],
    operation: int,
    stop: dict[str, bytes | None],
    stop_operation: int,
    expected: dict[str, object],
) -> None:
    """A range delete has both bounds: inside or not, prefixes, unbounded sides."""
    value = change(start, operation, range_end=end(stop, stop_operation))
    assert value["op"] == "range_delete"
    assert value["key"] == {"pk": 1, "a": None, "b": None, "c": None}
    assert value["range"] == expected
    assert value["columns"] is None
    assert value["source"]["operation"] == operation  # type: ignore[index]


def test_empty_bound() -> None:
    """CQL's "empty" in a bound differs from a column that the bound does not have."""
    value = change({"a": b""}, 5, range_end=end({"a": ONE}))
    assert value["range"]["start"] == {**bound(True), "empty_columns": ["a"]}  # type: ignore[index]
    assert value["empty_columns"] == []


def test_no_range_field() -> None:
    """The field is missing in a table without clustering columns, and null in other changes of a table with them."""
    assert "range" not in change({}, 4, of=NO_CLUSTERING)
    assert change(KEY, 3)["range"] is None


def test_descending() -> None:
    """The schema marks the clustering columns in descending order."""
    assert codec_of().value_avro_schema.count('"clusteringOrder":"desc"') == 1


@pytest.mark.parametrize(
    ("cells", "operation", "reason"),
    [
        ({"a": ONE, "b": b"x"}, 2, "needs the whole clustering key; the log row has 2 of its 3"),
        ({"a": ONE}, 1, "the log row has 1 of its 3"),
        ({}, 2, "the log row has 0 of its 3"),
        ({}, 3, "the log row has 0 of its 3"),
        ({"b": b"x", "c": ONE}, -3, "the log row has 2 of its 3"),
        (KEY, 4, "with a clustering key"),
        ({"a": ONE}, -4, "with a clustering key"),
        ({**KEY, "v": ONE}, 3, "cannot touch column 'v'"),
        ({"cdc$deleted_elements_l": counted()}, 4, "cannot touch column 'l'"),
        ({"cdc$deleted_s": TRUE}, -4, "cannot touch column 's'"),
        ({**KEY, "s": ONE}, 2, "cannot touch column 's'"),
        ({"u": sized(ONE)}, 1, r"\(static_update\) cannot touch column 'u'"),
        ({"a": ONE}, 5, "lacks the end of its range"),
        ({"a": ONE}, 7, "the end of a range without its start"),
        ({"a": ONE}, 8, "the end of a range without its start"),
        (KEY, 0, "is an image"),
        (KEY, 9, "is an image"),
    ],
)
def test_contradictions(cells: dict[str, bytes | None], operation: int, reason: str) -> None:
    """A row whose cells do not fit its operation is refused."""
    with pytest.raises(OperationError, match=reason):
        change(cells, operation)


@pytest.mark.parametrize(
    ("start", "stop", "reason"),
    [
        ({"a": ONE}, {"a": ONE, **operation_cell(5)}, "cdc.operation is 5; the end of a range"),
        ({"a": ONE}, {"pk": TWO}, "the end of a range differs from the change in key column 'pk'"),
        ({"b": b"x"}, {"a": ONE}, "the start of a range has a clustering column but not the one before it"),
        ({"a": ONE}, {"a": ONE, "c": ONE}, "the end of a range has a clustering column but not"),
        ({"a": ONE}, operation_cell(8), "the end of a range has no clustering column but excludes"),
        ({"v": ONE}, {}, "cannot touch column 'v'"),
    ],
)
def test_bad_ranges(start: dict[str, bytes | None], stop: dict[str, bytes | None], reason: str) -> None:
    """A malformed bound is refused, and so are two bounds that do not belong together."""
    with pytest.raises(OperationError, match=reason):
        change(start, 5, range_end=end(stop))


def test_rows_that_do_not_fit_the_table() -> None:
    """Rows that do not fit the table are refused, and arguments that do not fit the row."""
    with pytest.raises(OperationError, match="no static columns"):
        change({"v": ONE}, 1, of=NO_STATICS)
    with pytest.raises(OperationError, match="without clustering columns"):
        change({}, 5, of=NO_CLUSTERING, range_end=row(NO_CLUSTERING, {"pk": ONE}))
    with pytest.raises(OperationError, match="has the end of a range"):
        change(KEY, 2, range_end=end({}))
    with pytest.raises(CellError, match=r"cdc\$operation"):
        change({"a": ONE}, 5, range_end=row(OF, {"pk": ONE, "a": ONE}))
    with pytest.raises(CellError, match=r"'v' of type int: has a value although 'cdc\$deleted_v' is true"):
        change({**KEY, "v": ONE, "cdc$deleted_v": TRUE}, 2)


def test_static_update() -> None:
    """An update without a clustering key is a static update, if the table has clustering columns."""
    value = change({"s": ONE}, 1)
    assert value["op"] == "static_update"
    assert value["columns"] == {"s": {"value": 1}, "v": None, "l": None, "u": None}
    assert change({"v": ONE}, 1, of=NO_CLUSTERING)["op"] == "update"


TIMEUUIDS = [bytes.fromhex(f"50554d6{last}29bb11e5b345feff819cdc9f") for last in "ef"]


def image(
    operation: int, cells: dict[str, bytes | None], key: dict[str, bytes | None] = KEY
) -> tuple[bytes | None, ...]:
    return row(OF, {**key, **operation_cell(operation), **cells})


def test_images() -> None:
    """The shape `full` has the row before and after, a list as its values, and the names of unknown columns."""
    shown = {"l": counted(TIMEUUIDS[0], TWO, TIMEUUIDS[1], ONE, of=2), "cdc$deleted_v": TRUE}
    after = {"l": counted(), "v": TWO, "u": sized(ONE)}
    value = change({**KEY, "v": TWO}, 1, output=FULL, before=image(0, shown), after=image(9, after))
    assert value["before"] == {"l": [2, 1], "s": None, "u": None, "v": None}
    assert value["before_unknown"] == ["u"]
    assert value["after"] == {"l": [], "s": None, "u": {"x": 1, "y": None}, "v": 2}
    assert value["before_empty"] == value["after_empty"] == []
    delta = change({**KEY, "v": TWO}, 1)
    assert {name: value[name] for name in delta} == delta
    assert change({**KEY, "v": TWO}, 1, before=image(0, shown)) == delta


def test_static_images() -> None:
    """Images of the static row show static columns only."""
    static = {"pk": ONE}
    value = change({"s": TWO}, 1, output=FULL, before=image(0, {}, static), after=image(9, {"s": b""}, static))
    assert value["before"] == value["after"] == {"l": None, "s": None, "u": None, "v": None}
    assert value["before_unknown"] == ["s"]
    assert value["after_empty"] == ["s"]


def test_no_images() -> None:
    """The shape `full` also has changes without images."""
    value = change(KEY, 3, output=FULL)
    assert (value["op"], value["before"], value["after"], value["before_unknown"]) == ("row_delete", None, None, [])


@pytest.mark.parametrize("output", [OutputOptions(), FULL])
@pytest.mark.parametrize(("operation", "symbol"), [(4, "row_delete"), (-4, "row_expiry")])
def test_deletes_without_clustering(operation: int, symbol: str, output: OutputOptions) -> None:
    """The delete of a partition that is one row is a row delete; `source` keeps the number from the log."""
    value = change({"pk": ONE}, operation, of=NO_CLUSTERING, output=output)
    assert (value["op"], value["columns"]) == (symbol, None)
    assert isinstance(value["source"], dict)
    assert value["source"]["operation"] == operation


def test_image_of_delete_without_clustering() -> None:
    """Newer servers log the pre-image of a row that a partition delete removes."""
    before = row(NO_CLUSTERING, {"pk": ONE, "v": TWO, **operation_cell(0)})
    value = change({}, 4, of=NO_CLUSTERING, output=FULL, before=before)
    assert (value["op"], value["before"]) == ("row_delete", {"v": 2})


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (image(9, {}), r"cdc\$operation is 9; this image of a row must have 0"),
        (image(0, {"c": ONE}), "differs from the change in key column 'c'"),
        (image(0, {"v": ONE, "cdc$deleted_v": TRUE}), "'v' of type int: has a value although"),
        (image(0, {"l": b"\x00"}), "'l' of type .* ends too early"),
    ],
)
def test_bad_images(before: tuple[bytes | None, ...], reason: str) -> None:
    """A row that is not an image, and the image of another row, are refused."""
    with pytest.raises(SchemaError, match=reason):
        change(KEY, 2, output=FULL, before=before)


def test_range_has_no_image() -> None:
    """A range delete with an image is refused, because it is not about one row."""
    with pytest.raises(OperationError, match="has an image of a row"):
        change({"a": ONE}, 5, output=FULL, range_end=end({}), before=image(0, {}))


def test_unknown_shape() -> None:
    """An unknown shape is refused by name."""
    with pytest.raises(OutputError, match="'xml'"):
        codec_of(OF, OutputOptions(shape="xml"))  # type: ignore[arg-type]
