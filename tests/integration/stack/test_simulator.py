"""The simulator on the local stack: what plain CQL reads back is what the oracle says was written."""

from __future__ import annotations

from itertools import count, islice

import pytest

from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.base.mutations import Insert, Mutation, PartitionDelete, RowDelete, Update
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.native import EXTREMES
from sandbox.scylla.workload import Mix, Workload
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.integration.support.reading import changes_of, in_log_terms, raw_rows

pytestmark = pytest.mark.integration

KEYSPACES = (f"simulated{number}" for number in count())
SCALARS = sorted(EXTREMES)
KEY_TYPES = [name for name in SCALARS if name != "duration"]


def column(name: str, type_text: str, kind: ColumnKind, position: int = -1) -> Column:
    return Column(name, parse(type_text), kind, position)


def everything() -> TableSchema:
    """A composite partition key, two clustering columns, and static and regular columns of every scalar type."""
    return TableSchema(
        next(KEYSPACES),
        "every_type",
        (
            column("shop", "text", ColumnKind.PARTITION_KEY, 0),
            column("customer", "uuid", ColumnKind.PARTITION_KEY, 1),
            Column("at", parse("timeuuid"), ColumnKind.CLUSTERING, 0, descending=True),
            column("line", "int", ColumnKind.CLUSTERING, 1),
            *(column(f"s_{name}", name, ColumnKind.STATIC) for name in SCALARS),
            *(column(f"v_{name}", name, ColumnKind.REGULAR) for name in SCALARS),
            column('Größe "x"', "int", ColumnKind.REGULAR),
        ),
    )


def simple(clustering: bool = True) -> TableSchema:
    columns = [column("id", "bigint", ColumnKind.PARTITION_KEY, 0), column("total", "int", ColumnKind.REGULAR)]
    if clustering:
        columns.append(column("line", "int", ColumnKind.CLUSTERING, 0))
    return TableSchema(next(KEYSPACES), "orders", tuple(columns))


def assert_log_is_the_oracles(session: WritingSession, simulator: Simulator, schema: TableSchema) -> None:
    found = [changes_of(row, schema) for row in raw_rows(session, schema.keyspace, schema.log_table)]
    assert sorted(map(repr, found)) == sorted(repr(in_log_terms(change)) for change in simulator.oracle)


def test_a_workload_over_a_generation_change_is_read_back(session: WritingSession) -> None:
    """With all types and operations, and a generation that is published late, the log has the oracle's rows."""
    schema = everything()
    shop = SimulatedTable(schema)
    shop.create(session)
    cluster = SimulatedCluster(session, seed=11)
    cluster.reset()
    now_us = system_clock_us()
    first = cluster.add_generation(UnixMillis(now_us // 1000 - 60_000))
    simulator = Simulator(session, cluster, [shop], seed=12)
    switch_us = UnixMicros(now_us // 1000 * 1000 - 1_000_000)
    mix = Mix(batches=0.3, ttls=0.3, extremes=0.5)
    times = spread(
        Workload(schema, seed=13, keys=20, rows_per_key=5, mix=mix),
        count=600,
        start_us=UnixMicros(switch_us - 2_000_000),
        until_us=UnixMicros(switch_us + 500_000),
    )
    mutations = list(times)
    half = next(index for index, (at_us, _mutation) in enumerate(mutations) if at_us >= switch_us)
    second = cluster.add_generation(UnixMillis(switch_us // 1000), publish=False)
    simulator.write_many(shop, mutations[:half])
    assert {change.generation_ms for change in simulator.oracle} == {first.start_ms}
    simulator.write_many(shop, mutations[half:])
    cluster.publish(second)
    assert {change.generation_ms for change in simulator.oracle} == {first.start_ms, second.start_ms}
    assert_log_is_the_oracles(session, simulator, schema)
    streams = {generation.start_ms: set(generation.streams()) for generation in (first, second)}
    assert all(StreamId(change.stream_id) in streams[change.generation_ms] for change in simulator.oracle)


def test_the_base_table_ends_as_the_writes_say(session: WritingSession) -> None:
    """Inserts, an update to null and both deletes have their effect; log cells have the write's own microsecond."""
    schema = simple()
    shop = SimulatedTable(schema, CdcOptions(ttl_s=5000))
    shop.create(session)
    cluster = SimulatedCluster(session, seed=1)
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000), publish=False)
    simulator = Simulator(session, cluster, [shop], seed=1)
    one, two = ((number.to_bytes(8, "big"),) for number in (1, 2))
    lines = [(number.to_bytes(4, "big"),) for number in range(3)]
    total = {"total": (77).to_bytes(4, "big")}
    simulator.write(shop, Mutation(one, tuple(Insert(line, total) for line in lines)), now_us)
    simulator.write(shop, Mutation(two, (Insert(lines[0], total),)), now_us)
    simulator.write(shop, Mutation(one, (Update(lines[1], {"total": None}), RowDelete(lines[2]))), now_us)
    simulator.write(shop, Mutation(two, (PartitionDelete(),)), now_us)
    rows = raw_rows(session, schema.keyspace, schema.name)
    assert [(row["id"], row["line"], row["total"]) for row in rows] == [
        (*one, *lines[0], total["total"]),
        (*one, *lines[1], None),
    ]
    found = session.rows(
        f'SELECT "cdc$time", writetime("cdc$operation") AS w, ttl("cdc$operation") AS t, writetime(total) AS v '
        f"FROM {schema.keyspace}.{schema.log_table}"
    )
    assert {row["w"] for row in found} == {change.timestamp_us for change in simulator.oracle}
    assert all(4000 < row["t"] <= 5000 for row in found)
    assert all(row["v"] in (None, row["w"]) for row in found)
    assert_log_is_the_oracles(session, simulator, schema)


def test_a_log_row_disappears_with_its_cells(session: WritingSession) -> None:
    """There is no row marker: deleting the cells leaves no row behind."""
    schema = simple(clustering=False)
    shop = SimulatedTable(schema)
    shop.create(session)
    cluster = SimulatedCluster(session, seed=1)
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000), publish=False)
    simulator = Simulator(session, cluster, [shop], seed=1)
    (change,) = simulator.write(shop, Mutation((bytes(8),), (Insert((), {}),)), now_us)
    names = ", ".join(f'"{name}"' for name in ("cdc$operation", "cdc$end_of_batch", "id"))
    session.execute(
        f'DELETE {names} FROM {schema.keyspace}.{schema.log_table} WHERE "cdc$stream_id" = 0x{change.stream_id.hex()}'
        f' AND "cdc$time" = {_uuid(change.time)} AND "cdc$batch_seq_no" = 0'
    )
    assert raw_rows(session, schema.keyspace, schema.log_table) == []


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@pytest.mark.parametrize("type_name", KEY_TYPES)
def test_every_scalar_type_serves_as_a_key(session: WritingSession, type_name: str) -> None:
    """As partition key and as clustering key, extremes included; deletes find the rows."""
    schema = TableSchema(
        next(KEYSPACES),
        f"by_{type_name}",
        (
            column("p", type_name, ColumnKind.PARTITION_KEY, 0),
            column("c", type_name, ColumnKind.CLUSTERING, 0),
            column("v", "int", ColumnKind.REGULAR),
        ),
    )
    shop = SimulatedTable(schema)
    shop.create(session)
    cluster = SimulatedCluster(session, seed=1)
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000), publish=False)
    simulator = Simulator(session, cluster, [shop], seed=1)
    mix = Mix(row_deletes=3, extremes=0.8)
    mutations = islice(Workload(schema, seed=3, keys=12, rows_per_key=6, mix=mix), 60)
    simulator.write_many(shop, ((now_us, mutation) for mutation in mutations))
    assert_log_is_the_oracles(session, simulator, schema)


def test_a_bulk_load_is_read_back(session: WritingSession) -> None:
    """Thousands of rows in batches, none lost, base rows left out."""
    schema = simple()
    shop = SimulatedTable(schema)
    shop.create(session)
    cluster = SimulatedCluster(session, seed=1)
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000), publish=False)
    cluster.add_generation(UnixMillis(now_us // 1000 - 30_000), publish=False)
    simulator = Simulator(session, cluster, [shop], seed=1)
    times = spread(
        Workload(schema, seed=5), count=5000, start_us=UnixMicros(now_us - 59_000_000), until_us=UnixMicros(now_us)
    )
    assert simulator.load(shop, times) == len(simulator.oracle)
    assert_log_is_the_oracles(session, simulator, schema)
    assert raw_rows(session, schema.keyspace, schema.name) == []


def test_the_schema_tables_tell_of_cdc(session: WritingSession) -> None:
    """A log is marked as one, and its base table says its cdc option, as ScyllaDB's schema tables do."""
    schema = simple()
    shop = SimulatedTable(schema)
    shop.create(session)
    (found,) = session.rows(
        "SELECT partitioner FROM system_schema.scylla_tables WHERE keyspace_name = ? AND table_name = ?",
        (schema.keyspace, schema.log_table),
    )
    assert found == {"partitioner": "com.scylladb.dht.CDCPartitioner"}
    (base,) = session.rows(
        "SELECT extensions FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
        (schema.keyspace, schema.name),
    )
    assert b"enabled\x04\x00\x00\x00true" in base["extensions"]["cdc"]
