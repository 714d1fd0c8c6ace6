"""The shape `flat`: one row, with a few fields of its own."""

from __future__ import annotations

import json

import pytest

from schemas.errors import OutputError
from tests.unit.bridge.encoding.captured_table import Capture
from tests.unit.bridge.encoding.orders_table import (
    FIRST,
    FLAT,
    IMAGES,
    POST,
    ROW,
    orders,
)
from tests.unit.schemas.example_tables import counted, row, sized

UPDATE = f"UPDATE shop.orders SET note = 'second', tags = tags + {{'b'}} {ROW}"


@pytest.mark.parametrize("images", [*IMAGES.values(), POST])
def test_flat_is_the_same_row(images: str) -> None:
    """`flat` has the columns of `after`, or of `before` for deletes, and the rest in fields of its own."""
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


def test_flat_rejects_its_own_names() -> None:
    """The error names a column that has the name of one of the shape's fields."""
    with pytest.raises(OutputError, match=r"ks\.t: column '__op' has the name of a field"):
        Capture('CREATE TABLE ks.t (pk int PRIMARY KEY, "__op" int)', output=FLAT)


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
    """`__range` of `flat` holds every value of a bound as standard JSON."""
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
