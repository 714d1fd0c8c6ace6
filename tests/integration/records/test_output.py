"""Every output shape from the log to a plain consumer, dead letters, and Debezium's own transform over the records.

Statements are carried out by the simulator, which writes base tables and logs; topics are read by confluent-kafka with
its AvroDeserializer, which knows the registry's address and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.adapters.registry.client import Registry
from bridge.encoding.partitioner import placement
from bridge.model.times import UnixMicros, UnixMillis, micros_of, timeuuid_of
from sandbox.cql.interpret import Request
from sandbox.cql.server import StatementServer
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.write_times import system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.wire.framing import unframe
from tests.integration.records.output_table import (
    COLUMNS,
    DEAD_LETTERS,
    HOME,
    JOB,
    KEYSPACE,
    OPERATIONS,
    OPTIONS,
    POISON_LOW,
    RETRIED,
    SHAPES,
    SHAPES_WITH_UNKNOWN,
    STATEMENTS,
    UNKNOWN_OPERATION,
    Read,
    _int,
    mutations,
    write_oddities,
)
from tests.integration.support.consuming import Deserializer, committed
from tests.integration.support.debezium import Debezium, RawRecord
from tests.integration.support.kafka_files import Batch, batches
from tests.integration.support.reading import raw_rows
from tests.integration.support.running import BridgeJob

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def written(session: WritingSession) -> dict[str, list[int]]:
    """The tables with what happened to them, and the write timestamps in us.

    Every statement of `delta` comes twice, with an unpublishable group in between. Two others end with an unknown
    operation.
    """
    cluster = SimulatedCluster(session, seed=17)
    cluster.reset()
    start_us = UnixMicros(system_clock_us() - 60_000_000)
    cluster.add_generation(UnixMillis(start_us // 1000 - 10_000))
    server = StatementServer(KEYSPACE)
    server.execute(HOME, Request(start_us, start_us))
    stamps: dict[str, list[int]] = {}
    for shape in SHAPES:
        options = OPTIONS.get(shape, OPTIONS["full"])
        ddl = f"CREATE TABLE {KEYSPACE}.{shape} ({COLUMNS}) WITH cdc = {{'enabled': true{options}}}"
        server.execute(ddl, Request(start_us, start_us))
        table = server.catalog.tables[-1]
        simulated = SimulatedTable(
            table.table_schema,
            options=table.options,
            # One type for all of the tables, made with the first one.
            user_types=server.catalog.user_types(KEYSPACE) if shape == SHAPES[0] else (),
        )
        simulated.create(session)
        simulated = replace(simulated, user_types=server.catalog.user_types(KEYSPACE))
        simulator = Simulator(session, cluster, [simulated], seed=17, keep_base=True)
        stamps[shape] = []
        for number, statement in enumerate(STATEMENTS):
            at_us = UnixMicros(start_us + number * 1_000_000)
            for logged in server.execute(statement.format(f"{KEYSPACE}.{shape}"), Request(at_us, at_us)):
                assert logged.partition_key == (_int(7),)
            for mutation in mutations(server, statement.format(f"{KEYSPACE}.{shape}"), at_us):
                # A client that did not hear the answer sends it again.
                simulator.write(simulated, mutation, at_us, times=2 if shape == RETRIED else 1)
            stamps[shape].append(at_us)
    write_oddities(session, stamps)
    return stamps


@pytest.fixture(scope="module")
def job(
    local_stack: LocalStack, written: dict[str, list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BridgeJob]:
    """The job that carried all four tables, each in a shape of its own."""
    del written
    tables = [{"name": f"{KEYSPACE}.{shape}", "shape": shape} for shape in SHAPES]
    settings = {
        "output": {
            "decimals": "string",
            "key": "primary_key",
            "tombstones": True,
            "headers": ["position", "operation", "timestamp", "table"],
        },
        "publishing": {"topic": JOB + ".{table}", "dead_letter_topic": "{name}.dead-letters"},
        "reading": {"confidence_ms": 500, "deduplicate": True},
        # Four queries on a small machine: each one's tasks need a process.
        "spark": {"lanes": 1},
    }
    with BridgeJob(local_stack, tmp_path_factory.mktemp(JOB), JOB, tables, settings) as made:
        made.run_once()
        yield made


def consume(stack: LocalStack, topic: str, *, decoded: bool = True) -> list[Read]:
    """Every committed record of a topic."""
    read = Deserializer(stack)
    found = []
    for one in committed(stack, topic):
        raw_key, raw_value = one.key(), one.value()
        key, value = (read.key(one), read.value(one)) if decoded else (raw_key, raw_value)
        headers = dict(one.headers() or ())
        found.append(Read(one.partition(), key, value, headers, raw_key, raw_value))  # type: ignore[arg-type]
    return found


def source_of(record: Read) -> Any:
    return record.value["source"]


def row(line: int | None, **columns: Any) -> dict[str, Any]:
    return {"customer": 7, "line": line, **dict.fromkeys(("home", "note", "tags", "total", "vip")), **columns}


FIRST = {"note": "first", "total": "12.50", "tags": ["a"]}
SECOND = {"total": "12.50", "tags": ["a", "b"], "home": {"street": None, "zip": 3}}
LINES = [1, 1, None, 1, None, None]
BOUNDS = {
    "start": {"inclusive": False, "key": {"line": 2}, "empty_columns": []},
    "end": {"inclusive": True, "key": {"line": 5}, "empty_columns": []},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_keys_headers_and_tombstones(
    local_stack: LocalStack, job: BridgeJob, written: dict[str, list[int]], shape: str
) -> None:
    """Every shape has keys, headers, one partition for a base partition, and a tombstone after a row's delete."""
    found = consume(local_stack, f"{JOB}.{shape}")
    operations = [*OPERATIONS[:4], "row_delete", *OPERATIONS[4:]]
    stamps = [*written[shape][:4], written[shape][3], *written[shape][4:]]
    lines = [*LINES[:4], 1, *LINES[4:]]
    if shape in SHAPES_WITH_UNKNOWN:
        operations, lines = [*operations, "unknown"], [*lines, 9]
        stamps.append(stamps[-1] + 500_000)
    assert [one.value is None for one in found] == [False] * 4 + [True] + [False] * (len(operations) - 5)
    assert [one.key for one in found] == [{"customer": 7, "line": line} for line in lines]
    assert [one.headers["cdc.operation"].decode() for one in found] == operations
    assert [int(one.headers["cdc.timestamp"]) for one in found] == stamps
    assert {one.headers["cdc.table"].decode() for one in found} == {f"{KEYSPACE}.{shape}"}
    assert {len(one.headers["cdc.position"]) for one in found} == {36}
    # By the partition key alone, whatever its schema is called.
    assert found[0].raw_key is not None
    key_id, _ = unframe(found[0].raw_key)
    partition_key_body = b"\x0e"
    assert key_id > 0
    assert {one.partition for one in found} == {placement(partition_key_body) % job.config.kafka.partitions}


def changes(stack: LocalStack, shape: str) -> list[Read]:
    """What came of the statements, without tombstones."""
    found = [one for one in consume(stack, f"{JOB}.{shape}") if one.value is not None]
    return found[:-1] if shape in SHAPES_WITH_UNKNOWN else found


@pytest.mark.usefixtures("job")
def test_delta(local_stack: LocalStack) -> None:
    """`delta` says what was done."""
    found = changes(local_stack, "delta")
    assert [one.value["op"] for one in found] == OPERATIONS
    assert [one.value["key"] for one in found] == [{"customer": 7, "line": line} for line in LINES]
    assert [one.value["range"] for one in found] == [None] * 4 + [BOUNDS, None]
    nothing = dict.fromkeys(("home", "note", "tags", "total", "vip"))
    assert [one.value["columns"] for one in found] == [
        {
            **nothing,
            "note": {"value": "first"},
            "total": {"value": "12.50"},
            "tags": {"cleared": True, "added": ["a"], "removed": []},
        },
        {
            **nothing,
            "note": {"value": None},
            "tags": {"cleared": False, "added": ["b"], "removed": []},
            "home": {"cleared": True, "fields": {"street": None, "zip": {"value": 3}}},
        },
        {**nothing, "vip": {"value": True}},
        *[None] * 3,
    ]


@pytest.mark.usefixtures("job")
def test_full(local_stack: LocalStack) -> None:
    """`full` adds the images."""
    found = changes(local_stack, "full")
    nothing = dict.fromkeys(("home", "note", "tags", "total", "vip"))
    first, second = {**nothing, **FIRST}, {**nothing, **SECOND}
    assert [one.value["op"] for one in found] == OPERATIONS
    assert [one.value["before"] for one in found] == [None, first, None, second, None, None]
    assert [one.value["after"] for one in found] == [first, second, {**nothing, "vip": True}, None, None, None]


@pytest.mark.usefixtures("job")
def test_debezium(local_stack: LocalStack, written: dict[str, list[int]]) -> None:
    """`debezium` is before, after, op and source."""
    found = changes(local_stack, "debezium")
    assert [one.value["op"] for one in found] == ["c", "u", "u", "d", "d", "d"]
    assert [one.value["before"] for one in found] == [
        *(None, row(1, **FIRST), None, row(1, **SECOND)),
        *(row(None), row(None)),
    ]
    assert [one.value["after"] for one in found] == [
        *(row(1, **FIRST), row(1, **SECOND), row(None, vip=True)),
        *[None] * 3,
    ]
    assert [one.value["range"] for one in found] == [None] * 4 + [BOUNDS, None]
    assert [one.value["ts_us"] for one in found] == written["debezium"]
    assert [source_of(one)["ts_ms"] for one in found] == [stamp // 1000 for stamp in written["debezium"]]
    assert {(source_of(one)["connector"], source_of(one)["name"], source_of(one)["table"]) for one in found} == {
        ("scylla", JOB, "debezium")
    }
    assert [source_of(one)["unavailable"] for one in found] == [[]] * 6


@pytest.mark.usefixtures("job")
def test_flat(local_stack: LocalStack, written: dict[str, list[int]]) -> None:
    """`flat` is the row, and a few fields."""
    rows = [row(1, **FIRST), row(1, **SECOND), row(None, vip=True), row(1, **SECOND), row(None), row(None)]
    untold = json.dumps(["home", "note", "tags", "total"]), json.dumps(["home", "note", "tags", "total", "vip"])
    found = changes(local_stack, "flat")
    for one, columns, name, stamp, unavailable in zip(
        found, rows, OPERATIONS, written["flat"], [None, None, None, None, *untold], strict=True
    ):
        assert one.value.pop("__batch_seq_no") >= 0
        assert one.value == {
            **columns,
            "__op": name,
            "__deleted": name.endswith("delete"),
            "__timestamp_us": stamp,
            "__ttl_mixed": False,
            "__ttl": None,
            "__range": json.dumps(BOUNDS) if name == "range_delete" else None,
            "__unavailable": unavailable,
        }


@pytest.mark.usefixtures("job")
def test_unknown_operation(local_stack: LocalStack) -> None:
    """An unknown operation gives a record with its number and without a row."""
    *_, debezium = consume(local_stack, f"{JOB}.debezium")
    assert (debezium.value["op"], debezium.value["before"], debezium.value["after"]) == ("m", None, None)
    assert source_of(debezium)["operation"] == UNKNOWN_OPERATION
    *_, flat = consume(local_stack, f"{JOB}.flat")
    assert (flat.value["__op"], flat.value["__deleted"], flat.value["note"]) == ("unknown", False, None)
    assert {"note", "total"} <= set(json.loads(flat.value["__unavailable"]))


def test_retried_writes_are_in_the_log_twice_and_delivered_once(
    local_stack: LocalStack, session: WritingSession, job: BridgeJob
) -> None:
    """With `reading.deduplicate`; what becomes of them without it, `test_whole_log` shows."""
    assert job.config.reading.deduplicate
    rows = [one for one in raw_rows(session, KEYSPACE, "delta_scylla_cdc_log") if one["cdc$end_of_batch"] == b"\x01"]
    assert len(rows) == 2 * len(STATEMENTS) + 1
    assert [one.value["op"] for one in changes(local_stack, "delta")] == OPERATIONS


def test_dead_letter_is_in_the_transaction_of_its_neighbours(
    local_stack: LocalStack, job: BridgeJob, written: dict[str, list[int]]
) -> None:
    """One producer wrote it between two changes, in their order, and these are of one transaction.

    A transaction writes its marker into every partition that it wrote to, so it can't have ended in between.
    """
    (letter,) = consume(local_stack, DEAD_LETTERS, decoded=False)
    first, second = written["delta"][0], written["delta"][1]
    assert first < micros_of(letter.headers["cdc.position"][16:32]) < second
    (partition,) = {one.partition for one in changes(local_stack, "delta")}
    neighbours = [one for one in batches(local_stack, f"{JOB}.delta") if one.partition == partition]
    letters = batches(local_stack, DEAD_LETTERS)
    for found in (neighbours, letters):
        assert [one.marker for one in found][-1] == "commit"
        assert sum(one.marker is not None for one in found) == 1
        assert all(one.is_transactional for one in found)
    assert len({one.producer for one in (*neighbours, *letters)}) == 1
    assert (records_in(neighbours), records_in(letters)) == (len(STATEMENTS) + 1, 1)  # and a tombstone
    assert job.config.dead_letter_topic_of(job.config.tables[0]) == DEAD_LETTERS


def records_in(found: list[Batch]) -> int:
    return sum(one.records for one in found if one.marker is None)


@pytest.mark.usefixtures("job")
def test_dead_letter(local_stack: LocalStack, session: WritingSession, written: dict[str, list[int]]) -> None:
    """What can't be carried lies in the dead-letter topic with its reason and its cells; the rest flowed on."""
    (letter,) = consume(local_stack, DEAD_LETTERS, decoded=False)
    found = json.loads(letter.value)
    time = timeuuid_of(UnixMicros(written["delta"][0] + 500_000), POISON_LOW)
    (stored,) = (one for one in raw_rows(session, KEYSPACE, "delta_scylla_cdc_log") if one["cdc$time"] == time)
    assert letter.key is None
    assert (found["keyspace"], found["table"], found["batch_seq_no"]) == (KEYSPACE, "delta", 0)
    assert found["rows"] == [{name: cell.hex() for name, cell in stored.items() if cell is not None}]
    assert f"{KEYSPACE}.delta: stream 0x{found['stream_id']}, " in found["error"]
    assert "column 'note' of type text: has a value although 'cdc$deleted_note' is true" in found["error"]
    assert letter.headers["cdc.position"][16:32] == time
    assert len(changes(local_stack, "delta")) == len(STATEMENTS)


@pytest.mark.usefixtures("job")
def test_without_a_dead_letter_topic_the_table_stops(
    local_stack: LocalStack, written: dict[str, list[int]], tmp_path: Path
) -> None:
    """The job logs the position of the change and what is wrong with it, and publishes nothing after it."""
    tables = [f"{KEYSPACE}.delta"]
    with BridgeJob(local_stack, tmp_path, "stopped", tables, {"publishing": {"topic": "stopped.{table}"}}) as job:
        status = job.start("--once").wait(120)
        told = job.log.read_text(encoding="utf-8", errors="replace")
    assert status not in (0, None), told[-2000:]
    stamp = written["delta"][0] + 500_000
    assert f"{KEYSPACE}.delta: stream 0x" in told
    assert f"{stamp} us, batch_seq_no 0: column 'note' of type text: has a value although" in told
    assert consume(local_stack, "stopped.delta") == []


@pytest.mark.usefixtures("job")
def test_debezium_transform(local_stack: LocalStack, shared_jars: Path, tmp_path: Path) -> None:
    """ExtractNewRecordState makes rows of the records: of deletes too, and of tombstones nothing."""
    registry = Registry(local_stack.registry)
    found = [raw_record(registry, one) for one in consume(local_stack, f"{JOB}.debezium", decoded=False)]
    transform = Debezium(shared_jars, tmp_path)
    settings = {"add_fields": "op,table,source.ts_ms,source.batch_seq_no", "add_headers": "op"}
    rewritten = transform.extract(found, delete_tombstone_handling_mode="rewrite", **settings)
    # The tombstone, and what is no change of a row that anybody knows.
    assert [one is None for one in rewritten] == [False] * 4 + [True] + [False] * 2 + [True]
    kept = [one for one in rewritten if one is not None]
    assert {one.name for one in kept} == {f"{KEYSPACE}.debezium.Value"}
    assert [one.headers for one in kept] == [{"__op": letter} for letter in "cuuddd"]
    rows = [row(1, **FIRST), row(1, **SECOND), row(None, vip=True), row(1, **SECOND), row(None), row(None)]
    for one, columns, letter in zip(kept, rows, "cuuddd", strict=True):
        assert {name: value for name, value in one.value.items() if not name.startswith("__")} == columns
        assert (one.value["__deleted"], one.value["__op"]) == (str(letter == "d").lower(), letter)
        assert one.value["__table"] == "debezium"
    by_default = transform.extract(found)
    assert [None if one is None else one.value for one in by_default] == [*rows[:3], *[None] * 5]


def raw_record(registry: Registry, record: Read) -> RawRecord:
    assert record.raw_key is not None
    key_id, key = unframe(record.raw_key)
    if record.raw_value is None:
        return RawRecord(registry.get(key_id), key)
    value_id, value = unframe(record.raw_value)
    return RawRecord(registry.get(key_id), key, registry.get(value_id), value)
