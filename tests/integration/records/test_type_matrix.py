"""Every CQL type through the real registry and Kafka, as two readers see it that are not ours.

Kafka's topics are read by confluent-kafka with its AvroDeserializer, and by a Java program with kafka-clients and
Apache Avro's GenericDatumReader. Both know the registry's address and nothing else.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bridge.config.document import ScyllaSettings
from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_table import CdcOptions, log_ddl_of
from sandbox.scylla.tables import create_keyspace, mark_log
from sandbox.scylla.write_times import system_clock_us
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from tests.integration.records.type_matrix import (
    KEYSPACE,
    STEPS,
    MatrixColumn,
    frozen_columns,
    key_values,
    non_frozen_columns,
    scalar_columns,
    user_types,
)
from tests.integration.support.consuming import Deserializer, committed
from tests.integration.support.cql_values import BY_TYPE, exact
from tests.integration.support.java_reader import JavaReader, ReadRecord
from tests.integration.support.reading import raw_rows
from tests.integration.support.running import BridgeJob

pytestmark = pytest.mark.integration

JOB = "matrix"
READERS = ("confluent-kafka", "java")
TABLES: dict[str, list[MatrixColumn]] = {
    "scalars": scalar_columns(),
    "frozen": frozen_columns(),
    "non_frozen": non_frozen_columns(),
}
EVERY_COLUMN = [(table, column) for table, columns in TABLES.items() for column in columns]
KEYS = key_values()
ID, CK = struct.pack(">i", 1), struct.pack(">i", -2)
TTL_STEP, TTL_S = "add", 77

Topics = dict[str, list[ReadRecord]]


@dataclass
class LogWriter:
    """Writes rows into one log table, each a group of its own, one µs after the other."""

    session: WritingSession
    cluster: SimulatedCluster
    table: str
    at_us: int
    written: list[dict[str, bytes]] = field(default_factory=list)

    def write(self, operation: int, key: Mapping[str, bytes], cells: Mapping[str, bytes]) -> None:
        """Write the row of a change with this primary key and these other cells."""
        self.at_us += 1
        now_us = UnixMicros(self.at_us)
        token = murmur3_token(partition_key_bytes([raw for name, raw in key.items() if name != "ck"]))
        row = {
            "cdc$stream_id": self.cluster.stream_for(token, now_us, now_us).stream_id.raw,
            "cdc$time": timeuuid_of(now_us, bytes(8)),
            "cdc$batch_seq_no": struct.pack(">i", 0),
            "cdc$operation": struct.pack(">b", operation),
            "cdc$end_of_batch": b"\x01",
            **key,
            **cells,
        }
        into = f'"{KEYSPACE}"."{self.table}_scylla_cdc_log"'
        prepared = self.session.prepare(
            f"INSERT INTO {into} ({', '.join(map(quoted, row))}) VALUES ({', '.join('?' * len(row))})"
        )
        self.session.write_raw(prepared, list(row.values())).result(60)
        self.written.append(row)

    def check(self) -> None:
        """Hold what the server gives back against what was written: it must neither lack nor change a byte."""
        rows = raw_rows(self.session, KEYSPACE, f"{self.table}_scylla_cdc_log")
        found = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
        assert found == self.written


@pytest.fixture(scope="module")
def java_reader(local_stack: LocalStack, shared_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> JavaReader:
    """The Java program; with a stack up, the jars are there."""
    assert all(server.is_up for server in local_stack.status())
    return JavaReader(shared_jars, tmp_path_factory.mktemp("java"))


@pytest.fixture(scope="module")
def readers(
    local_stack: LocalStack, java_reader: JavaReader, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Topics]:
    """Reader -> topic -> its records; the tables are written, and carried over by one run of the job."""
    session = WritingSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    cluster = SimulatedCluster(session, seed=9)
    cluster.reset()
    now_us = system_clock_us() - 60_000_000
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000))
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    create_keyspace(session, KEYSPACE)
    for name, fields in user_types().items():
        declared = ", ".join(f"{field} {value.type}" for field, value in fields.items())
        session.execute(f"CREATE TYPE {KEYSPACE}.{name} ({declared})")
    for table, columns in TABLES.items():
        write_steps(LogWriter(session, cluster, table, now_us), columns)
    write_keys(LogWriter(session, cluster, "as_keys", now_us))
    session.close()
    tables = [f"{KEYSPACE}.{table}" for table in (*TABLES, "as_keys")]
    with BridgeJob(local_stack, tmp_path_factory.mktemp("types"), JOB, tables) as job:
        job.run_once()
    wanted = dict.fromkeys(map(topic_of, TABLES), len(STEPS)) | {topic_of("as_keys"): 1}
    return {
        "confluent-kafka": {topic: consume(local_stack, topic) for topic in wanted},
        "java": java_reader.read(local_stack, wanted),
    }


def write_steps(writer: LogWriter, columns: list[MatrixColumn]) -> None:
    """Make a table of these columns, and let its one row go through every step."""
    declared = ", ".join(f"{column.name} {column.type}" for column in columns)
    logged = [("id", "int"), ("ck", "int"), *(pair for column in columns for pair in column.log_columns)]
    create(writer.session, writer.table, f"id int, ck int, {declared}, PRIMARY KEY (id, ck)", logged)
    for step, operation in STEPS.items():
        cells = {}
        for column in columns:
            if step in column.steps:
                cells |= column.steps[step].cells
        if step == TTL_STEP:
            cells["cdc$ttl"] = struct.pack(">q", TTL_S)
        writer.write(operation, {"id": ID} if step == "partition delete" else {"id": ID, "ck": CK}, cells)
    writer.check()


def write_keys(writer: LogWriter) -> None:
    """Make a table whose partition key has a component for each of the values, and insert one row."""
    parts = {f"p{number:02}": value for number, value in enumerate(KEYS)}
    declared = ", ".join(f"{name} {value.type}" for name, value in parts.items())
    logged = [*((name, value.type) for name, value in parts.items()), ("v", "int"), ("cdc$deleted_v", "boolean")]
    create(writer.session, writer.table, f"{declared}, v int, PRIMARY KEY (({', '.join(parts)}))", logged)
    writer.write(2, {name: value.cell for name, value in parts.items()}, {"v": ID})
    writer.check()


def create(session: WritingSession, table: str, definition: str, log_columns: list[tuple[str, str]]) -> None:
    """Make a base table and its log."""
    options = CdcOptions()
    session.execute(f"CREATE TABLE {KEYSPACE}.{table} ({definition}) WITH cdc = {options}")
    meta = [("cdc$operation", "tinyint"), ("cdc$ttl", "bigint"), ("cdc$end_of_batch", "boolean")]
    session.execute(log_ddl_of(KEYSPACE, table, [*meta, *log_columns], options))
    mark_log(session, KEYSPACE, f"{table}_scylla_cdc_log")


def topic_of(table: str) -> str:
    return f"{JOB}.{KEYSPACE}.{table}"


def consume(stack: LocalStack, topic: str) -> list[ReadRecord]:
    """Every committed record of a topic, as confluent_kafka's own deserializer reads it."""
    read = Deserializer(stack)
    return [
        ReadRecord(one.partition(), one.offset(), read.key(one), read.value(one))  # type: ignore[arg-type]
        for one in committed(stack, topic)
    ]


@pytest.fixture(scope="module")
def record(readers: dict[str, Topics]) -> Callable[[str, str, str], ReadRecord]:
    """The record of a step, by reader, table and step."""

    def of(reader: str, table: str, step: str) -> ReadRecord:
        records = readers[reader][topic_of(table)]
        assert len(records) == len(STEPS)
        return records[list(STEPS).index(step)]

    return of


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("table", "column"), EVERY_COLUMN, ids=lambda part: str(part))
def test_column_arrives_unchanged(
    record: Callable[[str, str, str], ReadRecord], table: str, column: MatrixColumn, reader: str
) -> None:
    """Inserted, updated to a value, to null, to empty, added to and removed from: a column reads as it was written."""
    for step, operation in STEPS.items():
        value = record(reader, table, step).value
        if operation > 2:
            assert value["columns"] is None
            continue
        wanted = column.steps.get(step)
        # A step that touches no column of its table does not say what it did.
        found = None if value["columns"] is None else value["columns"][column.name]
        assert exact(found) == exact(wanted.read if wanted is not None else None), step
        assert (column.name in value["empty_columns"]) == (wanted is not None and wanted.is_empty), step


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", TABLES)
def test_operations_arrive_with_their_meaning(
    readers: dict[str, Topics], record: Callable[[str, str, str], ReadRecord], table: str, reader: str
) -> None:
    """Operation, primary key, TTL and place in the log are in every value."""
    records = readers[reader][topic_of(table)]
    assert [one.value["op"] for one in records] == [
        *("insert", "update", "update", "update", "update", "update", "update"),
        *("row_delete", "partition_delete"),
    ]
    assert len({one.partition for one in records}) == 1
    assert [one.key for one in records] == [{"id": 1}] * len(records)
    assert [one.value["key"] for one in records] == [{"id": 1, "ck": -2}] * 8 + [{"id": 1, "ck": None}]
    assert [one.value["ttl"] for one in records] == [TTL_S if step == TTL_STEP else None for step in STEPS]
    source = record(reader, table, "insert").value["source"]
    assert (source["keyspace"], source["table"]) == (KEYSPACE, table)
    assert (source["batch_seq_no"], source["last_in_group"]) == (0, True)
    assert len(source["stream_id"]) == len(source["time"]) == 16
    times = [one.value["source"]["timestamp_us"] for one in records]
    assert times == list(range(times[0], times[0] + len(STEPS)))
    assert times[0] > source["generation_ms"] * 1000


@pytest.mark.parametrize("reader", READERS)
def test_every_type_serves_as_key(readers: dict[str, Topics], reader: str) -> None:
    """The Kafka key holds the partition key columns in their order, for all types."""
    (found,) = readers[reader][topic_of("as_keys")]
    wanted: dict[str, Any] = {f"p{number:02}": value.read for number, value in enumerate(KEYS)}
    assert exact(found.key) == exact(wanted)
    assert list(found.key) == list(wanted)
    assert exact(found.value["key"]) == exact(wanted)
    assert found.value["columns"]["v"] == {"value": 1}


@pytest.mark.parametrize("table", [*TABLES, "as_keys"])
def test_both_readers_see_the_same_records(readers: dict[str, Topics], table: str) -> None:
    """Both readers also agree on what no other test checks: every field, the partition and the offset."""

    def all_of(reader: str) -> list[Any]:
        records = readers[reader][topic_of(table)]
        assert records
        return [(one.partition, one.offset, exact(one.key), exact(one.value)) for one in records]

    first, second = map(all_of, READERS)
    assert first == second


def test_a_missing_record_is_no_success(
    local_stack: LocalStack, java_reader: JavaReader, readers: dict[str, Topics]
) -> None:
    """The Java program does not take a topic's end for the end of what it was told to await."""
    topic = topic_of("as_keys")
    assert topic in readers["java"]
    with pytest.raises(AssertionError, match=rf"time is up; records still missing: {{{topic}=1}}"):
        java_reader.read(local_stack, {topic: 2}, timeout_s=4)


def test_the_matrix_is_whole() -> None:
    """Each of CQL's types is there, alone and inside others."""
    # Counters can't be in a table with CDC; varchar is another name of text.
    scalars = {
        *("ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int"),
        *("smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint"),
    }
    types = {table: {column.type for column in columns} for table, columns in TABLES.items()}
    assert types["scalars"] == scalars
    assert types["frozen"] >= {f"frozen<list<{one}>>" for one in scalars}
    assert types["frozen"] >= {f"frozen<set<{one}>>" for one in scalars - {"duration"}}
    assert {text for text in types["frozen"] if text.startswith("vector<")} >= {
        f"vector<{kind}, {len(values)}>" for kind, values in BY_TYPE.items()
    }
    assert types["non_frozen"] >= {f"list<{one}>" for one in scalars} | {f"map<int, {one}>" for one in scalars}
    assert types["non_frozen"] >= {f"set<{one}>" for one in scalars - {"duration"}}
    assert types["non_frozen"] >= set(user_types())
