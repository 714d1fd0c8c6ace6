"""A task from its lane's changes to its report, over a broker in memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bridge.encoding.group_encoder import EncodedChange
from bridge.engine import lane_task, process_cache
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.engine.planner import Planner
from bridge.engine.write_lane import LaneOutput
from bridge.errors import BridgeError, FencedError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, canonical_json
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Window
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.monitoring.counters import LaneFigures, Store
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.partition_counts import PartitionCounts
from bridge.publishing.protocol import LaneTask
from bridge.reading.schema_change import Changes
from bridge.reading.table_capture import Schemas
from spark.source.stream_reader import LanePartition, ScyllaCdcStreamReader
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.engine.planner_fakes import Cluster, offset_of
from tests.unit.bridge.engine.planner_fakes import config as source_config
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.spark.job.test_supervisor import config_of

G = UnixMillis(5)
NEXT = Cursor(G, UnixMicros(9_000))
BATCH = PlannedBatch(Cursor(G, UnixMicros(6_000)), NEXT, Layout(2, Cursor.at_start_of(G)))
TASK = LaneTask("ks", "t", 1, BATCH)
JOB = config_of("ks.t", publishing={"dead_letter_topic": "dead"})


class Lane:
    """A lane whose changes are known; reading it may fail, or not end by itself."""

    def __init__(self, fails: BaseException | None = None) -> None:
        self.task = TASK
        self.reads = 0
        self.parts: Sequence[tuple[int, Part]] = ()
        self._fails = fails

    def runs(self, parts: Sequence[tuple[int, Part]]) -> Iterator[tuple[int, Schemas, Changes]]:
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


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker(markers={1: LaneProgress(1, BATCH.layout, BATCH.start, owner="me").to_bytes()})
    kept: dict[object, LanePublisher] = {}
    tally = Store()

    def publisher(_config: object, *place: Any) -> LanePublisher:
        owner = place[-1]
        if owner not in kept:
            kept[owner] = LanePublisher(
                lambda: Client(made, "id"),
                lambda: made.markers.get(1),
                progress_topic=PROGRESS,
                owner=owner,
                most_records=100,
                most_bytes=10**9,
                count=lambda figures: tally.add("ks.t", 1, figures),
            )
        return kept[owner]

    def drop(*_: object) -> None:
        for one in kept.values():
            one.close()
        kept.clear()

    monkeypatch.setattr(process_cache, "publisher", publisher)
    monkeypatch.setattr(process_cache, "drop_publisher", drop)
    monkeypatch.setattr(LaneOutput, "_header", lambda _self, _part, schema: schema.encode())
    monkeypatch.setattr(lane_task, "tally", tally)
    return made


def publish(lane: Any, owner: str = "me") -> Any:
    return publish_lane(Publishing(JOB, owner), lane)


def test_a_lane_is_committed_when_its_report_is_there(broker: Broker) -> None:
    """Its records, its cursor, and in the report how many and why there were dead letters."""
    report = publish(Lane())
    assert broker.committed == {
        "ks.t": [(b"k:a", b"v:1"), (b"k:b", b"v:2"), (b"k:c", b"w:3")],
        "dead": [(None, b'{"error": "torn"}')],
    }
    assert LaneProgress.from_bytes(broker.markers[1]).cursor == NEXT
    assert (report.table, report.lane, report.cursor, report.poison) == ("ks.t", 1, NEXT, "torn")
    ((table, number, figures),) = report.counted
    assert (table, number, figures.changes, figures.dead_letters, figures.transactions) == ("ks.t", 1, 3, 1, 1)


def test_what_is_committed_is_not_read_again(broker: Broker) -> None:
    """A lane that was done when others of its micro-batch failed only says so; what it had counted is told again."""
    counted = publish(Lane()).counted
    broker.markers[1] = LaneProgress.completed(1, BATCH).to_bytes().replace(b'"owner":""', b'"owner":"next"')
    again, before = Lane(), broker.transactions
    report = publish(again, "next")
    assert (again.reads, broker.transactions) == (0, before)
    assert (report.cursor, report.poison) == (NEXT, None)
    assert [(table, lane, figures.changes) for table, lane, figures in report.counted] == [
        (table, lane, figures.changes) for table, lane, figures in counted
    ]


def test_attempt_after_a_failed_one_reads_from_what_is_published_on(broker: Broker) -> None:
    """Or a micro-batch that fails ever and again would read all of its window each time, only to pass over it."""
    lane = Lane()
    publish(lane)
    assert lane.parts == list(enumerate(BATCH.parts))
    cut = LanePosition(0, GroupPosition.of(bytes(16), timeuuid_of(UnixMicros(7_000), bytes(8))))
    broker.markers[1] = LaneProgress.inside(1, BATCH, cut).to_bytes().replace(b'"owner":""', b'"owner":"next"')
    again = Lane()
    publish(again, "next")
    assert again.parts == [(0, Part(BATCH.parts[0].selection, Window(UnixMicros(7_000), NEXT.time_us)))]


@pytest.mark.parametrize("failure", [BridgeError("no"), KeyboardInterrupt(), GeneratorExit()], ids=type)
def test_whatever_ends_a_task_lets_the_id_go(broker: Broker, failure: BaseException) -> None:
    """What was queued is aborted, and the next attempt asks Kafka how far it got."""
    with pytest.raises(type(failure)):
        publish(Lane(failure))
    assert broker.committed == {}
    assert publish(Lane()).counted[0][2].aborts == 1
    assert len(broker.committed["ks.t"]) == 3


def test_lanes_that_were_taken_over_are_counted(broker: Broker) -> None:
    """Nothing is published for an owner that Kafka does not name."""
    with pytest.raises(FencedError, match="taken it over"):
        publish(Lane(), "another")
    assert broker.committed == {}
    assert lane_task.tally.take() == [("ks.t", 1, LaneFigures(fencings=1))]


def test_a_task_yields_its_report_alone(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is handed to Spark before everything is committed."""
    monkeypatch.setattr("spark.source.stream_reader.LaneChanges", lambda *_: Lane())
    planner = Planner(source_config(), None, Cluster())
    reader = ScyllaCdcStreamReader(source_config(), planner, Publishing(JOB, "me"))
    (batch,) = reader.read(LanePartition("ks", "t", 1, canonical_json(offset_of(BATCH).to_json())))
    assert broker.transactions == 1
    assert batch.schema.names == ["report"]
    assert batch.num_rows == 1


def test_line_of_a_lane_that_was_taken_over_names_it_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the lane itself, for those who read it elsewhere."""
    with pytest.raises(FencedError, match=re.escape(f"{TASK}: ")):
        publish(Lane(), "another")
    (line,) = caplog.messages
    assert line.startswith(f"{TASK}: another job named alike")
    assert broker.committed == {}


def test_failed_attempt_is_told_at_once(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    """Spark tries again, and says why only when it has given up."""
    with pytest.raises(RetriableError):
        publish(Lane(RetriableError("Kafka is away")))
    assert caplog.messages == [f"{TASK}: Kafka is away"]
    assert "ks.t" not in broker.committed


def test_topic_that_is_gone_is_not_waited_for_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt after a failed one looks first whether there is a topic: the producer would wait half a minute."""
    asked: list[str] = []

    def partitions(topic: str) -> int:
        asked.append(topic)
        return 0

    monkeypatch.setattr(process_cache, "is_retry", lambda: True)
    monkeypatch.setattr(process_cache, "topic_sizes", lambda _config: PartitionCounts(partitions))
    lane = Lane()
    with pytest.raises(RetriableError, match=r"^topic ks\.t does not exist; was it deleted\?$"):
        publish(lane)
    assert (asked, lane.reads, broker.transactions) == (["ks.t"], 0, 0)
