"""Logs that are there before a job starts: tables, generations, and changes spread over the time before now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

SECOND: Final = 1_000_000
TEN_MINUTES: Final = (600, 400, 200)
LAST_MINUTE: Final = (60, 30)


def table(keyspace: str, name: str) -> TableSchema:
    """A table with a compound key, a static column and two regular ones."""
    columns = (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("part", parse("text"), ColumnKind.PARTITION_KEY, 1),
        Column("ck", parse("bigint"), ColumnKind.CLUSTERING, 0),
        Column("s", parse("text"), ColumnKind.STATIC),
        Column("v", parse("text"), ColumnKind.REGULAR),
        Column("n", parse("decimal"), ColumnKind.REGULAR),
    )
    return TableSchema(keyspace, name, columns)


def history(
    session: WritingSession,
    schema: TableSchema,
    *,
    seed: int,
    changes: int,
    keys: int,
    generations_s_ago: Sequence[int] = TEN_MINUTES,
    vnodes: int = 16,
    shards: int = 2,
) -> list[ExpectedChange]:
    """A table created again, and its log since just after the first generation; gives what it holds.

    Args:
        session: where the table is.
        schema: the table.
        seed: decides streams and what is written.
        changes: how many mutations.
        keys: how many base partitions.
        generations_s_ago: when each of the cluster's generations began.
        vnodes: of each node.
        shards: of each node.
    """
    cluster = SimulatedCluster(session, seed=seed, vnodes=vnodes, shards=shards)
    cluster.reset()
    now_us = system_clock_us()
    for ago_s in generations_s_ago:
        cluster.add_generation(UnixMillis((now_us - ago_s * SECOND) // 1000))
    simulated = SimulatedTable(schema)
    simulated.drop(session)
    simulated.create(session)
    simulator = Simulator(session, cluster, [simulated], seed=seed)
    workload = Workload(schema, seed=seed, keys=keys)
    start_us = UnixMicros(now_us - (generations_s_ago[0] - 5) * SECOND)
    until_us = UnixMicros(now_us - 5 * SECOND)
    simulator.load(simulated, spread(workload, count=changes, start_us=start_us, until_us=until_us))
    return list(simulator.oracle)
