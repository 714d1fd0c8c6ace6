"""What a process keeps of a cluster, and what makes it forget."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.document import ScyllaSettings
from bridge.engine.ports import Clocks
from bridge.engine.process.scylla_cache import ScyllaCache
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, PlannedBatch, Role, Selection
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.server_clock import NodeTime
from bridge.publishing.lane_recovery import LaneTask
from schemas.options import DEFAULT_OUTPUT

SETTINGS = ScyllaSettings(contact_points=("a:1",))
OTHER = ScyllaSettings(contact_points=("b:1",))
HOUR_US = 3600 * 10**6
SINCE = Cursor(UnixMillis(1), UnixMicros(1000))
LAYOUT = Layout(2, SINCE)
TASK = LaneTask("ks", "t", 0, PlannedBatch(SINCE, Cursor(UnixMillis(1), UnixMicros(2000)), LAYOUT))


class Cluster:
    """Counts its calls.

    Attributes:
        asked: what was asked, in order.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []

    def connect(self, settings: ScyllaSettings) -> Any:
        address = settings.contact_points[0]
        self.asked.append(f"connect {address}")
        return SimpleNamespace(
            session=SimpleNamespace(close=lambda: self.asked.append(f"close {address}")),
            node_time=self._node_time,
            stream_metadata=self._stream_metadata,
        )

    def capture(self, _log: object, keyspace: str, table: str, _output: object, /) -> Any:
        self.asked.append(f"capture {keyspace}.{table}")
        return SimpleNamespace()

    def _node_time(self) -> NodeTime:
        self.asked.append("time")
        return NodeTime("a", UnixMicros(HOUR_US), {"a"})

    def _stream_metadata(self, keyspace: str, table: str) -> Any:
        self.asked.append(f"metadata of {keyspace}.{table}")

        def streams(generation_ms: UnixMillis, _within: object) -> dict[str, UnixMillis]:
            self.asked.append(f"streams of {generation_ms}")
            return {f"stream of {generation_ms}": generation_ms}

        return SimpleNamespace(streams=streams, key_ranges=streams)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def cache(cluster: Cluster) -> ScyllaCache:
    clocks = Clocks(lambda: 0.0, lambda: UnixMicros(2 * HOUR_US))
    return ScyllaCache(cluster.connect, clocks, cluster.capture)


def selection(generation_ms: int) -> Selection:
    return Selection(UnixMillis(generation_ms), Role.ALL)


def test_servers_are_asked_for_their_time_once_in_a_while(cluster: Cluster, cache: ScyllaCache) -> None:
    """Over the session that the planner has; the answers outlive it."""
    for _ in range(3):
        assert cache.server_time(SETTINGS).ahead_us() == pytest.approx(HOUR_US, abs=10**6)
    cache.drop_cluster(SETTINGS)
    assert cache.server_time(SETTINGS).ahead_us() == pytest.approx(HOUR_US, abs=10**6)
    assert cluster.asked == ["connect a:1", "time", "close a:1"]


def test_each_cluster_has_one_connection(cluster: Cluster, cache: ScyllaCache) -> None:
    """For all tables, until it is dropped."""
    for _ in range(2):
        cache.change_log(SETTINGS)
        cache.change_log(OTHER)
    cache.drop_cluster(SETTINGS)
    cache.drop_cluster(SETTINGS)
    cache.change_log(OTHER)
    cache.change_log(SETTINGS)
    assert cluster.asked == ["connect a:1", "connect b:1", "close a:1", "connect a:1"]


def test_streams_are_asked_for_once_a_generation(cluster: Cluster, cache: ScyllaCache) -> None:
    """A lane is in one generation or between two; older ones are forgotten."""
    for generation in (1, 1, 2, 1, 2, 3, 2):
        cache.lane_streams(SETTINGS, TASK, selection(generation))
    assert cluster.asked[2:] == ["streams of 1", "streams of 2", "streams of 3"]
    cache.lane_streams(SETTINGS, TASK, selection(1))
    assert cluster.asked[5:] == ["streams of 1"]


def test_key_ranges_are_asked_for_once_a_generation(cluster: Cluster, cache: ScyllaCache) -> None:
    """As streams are."""
    for generation in (1, 1, 2, 1, 3, 1):
        cache.lane_key_ranges(SETTINGS, TASK, selection(generation))
    assert cluster.asked[2:] == ["streams of 1", "streams of 2", "streams of 3", "streams of 1"]


def test_metadata_is_forgotten_with_its_table_or_its_cluster(cluster: Cluster, cache: ScyllaCache) -> None:
    """A table that was created again may have tablets in place of vnodes."""
    for table in ("t", "u", "t"):
        cache.stream_metadata(SETTINGS, "ks", table)
    cache.drop_metadata(SETTINGS, "ks", "t")
    cache.drop_metadata(OTHER, "ks", "t")
    for table in ("t", "u"):
        cache.stream_metadata(SETTINGS, "ks", table)
    cache.drop_cluster(SETTINGS)
    cache.table(SETTINGS, "ks", "u").generations()
    assert cluster.asked == [
        "connect a:1",
        "metadata of ks.t",
        "metadata of ks.u",
        "metadata of ks.t",
        "close a:1",
        "connect a:1",
        "metadata of ks.u",
    ]


def test_captured_table_is_forgotten_with_its_cluster(cluster: Cluster, cache: ScyllaCache) -> None:
    """Also when another capture is wanted."""
    for fingerprint in ("one", "one", "two"):
        cache.captured_table(SETTINGS, "ks", "t", DEFAULT_OUTPUT, fingerprint)
    cache.recaptured_table(SETTINGS, "ks", "t", DEFAULT_OUTPUT, "two")
    assert cluster.asked == ["connect a:1", *["capture ks.t"] * 3]
    cache.drop_cluster(SETTINGS)
    cache.captured_table(SETTINGS, "ks", "t", DEFAULT_OUTPUT, "two")
    assert cluster.asked[4:] == ["close a:1", "connect a:1", "capture ks.t"]


def test_planner_reaches_its_table_over_the_process_connection(cluster: Cluster, cache: ScyllaCache) -> None:
    """And closes it at its end."""
    table = cache.table(SETTINGS, "ks", "t")
    assert table.server_time is cache.server_time(SETTINGS)
    table.generations()
    table.forget_streams()
    table.generations()
    table.disconnect()
    assert cluster.asked == ["connect a:1", "metadata of ks.t", "metadata of ks.t", "close a:1"]
