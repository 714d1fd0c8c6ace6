"""The planner's side of the source, without Spark: what it makes of Kafka's word, of the metadata, and of gaps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bridge.config import ScyllaSettings, SourceConfig
from bridge.errors import DataLossError, RetriableError
from bridge.model.cursors import Cursor, Layout, PlannedBatch, StreamOffset
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning import GenerationStart
from bridge.publishing import TableStart
from spark import stream_reader, worker
from spark.stream_reader import ScyllaCdcStreamReader

SECOND = 1_000_000
G1, G2, G3 = UnixMillis(1_000_000), UnixMillis(1_060_000), UnixMillis(1_120_000)


def at(generation: UnixMillis, seconds: float) -> Cursor:
    return Cursor(generation, UnixMicros(generation * 1000 + int(seconds * SECOND)))


LAYOUT = Layout(2, at(G1, 0))
LIMIT = ReadAllAvailable()


@dataclass
class Cluster:
    """What the planner is told."""

    starts: list[UnixMillis] = field(default_factory=lambda: [G1, G2])
    now_us: int = at(G1, 30).time_us
    oldest_us: int | None = None
    may_lag: bool = False

    def generations(self) -> list[GenerationStart]:
        return [GenerationStart(start) for start in self.starts]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(worker, "stream_metadata", lambda *_: made)
    monkeypatch.setattr(stream_reader, "oldest_us", lambda _: made.oldest_us)
    monkeypatch.setattr(stream_reader, "_now_us", lambda: made.now_us)
    monkeypatch.setattr(stream_reader, "_GENERATIONS_EVERY_S", 0)
    monkeypatch.setattr(stream_reader, "_EDGE_EVERY_S", 0)
    return made


def reader(start: TableStart | None, **reading: Any) -> ScyllaCdcStreamReader:
    config = SourceConfig.model_validate(
        {"scylla": ScyllaSettings(contact_points=("a:1",)), "table": "ks.t", "reading": reading, "lanes": 2}
    )
    return ScyllaCdcStreamReader(config, start, control=True)


def offset(batch: PlannedBatch, turn: int = 5) -> dict[str, Any]:
    return StreamOffset(batch.next, batch, turn).to_json()


def test_planning_begins_where_kafka_says(cluster: Cluster) -> None:
    """Without a checkpoint, and with one that ends elsewhere."""
    planner = reader(TableStart(LAYOUT, at(G1, 10)))
    first = planner.initialOffset()
    assert StreamOffset.from_json(first) == StreamOffset(at(G1, 10), None)
    elsewhere = offset(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT))
    for start in (first, elsewhere):
        planned = StreamOffset.from_json(reader(TableStart(LAYOUT, at(G1, 10))).latestOffset(start, LIMIT))
        assert planned.batch == PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)
    end = planner.latestOffset(first, LIMIT)
    assert [partition.lane for partition in planner.partitions(first, end)] == [0, 1]
    assert planner.latestOffset(end, LIMIT) == end


def test_checkpoint_that_kafka_does_not_bear_out_is_passed_over(cluster: Cluster) -> None:
    """Its micro-batch has no partitions; the interrupted one comes next, and when settling nothing more."""
    interrupted = PlannedBatch(at(G1, 10), at(G1, 15), LAYOUT)
    other = offset(PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT))
    planner = reader(TableStart(LAYOUT, at(G1, 10), interrupted, settle=True))
    assert planner.partitions({}, other) == []
    planned = planner.latestOffset(other, LIMIT)
    assert StreamOffset.from_json(planned).batch == interrupted
    assert len(planner.partitions(other, planned)) == 2
    assert planner.latestOffset(planned, LIMIT) == planned


def test_falling_behind_the_ttl_stops_the_table(cluster: Cluster) -> None:
    """Unless it was begun at that very edge, or the loss is accepted."""
    cluster.oldest_us = at(G1, 12).time_us
    level = TableStart(LAYOUT, at(G1, 10))
    somewhere = offset(PlannedBatch(at(G1, 0), at(G1, 10), LAYOUT))
    with pytest.raises(DataLossError, match=r"ks\.t: the log's TTL has passed: changes written between 1970"):
        reader(level).latestOffset(somewhere, LIMIT)
    assert reader(level, accept_data_loss=True).latestOffset(somewhere, LIMIT) != somewhere
    begun = reader(level)
    start = begun.initialOffset()
    end = begun.latestOffset(start, LIMIT)
    assert end != start
    cluster.now_us += 5 * SECOND
    end = begun.latestOffset(end, LIMIT)
    cluster.oldest_us = at(G1, 60).time_us
    with pytest.raises(DataLossError, match="TTL has passed"):
        begun.latestOffset(end, LIMIT)


def test_forgotten_streams_stop_the_table(cluster: Cluster) -> None:
    """With accepted loss it starts anew, for only a start can move the lanes; a lagging node is asked again."""
    level = TableStart(LAYOUT, at(G1, 10))
    start = StreamOffset(at(G1, 10), None).to_json()
    cluster.starts = [G2]
    with pytest.raises(DataLossError, match="are forgotten"):
        reader(level).latestOffset(start, LIMIT)
    with pytest.raises(RetriableError, match="starts anew and goes on"):
        reader(level, accept_data_loss=True).latestOffset(start, LIMIT)
    beyond = TableStart(LAYOUT, at(G3, 10))
    with pytest.raises(DataLossError, match="another cluster"):
        reader(beyond).latestOffset(start, LIMIT)
    cluster.may_lag = True
    with pytest.raises(RetriableError, match="lags behind"):
        reader(beyond).latestOffset(start, LIMIT)


def test_generation_out_of_order_stops_the_table(cluster: Cluster) -> None:
    """It would be skipped in silence else."""
    cluster.starts, cluster.now_us = [G1, G3], at(G3, 30).time_us
    planner = reader(TableStart(LAYOUT, at(G3, 0)))
    end = planner.latestOffset(planner.initialOffset(), LIMIT)
    cluster.starts = [G1, G2, G3]
    with pytest.raises(DataLossError, match=f"generation {G2} was published after"):
        planner.latestOffset(end, LIMIT)
