"""Streams that change, on real servers: what the metadata tables say, and a table whose tablets split and merge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.adapters.scylla import CqlSession
from bridge.adapters.stream_metadata import TabletStreams, VnodeStreams, stream_metadata
from bridge.config import ScyllaSettings
from bridge.local.simulator.cluster import SimulatedCluster
from bridge.local.simulator.older import forget_upgrade, publish_old, upgrade
from bridge.local.simulator.pacing import spread, system_clock_us
from bridge.local.simulator.tables import SimulatedTable
from bridge.local.simulator.tablets import SimulatedTablets, mark_tablets, merge, split
from bridge.local.simulator.workload import Workload
from bridge.local.simulator.writer import Simulator
from bridge.local.stack import LocalStack
from bridge.model.streams import lane_range
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning import GenerationStart
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema
from tests.integration.running import BridgeJob

pytestmark = pytest.mark.integration

SECOND = 1_000_000


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[CqlSession]:
    made = CqlSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    yield made
    made.close()


def test_lanes_share_out_a_generation(session: CqlSession) -> None:
    """Whatever the number of lanes, each stream is in one of them."""
    cluster = SimulatedCluster(session, seed=5)
    cluster.reset()
    made = cluster.add_generation(UnixMillis(1_700_000_000_000))
    metadata = VnodeStreams(session)
    assert metadata.generations() == [GenerationStart(made.start_ms)]
    for lanes in (1, 3, 16):
        shares = [list(metadata.streams(made.start_ms, lane_range(lane, lanes))) for lane in range(lanes)]
        together = [stream for share in shares for stream in share]
        assert sorted(together) == sorted(made.streams())


def test_upgrade_from_the_older_tables(session: CqlSession) -> None:
    """The old table counts until the node says that it is rewritten."""
    cluster = SimulatedCluster(session, seed=6)
    cluster.reset()
    forget_upgrade(session)
    try:
        old = [cluster.add_generation(UnixMillis(1_700_000_000_000 + at), publish=False) for at in (0, 1000)]
        for generation in old:
            publish_old(session, generation)
        metadata = VnodeStreams(session)
        starts = [GenerationStart(generation.start_ms) for generation in old]
        assert metadata.generations() == starts
        before = [list(metadata.streams(old[1].start_ms, lane_range(lane, 3))) for lane in range(3)]
        later = cluster.add_generation(UnixMillis(1_700_000_002_000))
        assert metadata.generations() == starts
        upgrade(session, [old[1]])
        assert metadata.generations() == [GenerationStart(old[1].start_ms), GenerationStart(later.start_ms)]
        assert [list(metadata.streams(old[1].start_ms, lane_range(lane, 3))) for lane in range(3)] == before
    finally:
        upgrade(session, [])
        session.execute("TRUNCATE system_distributed.cdc_streams_descriptions")


def test_tablets_split_merge_and_are_collected(session: CqlSession) -> None:
    """Partial changes are told from whole ones, late ones appear late, collected ones vanish."""
    mark_tablets(session, "tablets_only")
    assert isinstance(stream_metadata(session, "tablets_only", "t"), TabletStreams)
    tablets = SimulatedTablets(session, "tablets_only", "t", seed=1)
    metadata = TabletStreams(session, "tablets_only", "t")
    assert metadata.generations() == []
    start = 1_700_000_000_000
    first = tablets.create(UnixMillis(start), 2)
    tokens = split([stream.token for stream in first.streams], [0])
    second = tablets.resize(UnixMillis(start + 60_000), tokens, partial=True)
    third = tablets.resize(UnixMillis(start + 120_000), merge(tokens, [0]), publish=False)
    expected = [GenerationStart(first.start_ms), GenerationStart(second.start_ms, replaces_all=False)]
    assert metadata.generations() == expected
    kept = first.streams[1]
    assert metadata.streams(second.start_ms, lane_range(0, 1)) == {
        stream: first.start_ms if stream == kept else second.start_ms for stream in second.streams
    }
    tablets.publish(third)
    assert metadata.generations() == [*expected, GenerationStart(third.start_ms)]
    tablets.collect(UnixMillis(start + 100_000), ttl_s=30)
    assert [one.start_ms for one in metadata.generations()] == [second.start_ms, third.start_ms]
    assert metadata.streams(second.start_ms, lane_range(0, 1)) == dict.fromkeys(sorted(second.streams), second.start_ms)


def test_job_carries_a_table_whose_tablets_split_and_merge(
    session: CqlSession, local_stack: LocalStack, tmp_path: Path
) -> None:
    """Partial changes and whole ones, one of them published after its start was read past: once, each key in order."""
    columns = (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    )
    schema = TableSchema("tablets_job", "t", columns)
    simulated = SimulatedTable(schema)
    simulated.drop(session)
    simulated.create(session)
    mark_tablets(session, "tablets_job")
    tablets = SimulatedTablets(session, "tablets_job", "t", seed=2)
    now_us = system_clock_us()

    def at_ms(ago_s: int) -> UnixMillis:
        return UnixMillis((now_us - ago_s * SECOND) // 1000)

    tokens = [stream.token for stream in tablets.create(at_ms(600), 4).streams]
    tokens = list(split(tokens, [1]))
    tablets.resize(at_ms(500), tokens, partial=True)
    tokens = list(merge(tokens, [2]))
    tablets.resize(at_ms(400), tokens, partial=True)
    tokens = list(split(tokens))
    tablets.resize(at_ms(300), tokens)
    late = tablets.resize(at_ms(200), merge(tokens, [0]), partial=True, publish=False)
    simulator = Simulator(session, tablets, [simulated], seed=2)  # type: ignore[arg-type]  # it asks for streams alone
    workload = Workload(schema, seed=2, keys=300)
    start_us, until_us = UnixMicros(now_us - 590 * SECOND), UnixMicros(now_us - 5 * SECOND)
    simulator.load(simulated, spread(workload, count=6_000, start_us=start_us, until_us=until_us))
    settings = {"reading": {"confidence_ms": 500, "max_window_ms": 60_000}}
    with BridgeJob(local_stack, tmp_path, "tablets", ["tablets_job.t"], settings) as job:
        job.run_once()
        tablets.publish(late)
        job.run_once()
        verdict = job.verdict([schema], list(simulator.oracle))
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
