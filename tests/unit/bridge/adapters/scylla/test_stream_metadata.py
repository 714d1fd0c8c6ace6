"""Streams as each of ScyllaDB's metadata tables describes them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters.scylla.stream_metadata import VnodeStreams, metadata_consistency, stream_metadata
from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.errors import BridgeError, RetriableError
from bridge.model.streams import StreamId, Token, lane_range
from bridge.model.times import UnixMillis
from bridge.planning.micro_batches import GenerationStart
from sandbox.scylla.cluster.topology import Ring, StreamMap
from tests.unit.bridge.adapters.scylla.fake_session import (
    KEYSPACES,
    LOCAL,
    V1,
    V2_STREAMS,
    V2_TIMES,
    FakeSession,
    time,
)

WHOLE = lane_range(0, 1)
G1, G2, G3 = UnixMillis(1000), UnixMillis(2000), UnixMillis(3000)


def ring(start_ms: UnixMillis, seed: int, shards: int = 3) -> StreamMap:
    random = Random(seed)
    return StreamMap.of_ring(start_ms, Ring().joined_by_node(7, random), shards=shards, ignore_msb=12, random=random)


def v2_rows(*maps: StreamMap) -> dict[str, list[dict[str, Any]]]:
    return {
        V2_TIMES: [{"key": "timestamps", "time": time(one.start_ms), "expired": None} for one in reversed(maps)],
        V2_STREAMS: [
            {"time": time(one.start_ms), "range_end": end, "streams": {stream.raw for stream in streams}}
            for one in maps
            for end, streams in zip(one.range_ends, one.streams, strict=True)
        ],
    }


def v1_rows(*maps: StreamMap) -> list[dict[str, Any]]:
    return [
        {"time": time(one.start_ms), "streams": {stream.raw for stream in one.generation().streams()}, "expired": None}
        for one in maps
    ]


def test_generations_ascend_and_replace_all() -> None:
    """The table has the newest first; a later generation has no stream of an earlier one."""
    metadata = VnodeStreams(FakeSession(v2_rows(ring(G1, 1), ring(G2, 2))))
    assert metadata.generations() == [GenerationStart(G1), GenerationStart(G2)]
    assert VnodeStreams(FakeSession(v2_rows())).generations() == []


def test_expired_column_is_ignored() -> None:
    """The column is reserved in both tables: a generation counts with any value, or without the column."""
    for tables, name in ((v2_rows(ring(G1, 1), ring(G2, 2)), V2_TIMES), ({V1: v1_rows(ring(G1, 1), ring(G2, 2))}, V1)):
        first, second = tables[name]
        first["expired"] = time(G3)
        del second["expired"]
        metadata = VnodeStreams(FakeSession({LOCAL: [], **tables}))
        assert metadata.generations() == [GenerationStart(G1), GenerationStart(G2)]
        assert len(metadata.streams(G1, WHOLE)) == len(metadata.streams(G2, WHOLE)) == 21


def test_streams_without_published_timestamp_are_not_read() -> None:
    """Until the timestamp is published, some of its streams may be missing."""
    tables = v2_rows(ring(G1, 1), ring(G2, 2))
    tables[V2_TIMES] = [row for row in tables[V2_TIMES] if row["time"] == time(G1)]
    del tables[V2_STREAMS][-1]
    session = FakeSession(tables)
    assert VnodeStreams(session).generations() == [GenerationStart(G1)]
    assert V2_STREAMS not in [name for name, _ in session.asked]


@pytest.mark.parametrize("lanes", [1, 2, 3, 16])
@pytest.mark.parametrize("seed", range(3))
def test_lanes_get_the_same_streams_from_both_tables(lanes: int, seed: int) -> None:
    """A lane has the same streams before and after a cluster's upgrade, also of ranges that span lanes or wrap."""
    made = ring(G1, seed)
    newer = VnodeStreams(FakeSession(v2_rows(made)))
    older = VnodeStreams(FakeSession({V1: v1_rows(made), LOCAL: []}))
    shares = [list(newer.streams(G1, lane_range(lane, lanes))) for lane in range(lanes)]
    assert shares == [list(older.streams(G1, lane_range(lane, lanes))) for lane in range(lanes)]
    together = [stream for share in shares for stream in share]
    assert len(together) == len(set(together))
    assert set(together) == set(made.generation().streams())


def times_of(metadata: VnodeStreams) -> list[int]:
    return [one.start_ms for one in metadata.generations()]


def test_newer_tables_count_alone_once_a_node_says_so() -> None:
    """From the mark `rewritten` on, the older table is not read; later answers without the mark change nothing."""
    tables = {V1: v1_rows(ring(G1, 1)), LOCAL: [{"key": "rewritten"}], **v2_rows(ring(G2, 2))}
    session = FakeSession(tables)
    metadata = VnodeStreams(session)
    assert metadata.may_lag
    assert times_of(metadata) == [G2]
    assert not metadata.may_lag
    tables[LOCAL].clear()
    assert times_of(metadata) == [G2]
    assert len(metadata.streams(G2, WHOLE)) == 21
    assert V1 not in [name for name, _ in session.asked]


@pytest.mark.parametrize("copied", [[], [1], [1, 2]])
def test_nodes_without_the_mark_know_all_generations(copied: list[int]) -> None:
    """A node since 2026.2 has no mark: what its cluster published since the upgrade is known, copied or not."""
    old = [ring(G1, 1), ring(G2, 2)]
    newest = ring(G3, 3)
    tables = {V1: v1_rows(*old), LOCAL: [], **v2_rows(*(old[one - 1] for one in copied), newest)}
    session = FakeSession(tables)
    metadata = VnodeStreams(session)
    assert times_of(metadata) == [G1, G2, G3]
    assert not metadata.may_lag
    for made in (*old, newest):
        assert set(metadata.streams(made.start_ms, WHOLE)) == set(made.generation().streams())
        assert metadata.count(made.start_ms) == 21
    assert bool(metadata.key_ranges(G1, WHOLE)) == (1 in copied)
    assert metadata.key_ranges(G3, WHOLE)


def test_generation_that_is_being_copied_is_read_from_the_older_table() -> None:
    """Its first rows are in the newer table before its time, and others are still missing there."""
    made, later = ring(G1, 1), ring(G2, 2)
    tables = {V1: v1_rows(made), LOCAL: [], **v2_rows(made, later)}
    tables[V2_TIMES] = [row for row in tables[V2_TIMES] if row["time"] != time(G1)]
    del tables[V2_STREAMS][3]
    metadata = VnodeStreams(FakeSession(tables))
    assert times_of(metadata) == [G1, G2]
    assert set(metadata.streams(G1, WHOLE)) == set(made.generation().streams())


def test_older_table_is_read_while_it_may_grow() -> None:
    """Until the newer tables have caught up with it; reading it is expensive."""
    tables = {V1: v1_rows(ring(G1, 1)), LOCAL: [], **v2_rows()}
    session = FakeSession(tables)
    metadata = VnodeStreams(session)
    assert times_of(metadata) == [G1]
    tables[V1] = v1_rows(ring(G1, 1), ring(G2, 2))
    assert times_of(metadata) == [G1, G2]
    assert metadata.may_lag
    tables |= v2_rows(ring(G3, 3))
    assert times_of(metadata) == [G1, G2, G3]
    session.asked.clear()
    assert times_of(metadata) == [G1, G2, G3]
    assert V1 not in [name for name, _ in session.asked]


def test_old_cluster_without_the_newer_tables() -> None:
    """A ScyllaDB 4.3 has neither the newer tables nor the mark."""
    metadata = VnodeStreams(FakeSession({V1: v1_rows(ring(G1, 1)), LOCAL: []}))
    assert metadata.generations() == [GenerationStart(G1)]
    assert set(metadata.streams(G1, WHOLE)) == set(ring(G1, 1).generation().streams())


def test_published_generation_without_streams_is_tried_again() -> None:
    """It never counts as a generation without streams."""
    tables = v2_rows(ring(G1, 1))
    tables[V2_STREAMS].clear()
    with pytest.raises(RetriableError, match="generation 1000 has no streams at test:1"):
        VnodeStreams(FakeSession(tables)).streams(G1, WHOLE)


def test_ids_of_older_formats_are_placed_by_their_token() -> None:
    """In an id older than version 1 only the first 8 bytes have a meaning."""
    raw = bytes.fromhex("ced0000000000000ffffffffffffffff")
    tables = {V1: [{"time": time(G1), "streams": {raw}, "expired": None}], LOCAL: []}
    metadata = VnodeStreams(FakeSession(tables))
    assert [list(metadata.streams(G1, lane_range(lane, 2))) for lane in range(2)] == [[StreamId(raw)], []]


def test_consistency_matches_the_servers_writes() -> None:
    """QUORUM, ONE on a single node, or as configured."""
    session = FakeSession(v2_rows(ring(G1, 1)))
    assert metadata_consistency(session) == "ONE"
    session.node_count = 3
    VnodeStreams(session).generations()
    assert (V2_TIMES, "QUORUM") in session.asked
    session.settings.metadata_consistency = "ALL"
    assert metadata_consistency(session) == "ALL"


@pytest.mark.parametrize("weak", ["ONE", "LOCAL_ONE"])
def test_one_of_several_replicas_is_never_read_alone(weak: str) -> None:
    """A lagging replica would hide a generation between two that it knows, or some streams of one."""
    session = FakeSession(v2_rows(ring(G1, 1)), settings=SimpleNamespace(metadata_consistency=weak))
    assert metadata_consistency(session) == weak
    session.node_count = 3
    metadata = VnodeStreams(session)
    metadata.generations(), metadata.streams(G1, WHOLE), metadata.count(G1)
    assert {one for name, one in session.asked if name in (V2_TIMES, V2_STREAMS)} == {"QUORUM"}


@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        ({}, VnodeStreams),
        ({KEYSPACES: []}, VnodeStreams),
        ({KEYSPACES: [{"keyspace_name": "ks", "initial_tablets": None}]}, VnodeStreams),
        ({KEYSPACES: [{"keyspace_name": "ks", "initial_tablets": 0}]}, TabletStreams),
    ],
)
def test_keyspace_decides_between_vnodes_and_tablets(tables: dict[str, list[dict[str, Any]]], kind: type) -> None:
    """A number of initial tablets, 0 included, means tablets; older servers do not have the table."""
    assert type(stream_metadata(FakeSession(tables), "ks", "t")) is kind


def test_streams_are_counted() -> None:
    """All streams of a generation, from either table; 0 if the node does not know it yet."""
    made = ring(G1, 1)
    for tables in (v2_rows(made), {V1: v1_rows(made), LOCAL: []}):
        metadata = VnodeStreams(FakeSession(tables))
        assert metadata.count(G1) == 21 == len(metadata.streams(G1, WHOLE))
        assert metadata.count(G2) == 0


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_key_ranges_of_a_lane(lanes: int, shards: int) -> None:
    """Of a lane's streams only the mapped one holds a key, even if the lane has only a part of the ring."""
    made = ring(G1, 4, shards)
    metadata = VnodeStreams(FakeSession(v2_rows(made)))
    random = Random(5)
    for lane in range(lanes):
        slice_ = lane_range(lane, lanes)
        streams, ranges = metadata.streams(G1, slice_), metadata.key_ranges(G1, slice_)
        assert streams.keys() <= ranges.keys()
        for token in [Token(random.getrandbits(64) - (1 << 63)) for _ in range(50)]:
            mapped = made.stream_for(token)
            for one in streams:
                assert ranges[one].holds(one, token) == (one.token == mapped.token)
    assert not VnodeStreams(FakeSession({V1: v1_rows(made), LOCAL: []})).key_ranges(G1, WHOLE)


def test_servers_before_tablets_have_the_table_without_the_column() -> None:
    """ScyllaDB 5.2 lists no `initial_tablets`: its keyspaces use vnodes, and nothing asks for that column."""
    row = {"keyspace_name": "ks", "storage_type": "", "storage_options": {}}
    session = FakeSession({KEYSPACES: [row]}, columns={KEYSPACES: list(row)})
    assert type(stream_metadata(session, "ks", "t")) is VnodeStreams


def test_refusals_are_errors() -> None:
    """A missing right does not look like an older release."""

    class Refusing(FakeSession):
        def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> Any:
            if "system_schema.columns" in cql:
                return super().rows(cql, parameters, consistency)
            raise BridgeError("User bridge has no SELECT permission on <table system_schema.scylla_keyspaces>")

    with pytest.raises(BridgeError, match="no SELECT permission"):
        stream_metadata(Refusing({KEYSPACES: []}), "ks", "t")
