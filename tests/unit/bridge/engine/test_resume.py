"""Attempts that go on where a failed one was cut: from pages to a broker in memory, whatever the rows and the path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any

import pytest

from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.engine import process_cache
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.engine.read_lane import LaneChanges
from bridge.engine.write_lane import LaneOutput
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Layout, PlannedBatch, Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, sort_key
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.protocol import LaneTask
from bridge.reading.table_capture import CapturedTable
from sandbox.scylla.log.images import ImageOptions
from schemas.compiled import page_encoder
from schemas.table_codec import TableCodec
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.bridge.log_pages import RawLog
from tests.unit.bridge.reading.test_fast_path import GENERATION_MS, OPENED, START_US, damaged, layout_of, written
from tests.unit.schemas.example_tables import log_columns, table
from tests.unit.spark.job.test_supervisor import config_of

TABLE = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "w": "int"})
LAYOUT = Layout(1, Cursor(GENERATION_MS, UnixMicros(START_US)))
END_US = UnixMicros(START_US + 10**12)
WITHIN = PlannedBatch(LAYOUT.since, Cursor(GENERATION_MS, END_US), LAYOUT)
CLOSING = PlannedBatch(LAYOUT.since, Cursor(UnixMillis(GENERATION_MS + 500), END_US), LAYOUT)
JOB = config_of("ks.t", publishing={"dead_letter_topic": "dead"})


class DiedError(Exception):
    """The attempt's process, as far as Kafka can tell."""


class Log(RawLog):
    """Gives what lies in the window."""

    def __init__(self, layout: LogLayout, rows: Mapping[StreamId, Sequence[Cells]], page_rows: int) -> None:
        super().__init__(layout, rows, page_rows)
        self.layout, self.whole, self.size = layout, rows, page_rows

    def page(self, stream: StreamId, window: Window, **request: Any) -> Future[Page]:
        lower, upper = sort_key(window.lower_timeuuid), sort_key(window.upper_timeuuid or b"\x0f" * 16)
        rows = [row for row in self.whole[stream] if lower <= sort_key(row[1] or b"") < upper]
        return RawLog(self.layout, {stream: rows}, self.size).page(stream, window, **request)


class Producer(Client):
    """Dies at a record; what is committed has its position, too."""

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


def published(
    patch: pytest.MonkeyPatch, log: Log, settings: SourceConfig, batch: PlannedBatch, most: int, deaths: list[int]
) -> Broker:
    """What is committed after so many attempts that die at a record and one that does not."""
    broker = Broker(markers={0: LaneProgress(0, LAYOUT, batch.start, owner="me").to_bytes()})
    captured = CapturedTable(
        TABLE,
        log,
        log.layout,
        TableCodec(TABLE, log_columns(TABLE), settings.output_options),  # type: ignore[arg-type]
    )
    streams = {StreamId(raw): opened for raw, opened in OPENED.items()}
    first = min(streams)

    def of_part(_scylla: object, _task: object, selection: Any) -> dict[StreamId, UnixMillis]:
        if batch is WITHIN:
            return streams
        return {one: opened for one, opened in streams.items() if (one == first) == (selection.role == "closed")}

    patch.setattr(process_cache, "captured_table", lambda *_: captured)
    patch.setattr(process_cache, "lane_streams", of_part)
    patch.setattr(process_cache, "drop_publisher", lambda *_: None)
    patch.setattr(
        process_cache,
        "publisher",
        lambda *_: LanePublisher(
            lambda: Producer(broker, "id"),
            lambda: broker.markers[0],
            progress_topic=PROGRESS,
            owner="me",
            most_records=most,
            most_bytes=10**9,
        ),
    )
    for death in (*deaths, None):
        Producer.lives_for = death
        try:
            publish_lane(Publishing(JOB, "me"), LaneChanges(settings, LaneTask("ks", "t", 0, batch), ""))
        except DiedError:
            continue
        break
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == batch.next
    return broker


@pytest.mark.parametrize("batch", [WITHIN, CLOSING], ids=["one part", "two parts"])
@pytest.mark.parametrize("deduplicate", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_attempts_that_go_on_publish_what_one_would_have(
    monkeypatch: pytest.MonkeyPatch, batch: PlannedBatch, deduplicate: bool, seed: int
) -> None:
    """The same records in the same order, each once: equal times, groups of many rows, and poison included."""
    monkeypatch.setattr(page_encoder, "ROWS_BEFORE_COMPILING", 1)
    monkeypatch.setattr(LaneOutput, "_header", lambda _self, _part, schema: b"")
    monkeypatch.setattr(LaneOutput, "_partition", lambda _self, placement: placement % 3)
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
    at_once = published(monkeypatch, log, settings, batch, most, []).committed
    deaths = [random.randrange(1, 40) for _ in range(6)]
    assert published(monkeypatch, log, settings, batch, most, deaths).committed == at_once
    assert sum(map(len, at_once.values())) > 10
