"""Streams as each of ScyllaDB's metadata tables describes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters.scylla.stream_metadata import (
    TabletStreams,
    VnodeStreams,
    metadata_consistency,
    select,
    stream_metadata,
)
from bridge.errors import BridgeError, RetriableError
from bridge.model.micro_batch import Role, Selection
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, lane_range
from bridge.model.times import UnixMillis
from bridge.planning.micro_batches import GenerationStart
from sandbox.scylla.cluster.topology import Ring, StreamMap

WHOLE = lane_range(0, 1)
G1, G2, G3 = UnixMillis(1000), UnixMillis(2000), UnixMillis(3000)
V2_TIMES, V2_STREAMS = "system_distributed.cdc_generation_timestamps", "system_distributed.cdc_streams_descriptions_v2"
V1, LOCAL, KEYSPACES = (
    "system_distributed.cdc_streams_descriptions", "system.cdc_local", "system_schema.scylla_keyspaces",
)  # fmt: skip
TABLET_TIMES, TABLET_STREAMS = "system.cdc_timestamps", "system.cdc_streams"
COLUMNS = {KEYSPACES: ["keyspace_name", "initial_tablets"], V1: ["time", "streams"], LOCAL: ["key"], V2_TIMES: ["time"]}
"""Columns of the tables whose existence depends on the release."""


@dataclass
class FakeSession:
    """Tables as lists of rows; supports only the forms of SELECT that the module uses."""

    tables: dict[str, list[dict[str, Any]]]
    node_count: int = 1
    address: str = "test:1"
    settings: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(metadata_consistency=None))
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    columns: dict[str, list[str]] = field(default_factory=lambda: COLUMNS)

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        words = cql.split()
        name = words[words.index("FROM") + 1]
        columns = cql.removeprefix("SELECT ").split(" FROM ")[0].split(",")
        self.asked.append((name, consistency))
        if name == "system_schema.columns":
            wanted = cql.split("'")[1] + "." + cql.split("'")[3]
            return [{"column_name": column} for column in self.columns[wanted] if wanted in self.tables]
        assert name in self.tables, f"ScyllaDB would refuse {cql}: unconfigured table {name}"
        found, values = self.tables[name], iter(parameters)
        where = cql.split(" WHERE ")[1].split(" LIMIT ")[0] if " WHERE " in cql else ""
        for condition in filter(None, where.split(" AND ")):
            column, operator, literal = condition.split()
            value: Any = next(values) if literal == "?" else literal.strip("'")
            found = [row for row in found if _holds(_plain(row[column]), operator, value)]
        if column_order := {"range_end"} & (found[0].keys() if found else set()):
            found = sorted(found, key=lambda row: row[min(column_order)])
        found = found[: int(cql.split(" LIMIT ")[1])] if " LIMIT " in cql else found
        return [{column.strip(): row[column.strip()] for column in columns} for row in found]

    def cells(
        self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None
    ) -> Iterator[tuple[bytes | None, ...]]:
        """The count of each set of streams; None for other columns."""
        for row in self.rows(cql, parameters, consistency):
            yield tuple(
                len(cell).to_bytes(4, "big") if name == "streams" and cell else None for name, cell in row.items()
            )


def _plain(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _holds(cell: Any, operator: str, value: Any) -> bool:
    return {"=": cell == value, ">": cell > value, "<=": cell <= value}[operator] if operator != "=" else cell == value


def time(start_ms: int) -> datetime:
    return datetime.fromtimestamp(start_ms / 1000, UTC).replace(tzinfo=None)


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


def test_upgrade_is_noticed_once() -> None:
    """The old table is used until a node has the mark `rewritten`; later answers without the mark change nothing."""
    tables = {V1: v1_rows(ring(G1, 1)), LOCAL: [{"key": "cdc_local"}], **v2_rows(ring(G2, 2))}
    session = FakeSession(tables)
    metadata = VnodeStreams(session)
    assert metadata.generations() == [GenerationStart(G1)]
    tables.update(v2_rows(ring(G1, 1), ring(G2, 2)))
    assert metadata.generations() == [GenerationStart(G1)]
    tables[LOCAL].append({"key": "rewritten"})
    assert metadata.generations() == [GenerationStart(G1), GenerationStart(G2)]
    tables[LOCAL].clear()
    assert metadata.generations() == [GenerationStart(G1), GenerationStart(G2)]
    assert len(metadata.streams(G2, WHOLE)) == 21


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


def test_generations_in_the_newer_table_alone_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Once each, until the cluster has copied the older table; then they are used, from their start."""
    tables = {V1: v1_rows(ring(G1, 1)), LOCAL: [{"key": "cdc_local"}], **v2_rows(ring(G1, 1))}
    metadata = VnodeStreams(FakeSession(tables))
    assert metadata.generations() == [GenerationStart(G1)]
    assert not caplog.messages
    tables.update(v2_rows(ring(G1, 1), ring(G2, 2)))
    for _ in range(2):
        assert metadata.generations() == [GenerationStart(G1)]
    (words,) = caplog.messages
    assert "generation of 1970-01-01T00:00:02.000Z" in words
    assert "cdc_dont_rewrite_streams" in words
    tables[LOCAL].append({"key": "rewritten"})
    assert metadata.generations() == [GenerationStart(G1), GenerationStart(G2)]
    assert len(caplog.messages) == 1


def stream(token: int, number: int = 0) -> StreamId:
    return StreamId.build(Token(token), 0, number)


def tablet_rows(*sets: tuple[UnixMillis, set[StreamId], set[StreamId]]) -> dict[str, list[dict[str, Any]]]:
    """The rows of stream sets, given their current and their opened streams."""
    name = {"keyspace_name": "ks", "table_name": "t"}
    return {
        TABLET_TIMES: [name | {"timestamp": time(start)} for start, _, _ in reversed(sets)],
        TABLET_STREAMS: [
            name | {"timestamp": time(start), "stream_state": state, "stream_id": one.raw}
            for start, current, opened in sets
            for state, streams in ((0, current), (2, opened))
            for one in streams
        ],
    }


A, B, B1, B2 = stream(-5), stream(5), stream(2, 1), stream(5, 1)
FIRST = (G1, {A, B}, {A, B})
SPLIT = (G2, {A, B1, B2}, {B1, B2})
REPLACED = (G3, {stream(5, 2)}, {stream(5, 2)})


def tablets(session: FakeSession) -> TabletStreams:
    return TabletStreams(session, "ks", "t")


def test_kept_streams_of_tablets_are_recognized() -> None:
    """A change that keeps some streams is distinguished from one that replaces all."""
    session = FakeSession(tablet_rows(FIRST, SPLIT, REPLACED))
    metadata = tablets(session)
    expected = [GenerationStart(G1), GenerationStart(G2, replaces_all=False), GenerationStart(G3)]
    assert metadata.generations() == expected
    assert TabletStreams(session, "ks", "other").generations() == []
    asked = len(session.asked)
    assert metadata.generations() == expected
    assert len(session.asked) == asked + 1  # known sets are not read again


def test_streams_have_the_set_that_opened_them() -> None:
    """So the generation of a change does not depend on when it is read."""
    metadata = tablets(FakeSession(tablet_rows(FIRST, SPLIT)))
    here, before = metadata.streams(G2, WHOLE), metadata.streams(G1, WHOLE)
    assert here == {A: G1, B1: G2, B2: G2}
    assert metadata.streams(G2, lane_range(0, 2)) == {A: G1}
    assert select(Selection(G2), here, {}) == here
    assert select(Selection(G2, Role.KEPT, G1), here, before) == {A: G1}
    assert select(Selection(G2, Role.OPENED, G1), here, before) == {B1: G2, B2: G2}
    assert select(Selection(G2, Role.CLOSED, G1), here, before) == {B: G1}


def test_answer_of_a_lagging_node_is_ignored() -> None:
    """The node may not know the newest set, or know its time but not its streams."""
    session = FakeSession(tablet_rows(FIRST, SPLIT))
    metadata = tablets(session)
    both = metadata.generations()
    session.tables = tablet_rows(FIRST)
    assert metadata.generations() == both
    session.tables = {TABLET_TIMES: tablet_rows(FIRST, SPLIT, REPLACED)[TABLET_TIMES], TABLET_STREAMS: []}
    assert metadata.generations() == both
    with pytest.raises(RetriableError, match=r"ks\.t: the streams of 2000 are not known"):
        metadata.streams(G2, WHOLE)
    session.tables = tablet_rows(FIRST, SPLIT, REPLACED)
    assert [one.start_ms for one in metadata.generations()] == [G1, G2, G3]


def test_set_is_not_used_before_its_predecessor() -> None:
    """A node may know the newest set, but of the set before it only the time; that one must not be skipped."""
    whole = tablet_rows(FIRST, SPLIT, REPLACED)
    session = FakeSession(
        whole | {TABLET_STREAMS: [row for row in whole[TABLET_STREAMS] if row["timestamp"] != time(G2)]}
    )
    metadata = tablets(session)
    assert [one.start_ms for one in metadata.generations()] == [G1]
    session.tables = whole
    assert [one.start_ms for one in metadata.generations()] == [G1, G2, G3]


def test_deleted_sets_vanish() -> None:
    """All streams of the oldest remaining set count as opened by it."""
    session = FakeSession(tablet_rows(FIRST, SPLIT, REPLACED))
    metadata = tablets(session)
    metadata.generations()
    session.tables = tablet_rows((G2, SPLIT[1], SPLIT[1]), REPLACED)
    assert [one.start_ms for one in metadata.generations()] == [G2, G3]
    assert metadata.streams(G2, WHOLE) == dict.fromkeys(sorted(SPLIT[1]), G2)


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
    split = tablets(FakeSession(tablet_rows(FIRST, SPLIT)))
    assert [split.count(one) for one in (G1, G2, G3)] == [2, 3, 0]


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


def test_key_ranges_of_tablets() -> None:
    """The keys up to the stream's own token; a kept stream has the same range in each set."""
    last = stream(MAX_TOKEN)
    metadata = tablets(FakeSession(tablet_rows((G1, {A, B, last}, {A, B, last}), (G2, {A, B1, B2, last}, {B1, B2}))))
    for generation, one, after, until in ((G1, A, None, -5), (G2, A, None, -5), (G1, B, -5, 5), (G2, B2, 2, 5)):
        range_ = metadata.key_ranges(generation, WHOLE)[one]
        assert range_.holds(one, Token(until))
        assert not range_.holds(one, Token(until + 1))
        assert range_.holds(one, Token(MIN_TOKEN + 1 if after is None else after + 1))
        assert not range_.holds(one, Token(MAX_TOKEN if after is None else after))


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
