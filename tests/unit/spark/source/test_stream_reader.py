"""The translation between Spark's calls and the planner."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from bridge.engine.lane_task import Publishing
from bridge.model.kept_formats import LaneProgress, StreamOffset, canonical_json
from bridge.model.log_rows import LogLayout
from bridge.model.micro_batch import PlannedBatch
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.table_start import TableStart
from bridge.reading.table_capture import CapturedTable
from schemas.table_codec import TableCodec
from spark.source.stream_reader import LanePartition, ScyllaCdcStreamReader, read_partition
from tests.unit.bridge.engine.planner_fakes import G1, LAYOUT, Cluster, at, config, offset_of, planner_of
from tests.unit.bridge.engine.test_lane_task import JOB, Process
from tests.unit.bridge.log_pages import RawLog
from tests.unit.schemas.example_tables import log_columns, table

LIMIT = ReadAllAvailable()
BATCH = PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)
START = TableStart(LAYOUT, at(G1, 10))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def reader(cluster: Cluster, start: TableStart | None = START) -> ScyllaCdcStreamReader:
    return ScyllaCdcStreamReader(config(), planner_of(cluster, start))


def as_spark(offset: StreamOffset) -> dict[str, Any]:
    """An offset as Spark hands it over: a dict of its JSON text."""
    plain: dict[str, Any] = json.loads(canonical_json(offset.to_json()))
    return plain


def test_offsets_are_dicts_in_canonical_order(cluster: Cluster) -> None:
    """Spark writes them as JSON in their own order, and takes another order for another offset."""
    streaming = reader(cluster)
    first = streaming.initialOffset()
    end = streaming.latestOffset(first, LIMIT)
    for found in (first, end):
        offset = StreamOffset.from_json(found)
        assert json.dumps(found, separators=(",", ":")) == canonical_json(offset.to_json())
    assert StreamOffset.from_json(first) == StreamOffset(at(G1, 10), None)
    assert StreamOffset.from_json(end).batch == PlannedBatch(at(G1, 10), at(G1, 20), LAYOUT)


def test_nothing_to_read_is_the_offset_that_spark_gave(cluster: Cluster) -> None:
    """Spark then starts no micro-batch."""
    streaming = reader(cluster)
    end = streaming.latestOffset(streaming.initialOffset(), LIMIT)
    assert streaming.latestOffset(end, LIMIT) is end


def test_each_lane_is_a_partition(cluster: Cluster) -> None:
    """It carries the micro-batch to the task, and the planner's view of the table."""
    streaming = reader(cluster)
    first = streaming.initialOffset()
    end = streaming.latestOffset(first, LIMIT)
    batch = StreamOffset.from_json(end).batch
    assert batch is not None
    partitions = streaming.partitions(first, end)
    assert [one.task for one in partitions] == [LaneTask("ks", "t", lane, batch) for lane in (0, 1)]
    assert partitions[0] == LanePartition("ks", "t", 0, canonical_json(end), streaming._planner.fingerprint)


def test_offset_without_a_micro_batch_has_no_partitions(cluster: Cluster) -> None:
    """An offset that does not advance, and one of a checkpoint that contradicts Kafka's progress, have none either."""
    streaming = reader(cluster)
    first = streaming.initialOffset()
    other = as_spark(offset_of(PlannedBatch(at(G1, 0), at(G1, 7), LAYOUT)))
    end = streaming.latestOffset(first, LIMIT)
    assert streaming.partitions({}, first) == streaming.partitions(end, end) == streaming.partitions({}, other) == []


def test_run_that_ends_stops_at_the_moment_of_its_start(cluster: Cluster) -> None:
    """`availableNow` reads what was readable then."""
    streaming = reader(cluster)
    streaming.prepareForTriggerAvailableNow()
    end = streaming.latestOffset(streaming.initialOffset(), LIMIT)
    cluster.now_us += 10**9
    assert streaming.latestOffset(end, LIMIT) is end


def test_task_that_publishes_yields_its_report_alone() -> None:
    """Spark gets nothing before everything is committed."""
    process = Process()
    batch = offset_of(BATCH)
    progress = LaneProgress(1, LAYOUT, BATCH.start, owner="me")
    process.broker.markers[1] = progress.to_bytes()
    log: Any = SimpleNamespace(captured_table=lambda *_: captured_table(), lane_streams=lambda *_: {})
    cache: Any = SimpleNamespace(scylla=log, kafka=process, is_retry=False)
    partition = LanePartition("ks", "t", 1, canonical_json(batch.to_json()))
    (found,) = read_partition(partition, config(), Publishing(JOB, "me"), cache)
    assert process.broker.transactions == 1
    assert found.schema.names == ["report"]
    assert found.num_rows == 1


def captured_table() -> CapturedTable:
    of = table({"pk": "int"}, {}, {"v": "text"})
    layout = LogLayout.of(log_columns(of), ["pk"])
    return CapturedTable(of, RawLog(layout, {}, 10), layout, TableCodec(of, log_columns(of)))


def test_stop_closes_the_connection(cluster: Cluster) -> None:
    """The planner's own."""
    closed: list[bool] = []
    cluster.disconnect = lambda: closed.append(True)  # type: ignore[method-assign]
    reader(cluster).stop()
    assert closed == [True]


def test_tasks_get_the_reader_without_its_planner(cluster: Cluster) -> None:
    """Spark pickles the reader for them; a planner holds a connection."""
    copy = pickle.loads(pickle.dumps(reader(cluster)))
    assert not hasattr(copy, "_planner")
    assert copy._config == config()
