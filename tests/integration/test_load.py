"""What looking at a table costs a real server, by its own count; planner and tasks without Spark between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bridge.adapters.scylla import CqlSession
from bridge.config import ScyllaSettings, SourceConfig
from bridge.control import end_from_json
from bridge.local.simulator.cluster import SimulatedCluster
from bridge.local.simulator.pacing import spread, system_clock_us
from bridge.local.simulator.tables import SimulatedTable
from bridge.local.simulator.workload import Workload
from bridge.local.simulator.writer import Simulator
from bridge.local.stack import LocalStack
from bridge.model.times import UnixMicros, UnixMillis
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema
from spark import rows, worker
from spark.stream_reader import ScyllaCdcStreamReader

pytestmark = pytest.mark.integration

SECOND = 1_000_000
CHANGES = 300
LANES = 3
REQUESTS_PER_S = 40
"""Two tables' share of this is 20, and the simulated cluster has 64 streams: a look every 3.2 s."""
SCHEMA = TableSchema(
    "load",
    "t",
    (
        Column("a", parse("text"), ColumnKind.PARTITION_KEY, 0),
        Column("b", parse("int"), ColumnKind.PARTITION_KEY, 1),
        Column("v", parse("text"), ColumnKind.REGULAR),
    ),
)


@pytest.fixture
def session(local_stack: LocalStack) -> Iterator[CqlSession]:
    found = CqlSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    yield found
    found.close()


@pytest.fixture
def written(session: CqlSession) -> int:
    """How many changes the log holds, in two generations."""
    cluster = SimulatedCluster(session, seed=1)
    cluster.reset()
    now_us = system_clock_us()
    for ago_s in (60, 30):
        cluster.add_generation(UnixMillis((now_us - ago_s * SECOND) // 1000))
    simulated = SimulatedTable(SCHEMA)
    simulated.drop(session)
    simulated.create(session)
    simulator = Simulator(session, cluster, [simulated], seed=1)
    start_us, until_us = UnixMicros(now_us - 55 * SECOND), UnixMicros(now_us - 5 * SECOND)
    workload = Workload(SCHEMA, seed=1, keys=100)
    simulator.load(simulated, spread(workload, count=CHANGES, start_us=start_us, until_us=until_us))
    return len(simulator.oracle)


def source(session: CqlSession, **scylla: Any) -> ScyllaCdcStreamReader:
    settings = {"contact_points": session.address, "consistency": "ONE"} | scylla
    reading = {"confidence_ms": 0, "leeway_ms": 0, "integrity": "always"}
    config = SourceConfig.model_validate(
        {"scylla": settings, "table": "load.t", "lanes": LANES, "reading": reading, "sharing": 2}
    )
    return ScyllaCdcStreamReader(config, None, control=True)


def work(reader: ScyllaCdcStreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Where the source stands after the next micro-batch, if one is due, and the rows of it."""
    end = reader.latestOffset(start, ReadAllAvailable())
    partitions = reader.partitions(start, end) if end != start else []
    return end, [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]


def test_an_idle_log_is_asked_no_more_often_than_allowed(session: CqlSession, written: int) -> None:
    """Every key is checked against the metadata tables on the way; then the server counts reads of the idle log."""
    reader = source(session)
    reader.prepareForTriggerAvailableNow()
    at, found = reader.initialOffset(), []
    while (step := work(reader, at))[0] != at:
        at = step[0]
        found += step[1]
    assert sum(len(rows.block_of(row["value"])[0]) for row in found if row["kind"] == rows.BLOCK) == written
    counted = [one for row in found if row["kind"] == rows.END for _, _, one in end_from_json(row["text"])]
    assert sum(one.keys_checked for one in counted) == written
    assert sum(one.keys_misplaced for one in counted) == 0

    reader = source(session, requests_per_second=REQUESTS_PER_S)
    at, looks = work(reader, at)[0], 0
    before, begun_s = reads_of_the_log(session), time.monotonic()
    while looks < 3:
        end, _ = work(reader, at)
        at, looks = end, looks + (end != at)
        assert time.monotonic() < begun_s + 60, f"{looks} micro-batches"
        time.sleep(0.05)  # as Spark's trigger
    took_s = time.monotonic() - begun_s
    asked = reads_of_the_log(session) - before
    streams = worker.stream_metadata(reader._config.scylla, "load", "t").count(reader._known_generations()[-1].start_ms)
    assert asked == looks * streams
    # One may have been due just when this began.
    assert asked <= REQUESTS_PER_S / 2 * took_s + streams


def reads_of_the_log(session: CqlSession) -> int:
    """How many the server has counted."""
    counts = session.prepare(
        "SELECT count FROM system_views.coordinator_read_latency WHERE keyspace_name = 'load' "
        "AND table_name = 't_scylla_cdc_log'"
    )
    ((cell,),) = session.page(counts, (), page_rows=10).result(timeout=10).rows
    assert cell is not None
    return int.from_bytes(cell, "big")
