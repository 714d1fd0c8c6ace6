"""A task from its lane's changes to its report, over a broker in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from bridge.encoding.group_encoder import EncodedChange
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.errors import BridgeError, FencedError, RetriableError
from bridge.model.counters import LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Window
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.monitoring.counters import CounterStore
from bridge.monitoring.reports import LaneReport
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.partition_counts import PartitionCounts
from bridge.publishing.transaction_size import TransactionSize
from bridge.reading.schema_change import Changes
from bridge.reading.table_capture import Schemas
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.spark.job.fakes import config_of

G = UnixMillis(5)
NEXT = Cursor(G, UnixMicros(9_000))
BATCH = PlannedBatch(Cursor(G, UnixMicros(6_000)), NEXT, Layout(2, Cursor.at_start_of(G)))
TASK = LaneTask("ks", "t", 1, BATCH)
FIRST_PART = {"ks.t": [(b"k:a", b"v:1"), (b"k:b", b"v:2")]}
"""What a lane whose second part fails has committed."""
JOB = config_of("ks.t", publishing={"dead_letter_topic": "dead"})


class Lane:
    """A lane whose changes are known; reading it may fail, or not end by itself."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.task = TASK
        self.reads = 0
        self.parts: Sequence[tuple[int, Part]] = ()
        self._fails = fails

    def runs(
        self, parts: Sequence[tuple[int, Part]], *, while_waiting: Callable[[], None]
    ) -> Iterator[tuple[int, Schemas, Changes]]:
        self.reads += 1
        self.parts = parts
        run = run_of([b"a", b"b"], [b"1", b"2"], [position(1), position(2)])
        yield 0, Schemas("k:", "v:"), iter([run])
        letter = EncodedChange(b"", b'{"error": "torn"}', position(1), True, is_dead_letter=True)
        yield 1, Schemas("k:", "w:"), self._changes([EncodedChange(b"c", b"3", position(0), True), letter])

    def _changes(self, changes: list[EncodedChange]) -> Changes:
        yield from changes
        if self._fails is not None:
            raise self._fails


def position(time_us: int) -> bytes:
    return bytes(16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + bytes(4)


class Process:
    """The cache of a process, over a broker in memory, and its counters."""

    def __init__(self, partitions: Callable[[str], int] = lambda _topic: 4) -> None:
        self.broker = Broker(markers={1: LaneProgress(1, BATCH.layout, BATCH.start, owner="me").to_bytes()})
        self.counters = CounterStore()
        self._kept: dict[str, LanePublisher] = {}
        self._partitions = partitions

    def publisher(self, _config: object, _keyspace: str, _table: str, _lane: int, owner: str) -> LanePublisher:
        if owner not in self._kept:
            self._kept[owner] = LanePublisher(
                lambda: Client(self.broker, "id"),
                lambda: self.broker.markers.get(1),
                progress_topic=PROGRESS,
                owner=owner,
                most_records=100,
                size=TransactionSize(10**9, 60.0),
                count=lambda figures: self.counters.add("ks.t", 1, figures),
            )
        return self._kept[owner]

    def drop_publisher(self, *_: object) -> None:
        for one in self._kept.values():
            one.close()
        self._kept.clear()

    def partition_counts(self, _config: object) -> PartitionCounts:
        return PartitionCounts(self._partitions)

    def drop_partition_counts(self, _config: object) -> None:
        pass

    def publish(self, lane: Any, owner: str = "me", *, is_retry: bool = False) -> LaneReport:
        """Publish a lane; each record is framed with the text of its schema."""
        cache: Any = self
        publishing = Publishing(JOB, owner)
        return publish_lane(
            publishing,
            lane,
            cache,
            is_retry=is_retry,
            frame_header=lambda _topic, _part, schema: schema.encode(),
            counters=self.counters,
        )


@pytest.fixture
def process() -> Process:
    return Process()


def test_lane_is_committed_before_it_is_reported(process: Process) -> None:
    """With its cursor, a transaction for each part. The report counts records, and has the dead letter's reason."""
    report = process.publish(Lane())
    assert process.broker.committed == {
        "ks.t": [(b"k:a", b"v:1"), (b"k:b", b"v:2"), (b"k:c", b"w:3")],
        "dead": [(None, b'{"error": "torn"}')],
    }
    assert LaneProgress.from_bytes(process.broker.markers[1]).cursor == NEXT
    assert (report.table, report.lane, report.cursor, report.dead_letter_reason) == ("ks.t", 1, NEXT, "torn")
    ((table, number, figures),) = report.counted
    assert (table, number, figures.changes, figures.dead_letters, figures.transactions) == ("ks.t", 1, 3, 1, 2)


def test_committed_lane_is_not_read_again(process: Process) -> None:
    """When another lane of its micro-batch failed, a finished lane only repeats its report, with its counts."""
    counted = process.publish(Lane()).counted
    process.broker.markers[1] = LaneProgress.completed(1, BATCH).to_bytes().replace(b'"owner":""', b'"owner":"next"')
    again, before = Lane(), process.broker.transactions
    report = process.publish(again, "next")
    assert (again.reads, process.broker.transactions) == (0, before)
    assert (report.cursor, report.dead_letter_reason) == (NEXT, None)
    assert [(table, lane, figures.changes) for table, lane, figures in report.counted] == [
        (table, lane, figures.changes) for table, lane, figures in counted
    ]


def test_retry_reads_from_the_last_committed_group_on(process: Process) -> None:
    """Otherwise a micro-batch that fails repeatedly would read its whole window each time."""
    lane = Lane()
    process.publish(lane)
    assert lane.parts == list(enumerate(BATCH.parts))
    cut = LanePosition(0, GroupPosition.of(bytes(16), timeuuid_of(UnixMicros(7_000), bytes(8))))
    process.broker.markers[1] = LaneProgress.inside(1, BATCH, cut).to_bytes().replace(b'"owner":""', b'"owner":"next"')
    again = Lane()
    process.publish(again, "next")
    assert again.parts == [(0, Part(BATCH.parts[0].selection, Window(UnixMicros(7_000), NEXT.time_us)))]


@pytest.mark.parametrize("failure", [BridgeError("no"), KeyboardInterrupt(), GeneratorExit()], ids=type)
def test_any_failure_drops_the_publisher(process: Process, failure: BaseException) -> None:
    """Its transaction is aborted, and the next attempt asks Kafka how far it got."""
    with pytest.raises(type(failure)):
        process.publish(Lane(failure))
    assert process.broker.committed == FIRST_PART
    assert process.publish(Lane()).counted[0][2].aborts == 1
    assert len(process.broker.committed["ks.t"]) == 3


def test_lane_of_another_owner_is_counted_as_a_fencing(process: Process) -> None:
    """Nothing is published for an owner that Kafka's progress does not name."""
    with pytest.raises(FencedError, match="taken it over"):
        process.publish(Lane(), "another")
    assert process.broker.committed == {}
    assert process.counters.take() == [("ks.t", 1, LaneCounters(fencings=1))]


def test_log_line_of_a_fenced_lane_names_it_once(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    """The error's own text names the lane, too."""
    with pytest.raises(FencedError, match=re.escape(f"{TASK}: ")):
        process.publish(Lane(), "another")
    (line,) = caplog.messages
    assert line.startswith(f"{TASK}: another job of the same name")
    assert process.broker.committed == {}


def test_failed_attempt_is_logged_at_once(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    """Spark retries, and reports the error only when it gives up."""
    with pytest.raises(RetriableError):
        process.publish(Lane(RetriableError("Kafka is away")))
    assert caplog.messages == [f"{TASK}: Kafka is away"]
    assert process.broker.committed == FIRST_PART


def test_retry_does_not_wait_for_a_deleted_topic() -> None:
    """It asks first whether the topic exists; the producer would wait half a minute for it."""
    asked: list[str] = []

    def partitions(topic: str) -> int:
        asked.append(topic)
        return 0

    process, lane = Process(partitions), Lane()
    with pytest.raises(RetriableError, match=r"^topic ks\.t does not exist; was it deleted\?$"):
        process.publish(lane, is_retry=True)
    assert (asked, lane.reads, process.broker.transactions) == (["ks.t"], 0, 0)
