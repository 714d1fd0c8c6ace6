"""The shapes that describe rows, `debezium` and `flat`: what each statement becomes, with and without images."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bridge.errors import PoisonError
from bridge.model.log_rows import Cells
from bridge.model.record_form import RecordForm
from bridge.model.times import UnixMicros, timeuuid_of
from schemas.errors import OutputError
from schemas.options import OutputOptions, ShapeName
from tests.unit.bridge.encoding.carried import START_US, STREAM, Capture
from tests.unit.schemas.example_tables import counted, row, sized

HOME = "CREATE TYPE shop.home (street text, zip int)"
COLUMNS = (
    "customer int, line int, note text, tags set<text>, log list<text>, home home, vip boolean static, "
    "PRIMARY KEY (customer, line)"
)
IMAGES = {"none": "", "true": ", 'preimage': true", "full": ", 'preimage': 'full'"}
POST = ", 'postimage': true"
DEBEZIUM = OutputOptions(shape="debezium", name="orders-job")
FLAT = OutputOptions(shape="flat")
ROW = "WHERE customer = 7 AND line = 1"
FIRST = "INSERT INTO shop.orders (customer, line, note, tags) VALUES (7, 1, 'first', {'a'})"


def orders(images: str = "", output: OutputOptions = DEBEZIUM) -> Capture:
    return Capture(HOME, f"CREATE TABLE shop.orders ({COLUMNS}) WITH cdc = {{'enabled': true{images}}}", output=output)


def after(line: int | None = 1, **columns: Any) -> dict[str, Any]:
    names = ("note", "tags", "log", "home", "vip")
    return {"customer": 7, "line": line, **dict.fromkeys(names), **columns}


def event(capture: Capture, statement: str) -> Any:
    (found,) = capture.run(statement)
    return found.value


def test_insert() -> None:
    """An insert is `c`, with where it stands as Debezium's connectors say it; what it does not name may be there."""
    value = event(orders(), FIRST + " USING TTL 60")
    assert {name: value[name] for name in value if name != "source"} == {
        "before": None,
        "after": after(note="first", tags=["a"]),
        "transaction": None,
        "op": "c",
        "ts_ms": START_US // 1000,
        "ts_us": START_US,
        "ts_ns": START_US * 1000,
        "range": None,
    }
    assert value["source"] == {
        "version": "1",
        "connector": "scylla",
        "name": "orders-job",
        "ts_ms": START_US // 1000,
        "snapshot": "false",
        "db": "shop",
        "sequence": None,
        "ts_us": START_US,
        "ts_ns": START_US * 1000,
        "keyspace": "shop",
        "table": "orders",
        "generation_ms": 1_769_860_000_000,
        "stream_id": STREAM.hex(),
        "time": "5e5d2000-fe9c-11f0-8000-000000000001",
        "batch_seq_no": 0,
        "operation": 2,
        "last_in_group": True,
        "ttl": 60,
        "ttl_mixed": False,
        "unavailable": ["home", "log"],
        "before_unavailable": [],
    }


UPDATE = f"UPDATE shop.orders SET note = 'second', tags = tags + {{'b'}} {ROW}"


@pytest.mark.parametrize(
    ("images", "before", "now", "unavailable", "before_unavailable"),
    [
        ("none", None, {"note": "second"}, {"tags", "log", "home"}, set()),
        ("true", {"note": "first", "tags": ["a"]}, {"note": "second"}, {"tags", "log", "home"}, {"log", "home"}),
        ("full", {"note": "first", "tags": ["a"]}, {"note": "second"}, {"tags"}, set()),
    ],
)
def test_update(
    images: str, before: Any, now: dict[str, Any], unavailable: set[str], before_unavailable: set[str]
) -> None:
    """Without a post-image, the row is what pre-image and change tell; a collection that was added to is not known."""
    capture = orders(IMAGES[images])
    capture.run(FIRST)
    value = event(capture, UPDATE)
    assert value["op"] == "u"
    assert value["before"] == (None if before is None else after(**before))
    assert value["after"] == after(**now)
    assert set(value["source"]["unavailable"]) == unavailable
    assert set(value["source"]["before_unavailable"]) == before_unavailable


@pytest.mark.parametrize("images", IMAGES)
def test_update_with_postimage(images: str) -> None:
    """A post-image tells the whole row, what is null in it included."""
    capture = orders(IMAGES[images] + POST)
    capture.run(FIRST)
    value = event(capture, UPDATE)
    assert value["after"] == after(note="second", tags=["a", "b"])
    assert value["source"]["unavailable"] == []


def test_untouched_columns_of_the_preimage_stand() -> None:
    """What the full pre-image shows and the change leaves alone is still so."""
    capture = orders(IMAGES["full"])
    capture.run(FIRST)
    value = event(capture, f"UPDATE shop.orders SET home = {{street: 'x'}} {ROW}")
    assert value["after"] == after(note="first", tags=["a"], home={"street": "x", "zip": None})
    assert value["source"]["unavailable"] == []


@pytest.mark.parametrize("read_as", ["keys", "full"])
@pytest.mark.parametrize(
    "delta",
    [
        "UPDATE shop.orders SET note = 'x' " + ROW,
        "DELETE note FROM shop.orders " + ROW,
        "INSERT INTO shop.orders (customer, line, note) VALUES (7, 1, 'x')",
    ],
)
def test_keys_only(delta: str, read_as: str) -> None:
    """A log of keys alone tells no columns, whatever the option is when it is read.

    The pre-image is not taken for the row after the change, nor the columns for untouched.
    """
    capture = orders(", 'delta': 'keys', 'preimage': 'full'")
    capture.run(FIRST)
    rows = capture.rows(delta)
    options = f", 'delta': '{read_as}', 'preimage': 'full'"
    (found,) = orders(options).records(rows)
    assert found.value is not None
    assert (found.value["before"], found.value["after"]) == (after(note="first", tags=["a"]), after())
    assert set(found.value["source"]["unavailable"]) == {"note", "tags", "log", "home"}
    for shape in ("delta", "full"):
        (found,) = orders(options, OutputOptions(shape=shape)).records(rows)
        assert found.value is not None
        assert found.value["columns"] is None


def test_insert_of_the_key_alone() -> None:
    """Its log row is the same as that of any insert under `'delta': 'keys'`, so it says as little."""
    capture = orders(IMAGES["full"])
    capture.run(FIRST)
    value = event(capture, "INSERT INTO shop.orders (customer, line) VALUES (7, 1)")
    assert (value["before"], value["after"]) == (after(note="first", tags=["a"]), after())
    assert set(value["source"]["unavailable"]) == {"note", "tags", "log", "home"}


def test_keys_only_with_postimage() -> None:
    """With post-images such a log tells the row all the same."""
    value = event(orders(", 'delta': 'keys'" + POST), FIRST)
    assert value["after"] == after(note="first", tags=["a"])
    assert value["source"]["unavailable"] == []


@pytest.mark.parametrize(
    ("change", "column", "value"),
    [
        ("tags = {'x', 'y'}", "tags", ["x", "y"]),
        ("tags = {}", "tags", None),
        ("log = ['b', 'a']", "log", ["b", "a"]),
        ("home = {zip: 3}", "home", {"street": None, "zip": 3}),
        ("home = null", "home", None),
    ],
)
def test_replaced_collections_are_known(change: str, column: str, value: Any) -> None:
    """What is cleared and written anew is known without images."""
    found = event(orders(), f"UPDATE shop.orders SET {change} {ROW}")
    assert found["after"] == after(**{column: value})
    assert column not in found["source"]["unavailable"]


@pytest.mark.parametrize(
    "change", ["tags = tags + {'x'}", "tags = tags - {'x'}", "log = log + ['x']", "log = ['x'] + log"]
)
def test_changed_collections_are_not_known(change: str) -> None:
    """What is added to and taken from is not known without a post-image, and said to be so."""
    capture = orders(IMAGES["full"])
    capture.run(FIRST)
    found = event(capture, f"UPDATE shop.orders SET {change} {ROW}")
    column = change[:4].strip()
    assert found["source"]["unavailable"] == [column]
    assert found["after"][column] is None


@pytest.mark.parametrize(
    ("first", "change", "home"),
    [
        ("{street: 'x', zip: 1}", "home.zip = 2", {"street": "x", "zip": 2}),
        ("{street: 'x', zip: 1}", "home.zip = null", {"street": "x", "zip": None}),
        ("{zip: 1}", "home.zip = null", None),
        ("null", "home.zip = 2", {"street": None, "zip": 2}),
    ],
)
def test_fields_are_laid_over_the_preimage(first: str, change: str, home: Any) -> None:
    """A user-defined type whose fields are set one by one is known from a full pre-image."""
    for images, unavailable in (("none", {"note", "tags", "log", "home"}), ("full", set())):
        capture = orders(IMAGES[images])
        capture.run(FIRST, f"UPDATE shop.orders SET home = {first} {ROW}")
        found = event(capture, f"UPDATE shop.orders SET {change} {ROW}")
        assert set(found["source"]["unavailable"]) == unavailable
        assert found["after"]["home"] == (home if images == "full" else None)


def test_null_in_a_preimage_of_touched_columns_is_not_trusted() -> None:
    """In a batch over several rows ScyllaDB reads the first row's columns alone, and says null for those of others."""
    capture = orders(IMAGES["true"])
    capture.run(FIRST, "UPDATE shop.orders SET home = {zip: 1} WHERE customer = 7 AND line = 2")
    found = capture.run(
        f"BEGIN BATCH UPDATE shop.orders SET note = 'x' {ROW}; "
        "UPDATE shop.orders SET home.street = 'x' WHERE customer = 7 AND line = 2; APPLY BATCH"
    )[1].value
    assert found is not None
    assert found["before"]["home"] is None
    assert found["after"]["home"] is None
    assert "home" in found["source"]["unavailable"]
    alone = event(capture, "UPDATE shop.orders SET home.zip = 2 WHERE customer = 7 AND line = 2")
    assert alone["after"]["home"] == {"street": "x", "zip": 2}


def test_several_ttls_are_one_event() -> None:
    """All deltas of a row in one group are one event, a list in its own order; of another row, another."""
    statements = (
        "INSERT INTO shop.orders (customer, line, log) VALUES (7, 1, ['a']) USING TTL 9",
        f"UPDATE shop.orders USING TTL 5 SET log = log + ['b'], note = 'x' {ROW}",
        f"UPDATE shop.orders SET log = log + ['c'] {ROW}",
        "UPDATE shop.orders SET note = 'y' WHERE customer = 7 AND line = 2",
    )
    batch = f"BEGIN BATCH {'; '.join(statements)}; APPLY BATCH"
    first, second = (one.value for one in orders().run(batch))
    assert first is not None
    assert second is not None
    assert (first["op"], first["after"]) == ("c", after(note="x", log=["a", "b", "c"]))
    assert (first["source"]["ttl"], first["source"]["ttl_mixed"], first["source"]["last_in_group"]) == (
        None,
        True,
        False,
    )
    assert (second["op"], second["after"], second["source"]["last_in_group"]) == ("u", after(2, note="y"), True)


@pytest.mark.parametrize(
    ("statement", "ttl", "mixed"),
    [
        (f"UPDATE shop.orders USING TTL 5 SET note = 'x' {ROW}", 5, False),
        (f"UPDATE shop.orders USING TTL 5 SET tags = {{'x'}}, home = {{zip: 1}} {ROW}", 5, False),
        (f"UPDATE shop.orders USING TTL 5 SET note = 'x', home.zip = null, tags = null {ROW}", 5, False),
        ("INSERT INTO shop.orders (customer, line, note) VALUES (7, 1, null) USING TTL 5", 5, False),
        ("INSERT INTO shop.orders (customer, line, tags) VALUES (7, 1, {'x'}) USING TTL 5", 5, False),
        ("INSERT INTO shop.orders (customer, line, tags) VALUES (7, 1, {'x'})", None, False),
        (f"DELETE note FROM shop.orders {ROW}", None, False),
        (
            "BEGIN BATCH INSERT INTO shop.orders (customer, line) VALUES (7, 1); "
            f"UPDATE shop.orders USING TTL 5 SET note = 'x' {ROW}; APPLY BATCH",
            None,
            True,
        ),
    ],
)
def test_one_ttl(statement: str, ttl: int | None, mixed: bool) -> None:
    """The TTL is that of what is written; what is deleted has none, and several are told from none."""
    source = event(orders(), statement)["source"]
    assert (source["ttl"], source["ttl_mixed"]) == (ttl, mixed)
    flat = event(orders(output=FLAT), statement)
    assert (flat["__ttl"], flat["__ttl_mixed"]) == (ttl, mixed)


@pytest.mark.parametrize("images", ["", IMAGES["full"] + POST])
def test_static_row(images: str) -> None:
    """The static row is one of its own, without a clustering key."""
    capture = orders(images)
    value = event(capture, "UPDATE shop.orders SET vip = true WHERE customer = 7")
    assert (value["op"], value["after"]) == ("u", after(None, vip=True))
    assert value["source"]["unavailable"] == []


REGULAR = {"note", "tags", "log", "home"}


@pytest.mark.parametrize("images", ["none", "true", "full"])
def test_row_delete(images: str) -> None:
    """`before` of a delete is the row, or its key."""
    capture = orders(IMAGES[images])
    capture.run(FIRST)
    value = event(capture, f"DELETE FROM shop.orders {ROW}")
    assert (value["op"], value["after"]) == ("d", None)
    assert value["before"] == (after() if images == "none" else after(note="first", tags=["a"]))
    assert set(value["source"]["before_unavailable"]) == (REGULAR if images == "none" else set())


def test_partition_and_range_delete() -> None:
    """Deletes of more than a row have the key that they have."""
    capture = orders(IMAGES["full"] + POST)
    value = event(capture, "DELETE FROM shop.orders WHERE customer = 7")
    assert (value["op"], value["before"], value["after"], value["range"]) == ("d", after(None), None, None)
    assert set(value["source"]["before_unavailable"]) == {*REGULAR, "vip"}
    value = event(capture, "DELETE FROM shop.orders WHERE customer = 7 AND line > 3")
    assert (value["op"], value["before"]) == ("d", after(None))
    bound = {"inclusive": False, "key": {"line": 3}, "empty_columns": []}
    assert value["range"] == {"start": bound, "end": None}


def test_expiry_and_empties() -> None:
    """A row that the server let expire is a delete; a value of zero length reads as null and is named."""
    capture = Capture("CREATE TABLE shop.t (pk int, ck int, v int, PRIMARY KEY (pk, ck))", output=DEBEZIUM)
    one = b"\0\0\0\x01"
    key = {"pk": one, "ck": one, "cdc$end_of_batch": b"\x01"}
    (expired,) = capture.records([row(capture.schema, {**key, "cdc$operation": b"\xfd"})])
    assert expired.value is not None
    assert (expired.value["op"], expired.value["source"]["operation"]) == ("d", -3)
    (empty,) = capture.records([row(capture.schema, {**key, "ck": b"", "v": b"", "cdc$operation": b"\x01"})])
    assert empty.value is not None
    assert empty.value["after"] == {"pk": 1, "ck": None, "v": None}
    assert empty.value["source"]["unavailable"] == ["ck", "v"]


def test_zero_length_clustering_column_has_no_record_key() -> None:
    """With null in its place the key is the static row's, which the row's tombstone would take with it."""
    ddl = "CREATE TABLE shop.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck))"
    capture = Capture(ddl, output=OutputOptions(shape="flat", key="primary_key"))
    cells = {"pk": bytes(4), "ck": b"", "cdc$operation": b"\x03", "cdc$end_of_batch": b"\x01"}
    with pytest.raises(PoisonError, match=r"column 'ck' of type int: has zero length.*`output\.key: partition_key`"):
        capture.records([row(capture.schema, cells)])
    by_partition = Capture(ddl, output=FLAT)
    (found,) = by_partition.records([row(by_partition.schema, cells)])
    assert found.value is not None
    assert (found.key, found.value["ck"]) == ({"pk": 0}, None)
    assert "ck" in json.loads(found.value["__unavailable"])


def unknown(shape: ShapeName, *images: int) -> dict[str, Any]:
    """The value of a change 77 of row (1, 2), whose log row says `v` = 9, with the images asked for."""
    ddl = "CREATE TABLE shop.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck))"
    capture = Capture(ddl, output=OutputOptions(shape=shape))
    key = {"pk": bytes((0, 0, 0, 1)), "ck": bytes((0, 0, 0, 2))}
    seen = [
        row(capture.schema, {**key, "v": bytes((0, 0, 0, value)), "cdc$operation": bytes((operation,))})
        for operation, value in ((0, 8), (77, 9), (9, 10))
        if operation == 77 or operation in images
    ]
    (found,) = capture.records([*seen[:-1], replaced(capture, seen[-1], "cdc$end_of_batch", b"\x01")])
    assert found.value is not None
    return found.value


def replaced(capture: Capture, cells: Cells, column: str, cell: bytes | None) -> Cells:
    return tuple(cell if name == column else one for name, one in zip(capture.columns, cells, strict=True))


def test_unknown_operation_as_debezium() -> None:
    """It says that something was done there, by which no sink deletes or writes a row, unless a post-image tells it."""
    for images in ((), (0,)):
        value = unknown("debezium", *images)
        assert (value["op"], value["before"], value["after"]) == ("m", None, None)
        assert value["source"]["operation"] == 77
        assert (value["source"]["unavailable"], value["source"]["before_unavailable"]) == ([], [])
    value = unknown("debezium", 0, 9)
    whole = {"pk": 1, "ck": 2, "s": None}
    assert (value["op"], value["source"]["operation"]) == ("u", 77)
    assert (value["before"], value["after"]) == ({**whole, "v": 8}, {**whole, "v": 10})


def test_unknown_operation_as_flat() -> None:
    """It is no delete, and what became of the row is unavailable, unless a post-image tells it."""
    for images in ((), (0,)):
        value = unknown("flat", *images)
        assert (value["__op"], value["__deleted"]) == ("unknown", False)
        assert (value["pk"], value["ck"], value["v"], value["s"]) == (1, 2, None, None)
        assert set(json.loads(value["__unavailable"])) == {"v", "s"}
    value = unknown("flat", 9)
    assert (value["__op"], value["v"], value["__unavailable"]) == ("unknown", 10, None)


def test_unknown_operation_of_a_static_row() -> None:
    """Static columns are unavailable as well."""
    ddl = "CREATE TABLE shop.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck))"
    capture = Capture(ddl, output=FLAT)
    cells = {"pk": bytes(4), "s": bytes(4), "cdc$operation": b"\x0a", "cdc$end_of_batch": b"\x01"}
    (found,) = capture.records([row(capture.schema, cells)])
    assert found.value is not None
    assert (found.value["s"], set(json.loads(found.value["__unavailable"]))) == (None, {"s", "v"})


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize("images", ["", POST])
@pytest.mark.parametrize("operation", [1, 77])
@pytest.mark.parametrize("column", ["note", "tags", "cdc$deleted_elements_tags", "home"])
def test_malformed_cells_are_refused_in_every_shape(shape: ShapeName, images: str, operation: int, column: str) -> None:
    """Also where the record would not show the cell: the row is told by its post-image, or by nothing."""
    capture = orders(images, OutputOptions(shape=shape))
    rows = capture.rows(f"UPDATE shop.orders SET note = 'x', tags = tags + {{'b'}}, home.zip = 1 {ROW}")
    bad = replaced(capture, replaced(capture, rows[0], column, b"\xff\x01"), "cdc$operation", bytes((operation,)))
    with pytest.raises(PoisonError, match=f"column '{re.escape(column)}'"):
        capture.records([bad, *rows[1:]])


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize(
    ("removed", "column"),
    [
        (b"\xff\x01", "cdc$deleted_elements_home"),
        (counted(b"\x00\x09"), "cdc$deleted_elements_home"),
        (counted(b"\x00\x01"), "home"),
    ],
    ids=["no set", "no such field", "a field that has a value"],
)
def test_malformed_removals_of_a_replaced_type_are_refused(shape: ShapeName, removed: bytes, column: str) -> None:
    """Though the value that replaces the former one says it all, what stands beside it must fit it."""
    capture = orders(output=OutputOptions(shape=shape))
    (cells,) = capture.rows(f"UPDATE shop.orders SET home = {{zip: 1}} {ROW}")
    with pytest.raises(PoisonError, match=f"column '{re.escape(column)}'"):
        capture.records([replaced(capture, cells, "cdc$deleted_elements_home", removed)])


def test_what_a_later_delta_clears_is_gone() -> None:
    """Fields are laid over a pre-image as far as no delta clears them, whichever of the row's deltas does."""
    capture = orders(IMAGES["full"])
    capture.run("INSERT INTO shop.orders (customer, line, home) VALUES (7, 1, {street: 'x', zip: 1})")
    statements = (
        f"UPDATE shop.orders SET home.zip = 2 {ROW}",
        f"UPDATE shop.orders USING TTL 5 SET home.zip = 3 {ROW}",
    )
    before, update = capture.rows(statements[0])
    (_, later) = capture.rows(statements[1])
    first, second = (replaced(capture, one, "cdc$time", before[capture.layout.time]) for one in (update, later))
    rows = [before, replaced(capture, first, "cdc$end_of_batch", None)]
    for flag, home in ((None, {"street": "x", "zip": 3}), (b"\x01", {"street": None, "zip": 3})):
        (found,) = capture.records([*rows, replaced(capture, second, "cdc$deleted_home", flag)])
        assert found.value is not None
        assert found.value["after"]["home"] == home


BOUNDS = {
    "frozen<list<text>>": (counted(b"a", b"b"), ["a", "b"]),
    "frozen<set<text>>": (counted(b"a", b"b"), ["a", "b"]),
    "frozen<tuple<text, int>>": (sized(b"a", bytes(4)), {"field_0": "a", "field_1": 0}),
    "frozen<list<uuid>>": (counted(bytes(16), bytes(16)), ["00000000-0000-0000-0000-000000000000"] * 2),
    "blob": (b"\x01\x02", "0102"),
    "double": (bytes.fromhex("7ff0000000000000"), "Infinity"),
    "float": (bytes.fromhex("ff800000"), "-Infinity"),
    "frozen<list<double>>": (counted(bytes.fromhex("7ff8000000000000"), bytes(8)), ["NaN", 0.0]),
}


@pytest.mark.parametrize("kind", BOUNDS)
def test_bounds_in_json(kind: str) -> None:
    """`__range` of `flat` holds every value of a bound, as JSON that any reader takes."""
    cell, shown = BOUNDS[kind]
    capture = Capture(f"CREATE TABLE shop.t (pk int, ck {kind}, v int, PRIMARY KEY (pk, ck))", output=FLAT)
    start = row(capture.schema, {"pk": bytes(4), "ck": cell, "cdc$operation": b"\x05"})
    end = row(capture.schema, {"pk": bytes(4), "cdc$operation": b"\x07", "cdc$end_of_batch": b"\x01"})
    (found,) = capture.records([start, end])
    assert found.value is not None
    assert json.loads(found.value["__range"], parse_constant=pytest.fail) == {
        "start": {"inclusive": True, "key": {"ck": shown}, "empty_columns": []},
        "end": None,
    }


def test_unknown_operation_as_full() -> None:
    """What its log row says stands beside the images."""
    value = unknown("full", 0, 9)
    assert (value["op"], value["source"]["operation"], value["columns"]["v"]) == ("unknown", 77, {"value": 9})
    assert (value["before"]["v"], value["after"]["v"]) == (8, 10)


@pytest.mark.parametrize("us", [9_300_000_000_000_000, -9_300_000_000_000_000])
def test_nanoseconds_end(us: int) -> None:
    """A write timestamp beyond the year 2262, or before 1678, has no nanoseconds in a long; all else is told."""
    capture = orders()
    (cells,) = capture.rows(f"UPDATE shop.orders SET note = 'x' {ROW}")
    (far,) = capture.records([replaced(capture, cells, "cdc$time", timeuuid_of(UnixMicros(us), bytes(8)))])
    assert far.value is not None
    assert (far.value["ts_ns"], far.value["ts_us"]) == (None, us)
    assert (far.value["source"]["ts_ns"], far.value["source"]["ts_ms"]) == (None, us // 1000)


def test_forms_of_values() -> None:
    """The chosen forms hold in `before`, `after` and keys."""
    output = OutputOptions(
        shape="debezium", decimals="string", timestamps="timestamp-millis", times="time-micros", key="primary_key"
    )
    capture = Capture(
        "CREATE TABLE shop.t (pk decimal, ck timestamp, d decimal, t time, PRIMARY KEY (pk, ck)) "
        "WITH cdc = {'enabled': true, 'postimage': true}",
        output=output,
    )
    (found,) = capture.run("INSERT INTO shop.t (pk, ck, d, t) VALUES (1.50, 1000, -2, '00:00:01.000002999')")
    assert found.value is not None
    assert found.value["after"] == {
        "pk": "1.50",
        "d": "-2",
        "ck": found.key["ck"],
        "t": found.value["after"]["t"],
    }
    assert (found.value["after"]["t"].microsecond, found.key["ck"].isoformat()) == (2, "1970-01-01T00:00:01+00:00")


@pytest.mark.parametrize("images", [*IMAGES.values(), POST])
def test_flat_is_the_same_row(images: str) -> None:
    """`flat` has the columns of `after`, or in deletes of `before`, and the rest in a few fields of its own."""
    statements = (
        FIRST,
        UPDATE,
        "UPDATE shop.orders SET vip = true WHERE customer = 7",
        f"DELETE FROM shop.orders {ROW}",
        "DELETE FROM shop.orders WHERE customer = 7 AND line < 3",
        "DELETE FROM shop.orders WHERE customer = 7",
    )
    ops = ["insert", "update", "static_update", "row_delete", "range_delete", "partition_delete"]
    events, rows = orders(images).run(*statements), orders(images, FLAT).run(*statements)
    for name, one, flat in zip(ops, events, rows, strict=True):
        assert one.value is not None
        assert flat.value is not None
        deleted = name.endswith("delete")
        source = one.value["source"]
        unavailable = source["before_unavailable" if deleted else "unavailable"]
        found = one.value["range"]
        assert flat.value == {
            **one.value["before" if deleted else "after"],
            "__op": name,
            "__deleted": deleted,
            "__timestamp_us": source["ts_us"],
            "__batch_seq_no": source["batch_seq_no"],
            "__ttl_mixed": False,
            "__ttl": None,
            "__range": None if found is None else json.dumps(found),
            "__unavailable": json.dumps(unavailable) if unavailable else None,
        }


def test_flat_refuses_its_own_names() -> None:
    """A column that is named like one of its fields is refused by name."""
    with pytest.raises(OutputError, match=r"ks\.t: column '__op' has the name of a field"):
        Capture('CREATE TABLE ks.t (pk int PRIMARY KEY, "__op" int)', output=FLAT)


@pytest.mark.parametrize(("output", "name"), [(DEBEZIUM, "shop.orders.Envelope"), (FLAT, "shop.orders.Value")])
def test_record_names(output: OutputOptions, name: str) -> None:
    """Debezium's transforms and sinks know an envelope by the end of its name, and what is flat by its absence."""
    codec = orders(output=output).codec
    schema, key = json.loads(codec.value_avro_schema), json.loads(codec.key_avro_schema)
    assert f"{schema['namespace']}.{schema['name']}" == name
    assert f"{key['namespace']}.{key['name']}" == "shop.orders.Key"


def test_full_gives_each_delta_the_images_of_its_row() -> None:
    """`full` keeps the deltas apart, each with the row before and after the group."""
    capture = orders(IMAGES["full"] + POST, OutputOptions(shape="full"))
    capture.run(FIRST)
    found = capture.run(
        f"BEGIN BATCH UPDATE shop.orders USING TTL 5 SET note = 'x' {ROW}; "
        f"UPDATE shop.orders SET tags = tags - {{'a'}} {ROW}; APPLY BATCH"
    )
    images = {"log": None, "home": None, "vip": None}
    for one, ttl in zip(found, (None, 5), strict=True):
        assert one.value is not None
        assert one.value["ttl"] == ttl
        assert one.value["before"] == {**images, "note": "first", "tags": ["a"]}
        assert one.value["after"] == {**images, "note": "x", "tags": []}
        assert (one.value["before_unknown"], one.value["before_empty"], one.value["after_empty"]) == ([], [], [])


def test_form_needs_no_columns() -> None:
    """A table of nothing but a key has a row all the same."""
    capture = Capture(
        "CREATE TABLE shop.k (pk int PRIMARY KEY) WITH cdc = {'enabled': true}",
        output=DEBEZIUM,
        form=RecordForm(tombstones=True),
    )
    insert, delete, tombstone = capture.run("INSERT INTO shop.k (pk) VALUES (1)", "DELETE FROM shop.k WHERE pk = 1")
    assert insert.value is not None
    assert delete.value is not None
    assert (insert.value["after"], delete.value["before"], delete.value["op"]) == ({"pk": 1}, {"pk": 1}, "d")
    assert (tombstone.key, tombstone.value) == (delete.key, None)
