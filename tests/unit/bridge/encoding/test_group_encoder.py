"""Record keys, tombstones, headers, placement, and dead letters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.encoding.partitioner import placement
from bridge.errors import UnpublishableError
from bridge.model.log_rows import Cells
from schemas.options import OutputOptions, RecordForm
from tests.unit.bridge.encoding.captured_table import START_US, STREAM, Capture, DecodedRecord
from tests.unit.schemas.example_tables import row

BY_PARTITION, BY_ROW = OutputOptions(), OutputOptions(key="primary_key")
PLACE = "shop.t: stream 0xced0000000000000000000000000c0a1, 1769860800000000 us"
TOMBSTONES = RecordForm(tombstones=True)
STATEMENTS = {
    "insert": "INSERT INTO shop.t (pk, ck, v) VALUES (1, 2, 3)",
    "static_update": "UPDATE shop.t SET s = 1 WHERE pk = 1",
    "row_delete": "DELETE FROM shop.t WHERE pk = 1 AND ck = 2",
    "range_delete": "DELETE FROM shop.t WHERE pk = 1 AND ck > 2",
    "partition_delete": "DELETE FROM shop.t WHERE pk = 1",
}


def capture(output: OutputOptions = BY_PARTITION, form: RecordForm = RecordForm()) -> Capture:  # noqa: B008
    return Capture(
        "CREATE TABLE shop.t (pk int, ck int, v int, s int static, PRIMARY KEY (pk, ck)) WITH cdc = {'enabled': true}",
        output=output,
        form=form,
    )


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
        ("", 275646681),
    ],
)
def test_placement(key: str, hashed: int) -> None:
    """Kafka's own test vectors of murmur2, without the sign bit, as Java's partitioner uses them."""
    assert placement(key.encode()) == hashed & 0x7FFFFFFF


@given(st.binary(max_size=40))
def test_placement_is_a_positive_int(key: bytes) -> None:
    """The number fits 32 bits for every key."""
    assert 0 <= placement(key) < 2**31


@pytest.mark.parametrize("name", STATEMENTS)
def test_keys(name: str) -> None:
    """A record key is the partition key, or the primary key as far as the change has one."""
    statement = STATEMENTS[name]
    (by_partition,) = capture().run(statement)
    (by_row,) = capture(BY_ROW).run(statement)
    assert by_partition.key == {"pk": 1}
    assert by_row.key == {"pk": 1, "ck": 2 if name in ("insert", "row_delete") else None}
    assert by_row.value == by_partition.value


@pytest.mark.parametrize("name", STATEMENTS)
def test_placement_of_primary_keys(name: str) -> None:
    """With either record key, a change goes to the partition of its base partition."""
    statement = STATEMENTS[name]
    (plain,) = capture().run(statement)
    (placed,) = capture(BY_ROW).run(statement)
    assert plain.record.placement is None
    assert placed.record.placement == placement(plain.record.key)


@pytest.mark.parametrize(
    ("output", "name", "expected"),
    [
        *((BY_PARTITION, name, name == "partition_delete") for name in STATEMENTS),
        *((BY_ROW, name, name == "row_delete") for name in STATEMENTS),
    ],
)
def test_tombstones(output: OutputOptions, name: str, expected: bool) -> None:
    """After a delete that leaves nothing under the record key, a tombstone follows under the same key."""
    found = capture(output, TOMBSTONES).run(STATEMENTS[name])
    assert [one.value is None for one in found] == ([False, True] if expected else [False])
    (change, *more) = (one.record for one in found)
    assert [one.last_in_group for one in (change, *more)] == [not expected, True][: len(found)]
    for tombstone in more:
        assert tombstone == change._replace(value=None, last_in_group=True)


def expiry(of: Capture, operation: int, **key: bytes) -> list[DecodedRecord]:
    cells: dict[str, bytes | None] = {"cdc$operation": operation.to_bytes(1, "big", signed=True), **key}
    return of.records([row(of.schema, {**cells, "cdc$end_of_batch": b"\x01"})])


def test_tombstones_of_expiries() -> None:
    """This includes deletes by the server itself."""
    one = bytes(4)
    assert len(expiry(capture(BY_ROW, TOMBSTONES), -3, pk=one, ck=one)) == 2
    assert len(expiry(capture(BY_ROW, TOMBSTONES), -4, pk=one)) == 1
    assert len(expiry(capture(BY_PARTITION, TOMBSTONES), -4, pk=one)) == 2
    assert len(expiry(capture(BY_PARTITION, TOMBSTONES), -3, pk=one, ck=one)) == 1


@pytest.mark.parametrize("output", [BY_PARTITION, BY_ROW])
def test_tombstones_without_clustering_columns(output: OutputOptions) -> None:
    """If a partition is one row, every delete of it leaves nothing under its key."""
    of = Capture("CREATE TABLE shop.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}", output=output)
    assert len(of.run("DELETE FROM shop.t WHERE pk = 1")) == 1
    of = Capture(
        "CREATE TABLE shop.t (pk int PRIMARY KEY, v int) WITH cdc = {'enabled': true}", output=output, form=TOMBSTONES
    )
    assert [one.value is None for one in of.run("DELETE FROM shop.t WHERE pk = 1")] == [False, True]
    assert len(expiry(of, -3, pk=bytes(4))) == len(expiry(of, -4, pk=bytes(4))) == 2


@pytest.mark.parametrize(
    ("form", "headers"),
    [
        (RecordForm(), None),
        (RecordForm(operation=True), {"cdc.operation": "range_delete"}),
        (RecordForm(timestamp=True), {"cdc.timestamp": str(START_US)}),
        (RecordForm(table=True, dead_letters=True), {"cdc.table": "shop.t"}),
        (
            RecordForm(operation=True, timestamp=True, table=True),
            {"cdc.operation": "range_delete", "cdc.timestamp": str(START_US), "cdc.table": "shop.t"},
        ),
    ],
)
def test_headers(form: RecordForm, headers: dict[str, str] | None) -> None:
    """Records have the configured headers, as text."""
    (found,) = capture(BY_PARTITION, form).run(STATEMENTS["range_delete"])
    assert (None if found.record.headers is None else json.loads(found.record.headers)) == headers


def test_position() -> None:
    """The position is stream, time and number of the change's first log row."""
    batch = f"BEGIN BATCH {'; '.join(STATEMENTS[name] for name in ('static_update', 'insert'))}; APPLY BATCH"
    positions = [one.record.position for one in capture().run(batch)]
    assert [position[:16] for position in positions] == [STREAM, STREAM]
    assert [position[32:] for position in positions] == [bytes(4), bytes(3) + b"\x01"]
    assert {len(position) for position in positions} == {36}


def damaged(of: Capture, *columns: str) -> list[Cells]:
    """Return a group of three inserts; some cells of the second one do not fit their type."""
    statements = [f"INSERT INTO shop.t (pk, ck, v) VALUES (1, {ck}, {ck})" for ck in (1, 2, 3)]
    first, second, third = of.rows(f"BEGIN BATCH {'; '.join(statements)}; APPLY BATCH")
    broken = tuple(b"\xff" if name in columns else cell for name, cell in zip(of.columns, second, strict=True))
    return [first, broken, third]


def letter_of(found: DecodedRecord) -> Any:
    assert found.record.is_dead_letter
    assert found.record.value is not None
    assert (found.record.key, found.record.headers, found.record.placement) == (b"", None, None)
    return json.loads(found.record.value)


@pytest.mark.parametrize("output", [BY_PARTITION, BY_ROW, OutputOptions(shape="flat"), OutputOptions(shape="debezium")])
def test_dead_letter_of_a_change(output: OutputOptions) -> None:
    """A change that can't be encoded becomes a dead letter in its place, with reason and cells."""
    of = capture(output, RecordForm(dead_letters=True, operation=True))
    before, buried, behind = of.records(damaged(of, "v"))
    assert before.value is not None
    assert behind.value is not None
    letter = letter_of(buried)
    assert letter.pop("error").startswith(f"{PLACE}, batch_seq_no 1: column 'v' of type int: ")
    assert letter == {
        "v": 1,
        "keyspace": "shop",
        "table": "t",
        "generation_ms": 1_769_860_000_000,
        "stream_id": STREAM.hex(),
        "time": "5e5d2000-fe9c-11f0-8000-000000000001",
        "batch_seq_no": 1,
        "rows": [
            {
                "cdc$stream_id": STREAM.hex(),
                "cdc$time": "5e5d2000fe9c11f08000000000000001",
                "cdc$batch_seq_no": "00000001",
                "cdc$operation": "02",
                "ck": "00000002",
                "pk": "00000001",
                "v": "ff",
            }
        ],
    }
    assert buried.record.position[32:] == bytes(3) + b"\x01"
    assert [one.record.last_in_group for one in (before, buried, behind)] == [False, False, True]


def test_dead_letter_of_a_key() -> None:
    """This includes a change whose record key can't be encoded."""
    of = capture(BY_ROW, RecordForm(dead_letters=True))
    letter = letter_of(of.records(damaged(of, "ck"))[1])
    assert "batch_seq_no 1: column 'ck' of type int" in letter["error"]


def test_dead_letter_of_a_group() -> None:
    """An invalid group becomes one dead letter with all its rows."""
    of = capture(BY_PARTITION, RecordForm(dead_letters=True))
    rows = of.rows(STATEMENTS["range_delete"])[:1] + damaged(of)
    (found,) = of.records([rows[0]], keep_failures=True)
    letter = letter_of(found)
    assert (letter["batch_seq_no"], len(letter["rows"]), found.record.last_in_group) == (None, 1, True)
    assert "half of a range delete" in letter["error"] or "cdc$end_of_batch" in letter["error"]


def test_without_dead_letters_the_reason_is_raised() -> None:
    """The error names table, stream, time, number, column and what is wrong."""
    of = capture()
    with pytest.raises(UnpublishableError, match=f"^{PLACE}, batch_seq_no 1: column 'v' of type int"):
        of.records(damaged(of, "v"))
