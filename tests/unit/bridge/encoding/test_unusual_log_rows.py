"""Log rows that are rare or damaged: expiry, unknown operations, empty and malformed cells, in every shape."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from bridge.errors import UnpublishableError
from schemas.options import OutputOptions, ShapeName
from tests.unit.bridge.encoding.captured_table import Capture
from tests.unit.bridge.encoding.orders_table import (
    DEBEZIUM,
    FLAT,
    POST,
    ROW,
    orders,
    replaced,
)
from tests.unit.schemas.example_tables import counted, row


def test_expiry_and_empties() -> None:
    """An expired row is a delete; a value of zero length reads as null and is listed as unavailable."""
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
    """With null in its place the key would be the static row's, and the tombstone would delete that row."""
    ddl = "CREATE TABLE shop.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck))"
    capture = Capture(ddl, output=OutputOptions(shape="flat", key="primary_key"))
    cells = {"pk": bytes(4), "ck": b"", "cdc$operation": b"\x03", "cdc$end_of_batch": b"\x01"}
    with pytest.raises(
        UnpublishableError, match=r"column 'ck' of type int: has zero length.*`output\.key: partition_key`"
    ):
        capture.records([row(capture.schema, cells)])
    by_partition = Capture(ddl, output=FLAT)
    (found,) = by_partition.records([row(by_partition.schema, cells)])
    assert found.value is not None
    assert (found.key, found.value["ck"]) == ({"pk": 0}, None)
    assert "ck" in json.loads(found.value["__unavailable"])


COMPACT = "CREATE TABLE shop.t (pk int, c1 int, c2 int, v int, PRIMARY KEY (pk, c1, c2)) WITH COMPACT STORAGE"
ONE = b"\0\0\0\x01"
PARTIAL: dict[str, bytes | None] = {"pk": ONE, "c1": ONE, "cdc$end_of_batch": b"\x01"}


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize("operation", [1, 2, 3, 253])
def test_compact_rows_may_lack_trailing_clustering_columns(shape: ShapeName, operation: int) -> None:
    """The column is null in value and record key, and the row's images are its own."""
    keys = ("partition_key",) if shape == "full" else ("partition_key", "primary_key")
    for key in keys:
        capture = Capture(COMPACT, output=OutputOptions(shape=shape, key=key))
        cells = {**PARTIAL, "cdc$operation": bytes((operation,)), **({"v": ONE} if operation < 3 else {})}
        (found,) = capture.records([row(capture.schema, cells)])
        assert found.value is not None
        text = json.dumps(found.value, default=repr)
        assert '"c2": null' in text
        assert found.key == {"pk": 1, **({"c1": 1, "c2": None} if key == "primary_key" else {})}
    rows = [
        row(capture.schema, PARTIAL | {"cdc$operation": b"\0", "v": ONE, "cdc$end_of_batch": None}),
        row(capture.schema, PARTIAL | {"cdc$operation": b"\1", "v": ONE, "cdc$batch_seq_no": ONE}),
    ]
    assert len(capture.records(rows)) == 1


@pytest.mark.parametrize(
    ("lacking", "operation"), [(("c1",), b"\x01"), (("c1",), b"\x03"), (("c1", "c2"), b"\x01"), (("c1", "c2"), b"\x03")]
)
def test_other_nulls_in_compact_rows_are_lost_keys(lacking: tuple[str, ...], operation: bytes) -> None:
    """A row has at least the first clustering column, and none without those before it."""
    capture = Capture(COMPACT)
    cells = PARTIAL | {"c2": ONE, "cdc$operation": operation} | dict.fromkeys(lacking)
    with pytest.raises(UnpublishableError, match="clustering key"):
        capture.records([row(capture.schema, cells)])


def test_rows_of_other_tables_have_the_whole_clustering_key() -> None:
    """There a null means that the key is lost."""
    capture = Capture(COMPACT.partition(" WITH ")[0])
    with pytest.raises(UnpublishableError, match="has 1 of its 2 columns"):
        capture.records([row(capture.schema, PARTIAL | {"cdc$operation": b"\x01", "v": ONE})])


def test_avro_schemas_do_not_depend_on_partial_keys() -> None:
    """Clustering columns are nullable in every table with several kinds of change."""
    compact, plain = Capture(COMPACT), Capture(COMPACT.partition(" WITH ")[0])
    assert compact.codec.value_avro_schema == plain.codec.value_avro_schema
    assert compact.codec.key_avro_schema == plain.codec.key_avro_schema
    assert compact.schema != plain.schema


def unknown(shape: ShapeName, *images: int) -> dict[str, Any]:
    """Return the value of a change with operation 77 of row (1, 2), with `v` = 9 and the given images."""
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


def test_unknown_operation_as_debezium() -> None:
    """The event lets no sink delete or write a row, unless a post-image holds the row."""
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
    """It is no delete, and the columns are unavailable unless a post-image holds them."""
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


def test_unknown_operation_as_full() -> None:
    """The record has the columns of the log row next to the images."""
    value = unknown("full", 0, 9)
    assert (value["op"], value["source"]["operation"], value["columns"]["v"]) == ("unknown", 77, {"value": 9})
    assert (value["before"]["v"], value["after"]["v"]) == (8, 10)


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize("images", ["", POST])
@pytest.mark.parametrize("operation", [1, 77])
@pytest.mark.parametrize("column", ["note", "tags", "cdc$deleted_elements_tags", "home"])
def test_malformed_cells_are_rejected_in_every_shape(
    shape: ShapeName, images: str, operation: int, column: str
) -> None:
    """Even if the record would not show the cell."""
    capture = orders(images, OutputOptions(shape=shape))
    rows = capture.rows(f"UPDATE shop.orders SET note = 'x', tags = tags + {{'b'}}, home.zip = 1 {ROW}")
    bad = replaced(capture, replaced(capture, rows[0], column, b"\xff\x01"), "cdc$operation", bytes((operation,)))
    with pytest.raises(UnpublishableError, match=f"column '{re.escape(column)}'"):
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
def test_malformed_removals_of_a_replaced_type_are_rejected(shape: ShapeName, removed: bytes, column: str) -> None:
    """Even though the new value replaces the whole type."""
    capture = orders(output=OutputOptions(shape=shape))
    (cells,) = capture.rows(f"UPDATE shop.orders SET home = {{zip: 1}} {ROW}")
    with pytest.raises(UnpublishableError, match=f"column '{re.escape(column)}'"):
        capture.records([replaced(capture, cells, "cdc$deleted_elements_home", removed)])
