"""The section "Keep a copy of the table" of docs/change-events.md holds for encoder, replica and server."""

from __future__ import annotations

import json
import re
from itertools import permutations
from typing import Any

import pytest

from bridge.encoding.json_values import json_value
from bridge.model.times import UnixMicros
from sandbox.cql.interpret import Request
from sandbox.cql.server import StatementServer
from schemas.options import OutputOptions, ShapeName
from tests.copied import seen, sorts
from tests.replica import Replica, SeenRow
from tests.unit.bridge.encoding.captured_table import START_US, Capture
from tests.unit.bridge.encoding.test_change_event_docs import DOCUMENT

TEXT = DOCUMENT.read_text(encoding="utf-8")
SECTION = re.search(r"^## Keep a copy of the table\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]
DDL = [one.strip() for one in re.search(r"```sql\n(.*?)```", SECTION, re.DOTALL)[1].split(";") if one.strip()]  # type: ignore[index]
TYPE, CARTS, VISITS, RIDES = DDL
WHERE = " WHERE customer = 7 AND line = 1"
VANISHING = "CREATE TABLE shop.t (k int, c int, s int static, v int, PRIMARY KEY (k, c)) WITH cdc = {'enabled': true%s}"


def table_rows(*header: str) -> list[list[str]]:
    """Return the cells of the rows of the section's table with this header."""
    head = re.escape("| " + " | ".join(header) + " |")
    found = re.search(rf"^{head}\n\|[-|]+\|\n((?:\|.*\|\n)+)", SECTION, re.MULTILINE)
    assert found is not None, header
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in found[1].splitlines()]


def code(cell: str) -> list[str]:
    """Return the texts in backquotes of a cell."""
    return re.findall(r"`([^`]*)`", cell)


def touched(value: Any) -> Any:
    return json_value({name: change for name, change in value["columns"].items() if change is not None})


def test_touched_columns() -> None:
    """Each statement gives one record with the columns that the document shows."""
    capture = Capture(TYPE, CARTS)
    rows = table_rows("Statement", "Touched `columns` of its record")
    assert len(rows) == 10
    for (statement,), (shown,) in ((code(one), code(other)) for one, other in rows):
        (value,) = capture.values(statement)
        assert json.dumps(touched(value)) == shown, statement


def test_ranges() -> None:
    """Each range delete has the bounds that the document shows; `flat` leaves out the absent columns."""
    delta, flat = Capture(RIDES), Capture(RIDES, output=OutputOptions(shape="flat"))
    rows = table_rows("Statement", "`range`")
    assert len(rows) == 4
    for (statement,), (shown,) in ((code(one), code(other)) for one, other in rows):
        (value,) = delta.values(statement)
        assert json.dumps(value["range"]) == shown, statement
        bounds = {
            side: bound and bound | {"key": {name: one for name, one in bound["key"].items() if one is not None}}
            for side, bound in value["range"].items()
        }
        (value,) = flat.values(statement)
        assert json.loads(value["__range"]) == bounds


def test_tables_of_keys_alone() -> None:
    """The records are as shown, and the copy has a row for each of these updates until it is deleted."""
    capture = Capture(VISITS)
    copy = replica(capture)
    rows = table_rows("Statement", "`op`", "`columns`", "`ttl`")
    assert [code(row[1]) for row in rows] == [["update"], ["update"], ["row_delete"]]
    found = []
    for row in rows:
        (statement,), (op,), (columns,), (ttl,) = map(code, row)
        (record,) = capture.run(statement)
        assert record.value is not None
        assert (record.value["op"], record.value["columns"], record.value["ttl"]) == (
            op,
            json.loads(columns),
            json.loads(ttl),
        )
        copy.apply(record.key, record.value)
        found.append(sorted(copy.rows(record.key)))
    assert found == [[(1,)], [(1,), (2,)], [(2,)]]


def test_insert_into_a_table_of_keys_alone() -> None:
    """Without COMPACT STORAGE it is an insert, with `columns` as in the document."""
    capture = Capture(VISITS.replace("COMPACT STORAGE AND ", ""))
    (value,) = capture.values("INSERT INTO shop.visits (customer, day) VALUES (7, 1)")
    assert (value["op"], value["columns"]) == ("insert", {})


def replica(capture: Capture) -> Replica:
    return Replica(json.loads(capture.codec.value_avro_schema), sorts(capture.schema))


def result(row: SeenRow | None) -> Any:
    """Return the only column of a row with a value, as the document shows it."""
    values = [] if row is None else [*row.cells.values(), *(sorted(one) for one in row.collections.values())]
    assert len(values) <= 1
    return values[0] if values else None


@pytest.mark.parametrize("row", table_rows("Two requests", "`timestamp_us` of their records", "Result"), ids=str)
def test_ties(row: list[str]) -> None:
    """Timestamps are as shown, and server and copy have the result, in any order of requests and records."""
    statements, stamps = code(row[0]), code(row[1])
    (shown,) = code(row[2])
    assert len(statements) == len(stamps) == 2
    for order in permutations(range(2)):
        capture = Capture(TYPE, CARTS)
        records = {}
        for at in order:
            statement = statements[at].replace("T+1", str(START_US + 1)).replace("TIMESTAMP T", f"TIMESTAMP {START_US}")
            (records[at],) = capture.run(statement + WHERE)
        values = [records[at].value for at in range(2)]
        assert [one and one["source"]["timestamp_us"] for one in values] == [
            START_US + int(stamp.removeprefix("T").removeprefix(" + ") or 0) for stamp in stamps
        ]
        (rows,) = (list(capture.base.rows(key, START_US)) for key in capture.base.partitions)
        assert result(seen(capture.schema, rows[0][1]) if rows else None) == json.loads(shown)
        for applied in permutations(range(2)):
            copy = replica(capture)
            for at in applied:
                value = records[at].value
                assert value is not None
                copy.apply(records[at].key, value)
            assert result(copy.rows(records[0].key).get((1,))) == json.loads(shown)


def test_parts_of_an_insert_with_a_ttl() -> None:
    """An INSERT with a TTL that sets null and replaces a collection is several records; deletions have no TTL."""
    capture = Capture(TYPE, CARTS)
    values = capture.values(
        "INSERT INTO shop.carts (customer, line, note, tags) VALUES (7, 1, null, {'a'}) USING TTL 60"
    )
    nothing = {"cleared": False, "added": [], "removed": []}
    assert [(one["op"], one["ttl"], touched(one) if one["columns"] else None) for one in values] == [
        ("insert", 60, None),
        ("update", None, {"note": {"value": None}, "tags": nothing | {"cleared": True}}),
        ("update", 60, {"tags": nothing | {"added": ["a"]}}),
    ]


def base_has_row(capture: Capture) -> bool:
    return any(list(capture.base.rows(key, START_US + 10**9)) for key in capture.base.partitions)


IMAGE_SHAPES: tuple[ShapeName, ...] = ("full", "debezium", "flat")


def row_after(value: Any) -> Any:
    return value["v"] if "v" in value else value["after"]["v"]


@pytest.mark.parametrize("shape", IMAGE_SHAPES)
def test_image_of_a_row_that_disappears(shape: ShapeName) -> None:
    """An update of the last column leaves `v: null` after it, whether or not the row exists any more."""
    for first, stays in (("UPDATE shop.t SET v = 1", False), ("INSERT INTO shop.t (k, c, v) VALUES (1, 1, 1)", True)):
        capture = Capture(VANISHING % ", 'postimage': true", output=OutputOptions(shape=shape))
        where = " WHERE k = 1 AND c = 1"
        capture.run(first if stays else first + where)
        (value,) = capture.values(f"UPDATE shop.t SET v = null{where}")
        assert row_after(value) is None
        assert value.get("after", value) is not None
        assert (value.get("op") or value["__op"]) in ("u", "update")
        assert base_has_row(capture) is stays


@pytest.mark.parametrize("shape", IMAGE_SHAPES)
@pytest.mark.parametrize("earlier_us", [0, 1])
def test_image_of_a_write_that_loses(shape: ShapeName, earlier_us: int) -> None:
    """The row after a write with an earlier or equal timestamp shows its value, although the table keeps the other."""
    capture = Capture(VANISHING % ", 'postimage': true", output=OutputOptions(shape=shape))
    capture.run("UPDATE shop.t SET v = 9 WHERE k = 1 AND c = 1")
    (value,) = capture.values(f"UPDATE shop.t USING TIMESTAMP {START_US - earlier_us} SET v = 1 WHERE k = 1 AND c = 1")
    assert row_after(value) == 1
    (rows,) = (list(capture.base.rows(key, START_US)) for key in capture.base.partitions)
    assert result(seen(capture.schema, rows[0][1])) == 9


@pytest.mark.parametrize("images", ["", ", 'preimage': 'full', 'postimage': true"])
def test_unavailable_columns_of_deletes(images: str) -> None:
    """A range delete has no regular columns, a partition delete neither regular nor static ones."""
    range_delete, partition_delete = "DELETE FROM shop.t WHERE k = 1 AND c > 1", "DELETE FROM shop.t WHERE k = 1"
    for statement, names in ((range_delete, ["v"]), (partition_delete, ["s", "v"])):
        debezium = Capture(VANISHING % images, output=OutputOptions(shape="debezium", name="x"))
        (record,) = debezium.run(statement)
        assert record.value is not None
        source = record.value["source"]
        assert (source["before_unavailable"], source["unavailable"]) == (names, [])
        (value,) = Capture(VANISHING % images, output=OutputOptions(shape="flat")).values(statement)
        assert json.loads(value["__unavailable"]) == names


def test_no_range_without_clustering_columns() -> None:
    """Values of a table without clustering columns have no field `range`."""
    (value,) = Capture("CREATE TABLE shop.u (k int PRIMARY KEY, v int) WITH cdc = {'enabled': true}").values(
        "DELETE FROM shop.u WHERE k = 1"
    )
    assert value["op"] == "row_delete"
    assert "range" not in value


EXAMPLE_TYPES = {
    "tinyint": ("tinyint", "smallint", "int", "bigint", "varint", "decimal"),
    "date": ("date", "timestamp"),
    "boolean": ("boolean",),
    "float": ("float", "double"),
    "ascii": ("text",),
    "blob": ("blob",),
    "timeuuid": ("timeuuid",),
    "uuid": ("uuid",),
    "frozen list": ("frozen<list<int>>", "vector<int, 2>"),
    "frozen map": ("frozen<map<int, int>>",),
    "tuple": ("tuple<int, int>",),
}


@pytest.mark.parametrize("row", table_rows("CQL", "Order", "Ascending example"), ids=lambda row: row[0])
def test_order_of_clustering_values(row: list[str]) -> None:
    """The server has rows with the example's values in the example's order."""
    values = code(row[2])
    assert len(values) >= 2
    for cql_type in EXAMPLE_TYPES[row[0].partition(",")[0]]:
        if cql_type.startswith("vector"):
            values = ["[1, 1]", "[1, 2]", "[2, 0]"]
        server = StatementServer("shop")
        request = Request(START_US, START_US)
        server.execute(f"CREATE TABLE shop.o (k int, c {cql_type}, v int, PRIMARY KEY (k, c))", request)
        for at, value in reversed(list(enumerate(values))):
            server.execute(f"INSERT INTO shop.o (k, c, v) VALUES (1, {value}, {at})", request)
        base = server.base(server.catalog.tables[-1])
        (partition,) = base.partitions
        found = [int.from_bytes(one.cells["v"], "big") for _, one in base.rows(partition, UnixMicros(START_US + 1))]
        assert found == list(range(len(values))), cql_type
