"""Which lane publishers and clients of Kafka a process keeps, and for how long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bridge.config.document import validate
from bridge.engine.ports import Clocks, RunningTask
from bridge.engine.process.kafka_cache import MOST_PUBLISHERS, KafkaCache, KafkaConnections
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.lane_recovery import LaneTask
from tests.unit.bridge.engine.planner_fakes import Clock

CONFIG = validate(
    {
        "name": "job",
        "scylla": {"contact_points": "scylla:9042"},
        "kafka": {"bootstrap_servers": "kafka:9092"},
        "registry": {"url": "http://registry"},
        "tables": ["ks.t"],
        "spark": {"checkpoint": "/checkpoint"},
    }
)
START = Cursor(UnixMillis(5), UnixMicros(6_000))
LAYOUT = Layout(100, START)
BATCH = PlannedBatch(START, Cursor(UnixMillis(5), UnixMicros(9_000)), LAYOUT)


class Process:
    """A process over a Kafka whose clients only count.

    Attributes:
        task: the task that it runs.
        closed: transactional ids of the producers that were closed, in order.
        readers: how many readers of progress were opened and closed.
        limits: how often a client asked for the largest record.
    """

    def __init__(self) -> None:
        self.task: RunningTask | None = None
        self.closed: list[str] = []
        self.readers = [0, 0]
        self.limits = 0
        self.registries: list[Any] = []
        self.clock = Clock()
        connections = KafkaConnections(self._producer, self._reader, self._admin, self._registry)
        clocks = Clocks(monotonic_s=lambda: self.clock.now_s)
        self.cache = KafkaCache(lambda: self.task, connections, clocks)

    def enter_task(self) -> None:
        self.task = RunningTask(0, Path("/executor"))

    def start(self, lane: int) -> None:
        """Open a lane's producer."""
        publisher = self.cache.publisher(CONFIG, "ks", "t", lane, "owner")
        publisher.start(LaneTask("ks", "t", lane, BATCH), fresh=False)

    def _producer(self, _settings: object, name: str, **_: Any) -> Any:
        no_op = SimpleNamespace().__init__  # type: ignore[misc]
        return SimpleNamespace(init=no_op, close=lambda: self.closed.append(name), abort=no_op)

    def _reader(self, _settings: object) -> Any:
        self.readers[0] += 1

        def last_record(_topic: str, lane: int, _timeout_s: float) -> Any:
            return SimpleNamespace(value=LaneProgress(lane, LAYOUT, START, owner="owner").to_bytes())

        def close() -> None:
            self.readers[1] += 1

        return SimpleNamespace(last_record=last_record, close=close)

    def _admin(self, _settings: object) -> Any:
        def record_limit(_topics: object) -> int:
            self.limits += 1
            return 10**6

        return SimpleNamespace(record_limit=record_limit, partitions=lambda _topic: 3)

    def _registry(self, _settings: object, known: object) -> Any:
        self.registries.append(known)
        return SimpleNamespace()


def lane_of(name: str) -> int:
    return int(name.rpartition(".")[2])


def test_tasks_evict_the_least_recently_used_publishers() -> None:
    """Lanes move from process to process. The driver closes the publishers that it opens."""
    process = Process()
    for lane in range(MOST_PUBLISHERS + 1):
        process.start(lane)
    assert process.closed == []
    process.enter_task()
    first = process.cache.publisher(CONFIG, "ks", "t", 0, "owner")
    second = process.cache.publisher(CONFIG, "ks", "t", 3, "owner")
    process.start(MOST_PUBLISHERS + 1)
    assert [lane_of(name) for name in process.closed] == [1, 2]
    assert process.cache.publisher(CONFIG, "ks", "t", 0, "owner") is first
    assert process.cache.publisher(CONFIG, "ks", "t", 3, "owner") is second
    process.start(1)
    assert [lane_of(name) for name in process.closed] == [1, 2, 4]


def test_publisher_of_a_former_owner_is_closed() -> None:
    """When the table's query has started again."""
    process = Process()
    process.start(0)
    before = process.cache.publisher(CONFIG, "ks", "t", 0, "owner")
    assert process.cache.publisher(CONFIG, "ks", "t", 0, "next") is not before
    assert [lane_of(name) for name in process.closed] == [0]


def test_dropped_publisher_is_closed_and_opened_again() -> None:
    """To drop one that is not there changes nothing."""
    process = Process()
    process.start(0)
    before = process.cache.publisher(CONFIG, "ks", "t", 0, "owner")
    for _ in range(2):
        process.cache.drop_publisher(CONFIG, "ks", "t", 0)
        assert [lane_of(name) for name in process.closed] == [0]
    assert process.cache.publisher(CONFIG, "ks", "t", 0, "owner") is not before


def test_tasks_keep_a_reader_of_progress_for_a_minute() -> None:
    """Its password or token is outdated later. Outside tasks each reading has a reader of its own."""
    process = Process()
    for lane in range(2):
        process.start(lane)
    assert process.readers == [2, 2]
    process.enter_task()
    for lane in range(2, 4):
        process.start(lane)
    assert process.readers == [3, 2]
    process.clock.now_s += 60
    process.start(4)
    assert process.readers == [3, 2]
    process.clock.now_s += 1
    process.start(5)
    assert process.readers == [4, 3]


def test_topics_are_asked_for_their_limit_once() -> None:
    """Until the partition counts are dropped: the topics may have been created again."""
    process = Process()
    for lane in range(2):
        process.start(lane)
    assert process.limits == 1
    counts = process.cache.partition_counts(CONFIG)
    assert process.cache.partition_counts(CONFIG) is counts
    process.cache.drop_partition_counts(CONFIG)
    process.start(2)
    assert process.limits == 2
    assert process.cache.partition_counts(CONFIG) is not counts


def test_only_tasks_share_schema_ids() -> None:
    """In the executor's own folder; the driver's process has none."""
    driver, worker = Process(), Process()
    worker.enter_task()
    for process in (driver, worker):
        assert process.cache.registry(CONFIG) is process.cache.registry(CONFIG)
    assert driver.registries == [None]
    ((known,),) = [worker.registries]
    assert known._folder == Path("/executor/.scylla-cdc-bridge-schema-ids")
