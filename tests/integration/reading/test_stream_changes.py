"""Streams that change, on real servers: what the metadata tables say, and how the job follows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.adapters.scylla.stream_metadata import VnodeStreams, stream_metadata
from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.model.streams import lane_range
from bridge.model.times import UnixMillis
from bridge.planning.micro_batches import GenerationStart
from sandbox.scylla.cluster.older_versions import forget_upgrade, publish_old, upgrade
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, mark_tablets, merge, split
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.integration.reading.switch_records import describe_stalls
from tests.integration.reading.switches import Scenario

pytestmark = pytest.mark.integration

SWITCHES = int(os.environ.get("SCYLLA_CDC_BRIDGE_SWITCHES", "2"))
"""Changes of each kind of streams, in real time, every 10 s; with `make switches`, 20."""
MINUTE = 60.0
SEED = int(os.environ.get("SCYLLA_CDC_BRIDGE_SEED", "7"))


def test_lanes_share_out_a_generation(session: WritingSession) -> None:
    """Each stream is in exactly one lane, for any number of lanes."""
    cluster = SimulatedCluster(session, seed=5)
    cluster.reset()
    made = cluster.add_generation(UnixMillis(1_700_000_000_000))
    metadata = VnodeStreams(session)
    assert metadata.generations() == [GenerationStart(made.start_ms)]
    for lanes in (1, 3, 16):
        shares = [list(metadata.streams(made.start_ms, lane_range(lane, lanes))) for lane in range(lanes)]
        together = [stream for share in shares for stream in share]
        assert sorted(together) == sorted(made.streams())


def test_upgrade_from_the_older_tables(session: WritingSession) -> None:
    """What is published since the upgrade is known at once; a generation has the same streams in either table."""
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
        starts.append(GenerationStart(later.start_ms))
        for known in (metadata, VnodeStreams(session)):
            assert known.generations() == starts
        upgrade(session, [old[1]])
        for known in (metadata, VnodeStreams(session)):
            assert known.generations()[-2:] == starts[-2:]
            assert [list(known.streams(old[1].start_ms, lane_range(lane, 3))) for lane in range(3)] == before
    finally:
        upgrade(session, [])
        session.execute("TRUNCATE system_distributed.cdc_streams_descriptions")


def test_tablets_split_merge_and_are_collected(session: WritingSession) -> None:
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


@pytest.mark.timeout(600 + 20 * SWITCHES)
def test_switches_under_load_with_kills(
    session: WritingSession, local_stack: LocalStack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Generation changes, splits and merges while the job is killed: all once, in order.

    `make switches` holds each stall against its bound. Before, there is no generation yet and the cluster is an old
    one that is upgraded. Afterwards the table with tablets is created again: the job logs what is lost of the former
    one, and goes on when `reading.accept_data_loss` is set.
    """
    scenario = Scenario(session, local_stack, tmp_path, switches=SWITCHES, seed=SEED)
    try:
        scenario.run()
    finally:
        upgrade(session, [])
        session.execute("TRUNCATE system_distributed.cdc_streams_descriptions")
    stalls, slowest, verdict = scenario.stalls(), scenario.slowest_plain(), scenario.verdict()
    with capsys.disabled():
        print(f"{describe_stalls(stalls, slowest)}\n{verdict} (seed {SEED})")
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    # Elsewhere other tests run beside this one; yet no switch takes minutes, as it may with other readers.
    slack_s = 0.0 if "SCYLLA_CDC_BRIDGE_SWITCHES" in os.environ else 2 * slowest.slowness_s + MINUTE
    assert [one for one in scenario.stalls(slack_s) if one.late] == []
    assert len(stalls) == 2 * SWITCHES
    assert any(one.switch.kill for one in stalls)
