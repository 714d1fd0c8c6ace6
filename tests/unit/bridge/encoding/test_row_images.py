"""Rows before and after a change, in the shapes `debezium` and `full`, with and without images."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.model.times import UnixMicros, timeuuid_of
from schemas.options import OutputOptions, RecordForm
from tests.unit.bridge.encoding.captured_table import START_US, STREAM, Capture
from tests.unit.bridge.encoding.orders_table import (
    DEBEZIUM,
    FIRST,
    FLAT,
    IMAGES,
    POST,
    ROW,
    after,
    event,
    orders,
    replaced,
)


def test_insert() -> None:
    """An insert is `c`, with the position in Debezium's fields; columns that it does not name are unavailable."""
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
    """Without a post-image the row comes from pre-image and change; a collection with added elements is unavailable."""
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
    """A post-image holds the whole row, including nulls."""
    capture = orders(IMAGES[images] + POST)
    capture.run(FIRST)
    value = event(capture, UPDATE)
    assert value["after"] == after(note="second", tags=["a", "b"])
    assert value["source"]["unavailable"] == []


def test_untouched_columns_come_from_the_preimage() -> None:
    """A column of a full pre-image that the change does not touch keeps its value."""
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
    """A log of keys only gives no columns, with any value of the option at the time of reading.

    The pre-image does not count as the row after the change, and the columns do not count as untouched.
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
    """Its log row looks like that of any insert under `'delta': 'keys'`, so no column is known."""
    capture = orders(IMAGES["full"])
    capture.run(FIRST)
    value = event(capture, "INSERT INTO shop.orders (customer, line) VALUES (7, 1)")
    assert (value["before"], value["after"]) == (after(note="first", tags=["a"]), after())
    assert set(value["source"]["unavailable"]) == {"note", "tags", "log", "home"}


def test_keys_only_with_postimage() -> None:
    """With post-images such a log still holds the row."""
    value = event(orders(", 'delta': 'keys'" + POST), FIRST)
    assert value["after"] == after(note="first", tags=["a"])
    assert value["source"]["unavailable"] == []


@pytest.mark.parametrize("images", ["", IMAGES["full"] + POST])
def test_static_row(images: str) -> None:
    """The static row is a row of its own without a clustering key."""
    capture = orders(images)
    value = event(capture, "UPDATE shop.orders SET vip = true WHERE customer = 7")
    assert (value["op"], value["after"]) == ("u", after(None, vip=True))
    assert value["source"]["unavailable"] == []


REGULAR = {"note", "tags", "log", "home"}


@pytest.mark.parametrize("images", ["none", "true", "full"])
def test_row_delete(images: str) -> None:
    """`before` of a delete is the row, or only its key."""
    capture = orders(IMAGES[images])
    capture.run(FIRST)
    value = event(capture, f"DELETE FROM shop.orders {ROW}")
    assert (value["op"], value["after"]) == ("d", None)
    assert value["before"] == (after() if images == "none" else after(note="first", tags=["a"]))
    assert set(value["source"]["before_unavailable"]) == (REGULAR if images == "none" else set())


def test_partition_and_range_delete() -> None:
    """A delete of several rows has the part of the key that the delete names."""
    capture = orders(IMAGES["full"] + POST)
    value = event(capture, "DELETE FROM shop.orders WHERE customer = 7")
    assert (value["op"], value["before"], value["after"], value["range"]) == ("d", after(None), None, None)
    assert set(value["source"]["before_unavailable"]) == {*REGULAR, "vip"}
    value = event(capture, "DELETE FROM shop.orders WHERE customer = 7 AND line > 3")
    assert (value["op"], value["before"]) == ("d", after(None))
    bound = {"inclusive": False, "key": {"line": 3}, "empty_columns": []}
    assert value["range"] == {"start": bound, "end": None}


@pytest.mark.parametrize("us", [9_300_000_000_000_000, -9_300_000_000_000_000])
def test_nanoseconds_end(us: int) -> None:
    """A write timestamp after the year 2262 or before 1678 does not fit a long of nanoseconds."""
    capture = orders()
    (cells,) = capture.rows(f"UPDATE shop.orders SET note = 'x' {ROW}")
    (far,) = capture.records([replaced(capture, cells, "cdc$time", timeuuid_of(UnixMicros(us), bytes(8)))])
    assert far.value is not None
    assert (far.value["ts_ns"], far.value["ts_us"]) == (None, us)
    assert (far.value["source"]["ts_ns"], far.value["source"]["ts_ms"]) == (None, us // 1000)


def test_forms_of_values() -> None:
    """The configured forms hold in `before`, `after` and keys."""
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


def test_full_gives_each_delta_the_images_of_its_row() -> None:
    """`full` has one record for each delta, each with the row before and after the group."""
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
    """A table with only a key still has rows."""
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


@pytest.mark.parametrize(("output", "name"), [(DEBEZIUM, "shop.orders.Envelope"), (FLAT, "shop.orders.Value")])
def test_record_names(output: OutputOptions, name: str) -> None:
    """Debezium's transforms and sinks recognize an envelope by the end of its name."""
    codec = orders(output=output).codec
    schema, key = json.loads(codec.value_avro_schema), json.loads(codec.key_avro_schema)
    assert f"{schema['namespace']}.{schema['name']}" == name
    assert f"{key['namespace']}.{key['name']}" == "shop.orders.Key"
