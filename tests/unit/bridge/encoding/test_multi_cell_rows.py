"""Collections, user-defined types and several deltas of a row, in the shape `debezium`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.bridge.encoding.orders_table import (
    FIRST,
    FLAT,
    IMAGES,
    ROW,
    after,
    event,
    orders,
    replaced,
)


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
    """A collection that is cleared and written is known without images."""
    found = event(orders(), f"UPDATE shop.orders SET {change} {ROW}")
    assert found["after"] == after(**{column: value})
    assert column not in found["source"]["unavailable"]


@pytest.mark.parametrize(
    "change", ["tags = tags + {'x'}", "tags = tags - {'x'}", "log = log + ['x']", "log = ['x'] + log"]
)
def test_changed_collections_are_not_known(change: str) -> None:
    """A collection with added or removed elements is listed as unavailable without a post-image."""
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
def test_fields_are_merged_with_the_preimage(first: str, change: str, home: Any) -> None:
    """A user-defined type whose fields change one by one is known from a full pre-image."""
    for images, unavailable in (("none", {"note", "tags", "log", "home"}), ("full", set())):
        capture = orders(IMAGES[images])
        capture.run(FIRST, f"UPDATE shop.orders SET home = {first} {ROW}")
        found = event(capture, f"UPDATE shop.orders SET {change} {ROW}")
        assert set(found["source"]["unavailable"]) == unavailable
        assert found["after"]["home"] == (home if images == "full" else None)


def test_null_in_a_preimage_of_touched_columns_is_not_trusted() -> None:
    """In a batch of several rows ScyllaDB reads only the first row's columns, and logs null for others."""
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
    """All deltas of a row in a group are one event, with lists in their own order."""
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
    """The TTL is that of the written cells; deleted cells have none, and several TTLs are marked."""
    source = event(orders(), statement)["source"]
    assert (source["ttl"], source["ttl_mixed"]) == (ttl, mixed)
    flat = event(orders(output=FLAT), statement)
    assert (flat["__ttl"], flat["__ttl_mixed"]) == (ttl, mixed)


def test_what_a_later_delta_clears_is_gone() -> None:
    """Fields are merged with a pre-image unless any delta of the row clears them."""
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
