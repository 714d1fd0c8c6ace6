"""Attempts that go on after a failed one, from pages of random rows to a broker in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.engine.read_lane import LaneChanges
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Layout, PlannedBatch, Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, sort_key
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.partition_counts import PartitionCounts
from bridge.publishing.transaction_size import TransactionSize
from bridge.reading.table_capture import CapturedTable
from sandbox.scylla.log.images import ImageOptions
from schemas.compiled.page_encoder import ROWS_BEFORE_COMPILING
from schemas.table_codec import TableCodec
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.bridge.log_pages import RawLog
from tests.unit.bridge.reading.test_fast_path import GENERATION_MS, OPENED, START_US, damaged, layout_of, written
from tests.unit.schemas.example_tables import log_columns, table
from tests.unit.spark.job.fakes import config_of

TABLE = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "w": "int"})
LAYOUT = Layout(1, Cursor(GENERATION_MS, UnixMicros(START_US)))
END_US = UnixMicros(START_US + 10**12)
WITHIN = PlannedBatch(LAYOUT.since, Cursor(GENERATION_MS, END_US), LAYOUT)
CLOSING = PlannedBatch(LAYOUT.since, Cursor(UnixMillis(GENERATION_MS + 500), END_US), LAYOUT)
JOB = config_of("ks.t", publishing={"dead_letter_topic": "dead"})


class DiedError(Exception):
    """The attempt's process has died."""


class Log(RawLog):
    """A log that gives the rows inside the window."""

    def __init__(self, layout: LogLayout, rows: Mapping[StreamId, Sequence[Cells]], page_rows: int) -> None:
        super().__init__(layout, rows, page_rows)
        self.layout, self.whole, self.size = layout, rows, page_rows

    def page(self, stream: StreamId, window: Window, **request: Any) -> Future[Page]:
        lower, upper = sort_key(window.lower_timeuuid), sort_key(window.upper_timeuuid or b"\x0f" * 16)
        rows = [row for row in self.whole[stream] if lower <= sort_key(row[1] or b"") < upper]
        return RawLog(self.layout, {stream: rows}, self.size).page(stream, window, **request)


class Producer(Client):
    """A producer that dies after so many records. Committed values carry the record's headers."""

    lives_for: int | None = None

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: dict[str, bytes],
        partition: int | None = None,
    ) -> None:
        if Producer.lives_for is not None:
            Producer.lives_for -= 1
            if Producer.lives_for < 0:
                raise DiedError
        if topic != PROGRESS:
            value = b"/".join([value or b"-", *headers.values()])
        super().produce(topic, key, value, {}, partition)


def published(log: Log, settings: SourceConfig, batch: PlannedBatch, most: int, deaths: list[int]) -> Broker:
    """What is committed after attempts that each die after so many records, and one that does not die."""
    broker = Broker(markers={0: LaneProgress(0, LAYOUT, batch.start, owner="me").to_bytes()})
    captured = CapturedTable(
        TABLE,
        log,
        log.layout,
        TableCodec(TABLE, log_columns(TABLE), settings.output_options),  # type: ignore[arg-type]
    )
    # Compile the loop of a form of rows when its first row comes.
    captured.codec.page_encoder._rows_seen = defaultdict(lambda: ROWS_BEFORE_COMPILING - 1)  # type: ignore[assignment]
    streams = {StreamId(raw): opened for raw, opened in OPENED.items()}
    first = min(streams)

    def of_part(_scylla: object, _task: object, selection: Any) -> dict[StreamId, UnixMillis]:
        if batch is WITHIN:
            return streams
        return {one: opened for one, opened in streams.items() if (one == first) == (selection.role == "closed")}

    scylla: Any = SimpleNamespace(captured_table=lambda *_: captured, lane_streams=of_part)
    kafka: Any = SimpleNamespace(
        publisher=lambda *_: LanePublisher(
            lambda: Producer(broker, "id"),
            lambda: broker.markers[0],
            progress_topic=PROGRESS,
            owner="me",
            most_records=most,
            size=TransactionSize(10**9, 60.0),
        ),
        drop_publisher=lambda *_: None,
        partition_counts=lambda _: PartitionCounts(lambda _topic: 3),
        drop_partition_counts=lambda _: None,
    )
    task, publishing = LaneTask("ks", "t", 0, batch), Publishing(JOB, "me")
    for death in (*deaths, None):
        Producer.lives_for = death
        try:
            lane = LaneChanges(settings, task, "", scylla, is_retry=False)
            publish_lane(publishing, lane, kafka, is_retry=False, frame_header=lambda *_: b"")
        except DiedError:
            continue
        break
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == batch.next
    return broker


@pytest.mark.parametrize("batch", [WITHIN, CLOSING], ids=["one part", "two parts"])
@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_interrupted_attempts_publish_what_one_attempt_would(batch: PlannedBatch, deduplicate: bool, seed: int) -> None:
    """Each record once and in the same order, with equal times, groups of many rows, and dead letters among them."""
    random = Random(seed)
    settings = SourceConfig.model_validate(
        {
            "scylla": ScyllaSettings(contact_points=("a:1",)),
            "table": "ks.t",
            "reading": {"integrity": "off", "deduplicate": deduplicate, "on_incomplete_group": "deliver"},
            "lanes": 1,
            "dead_letters": True,
        }
    )
    images = random.choice([ImageOptions("false", False), ImageOptions("full", True)])
    rows = written(TABLE, images, random, 15)
    log = Log(layout_of(TABLE), damaged(rows, random) if seed % 2 else rows, random.choice([1, 5, 500]))
    most = random.choice([1, 3, 10])
    at_once = published(log, settings, batch, most, []).committed
    deaths = [random.randrange(1, 40) for _ in range(6)]
    assert published(log, settings, batch, most, deaths).committed == at_once
    assert sum(map(len, at_once.values())) > 10
