"""Lanes whose transactions would time out: Kafka takes records slowly, or the log's next page takes long to come."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import BridgeConfig, validate
from bridge.encoding.group_encoder import EncodedRun
from bridge.engine.process.kafka_cache import KafkaCache
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import LogLayout, Page
from bridge.model.micro_batch import Layout, PlannedBatch, Window
from bridge.model.position import sort_key_of
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.reading.lane_merge import read_lane
from sandbox.stack.stack import LocalStack
from tests.integration.support.kafka_quota import producer_quota

pytestmark = pytest.mark.integration

BYTES_PER_S = 200_000
"""The producers' quota."""
EXPIRY_S = 13.0
"""The broker looks every 10 s for transactions that have been open for too long."""

G = UnixMillis(1_000)
FIRST = Cursor(G, UnixMicros(1_000_000))
CLOSING = PlannedBatch(FIRST, Cursor(UnixMillis(2_000), UnixMicros(2_000_000)), Layout(1, FIRST))
"""A micro-batch of two parts."""
TASK = LaneTask("ks", "t", 0, CLOSING)


class Lane:
    """A lane that begins, with the caches of a process of its own."""

    def __init__(self, stack: LocalStack, timeout_ms: int) -> None:
        self.topic = f"slow-{uuid.uuid4().hex[:8]}"
        self.config: BridgeConfig = validate(
            {
                "name": self.topic,
                "scylla": {"contact_points": stack.cql},
                "kafka": {"bootstrap_servers": stack.kafka, "transaction_timeout_ms": timeout_ms},
                "registry": {"url": stack.registry},
                "tables": [{"name": "ks.t", "topic": self.topic}],
            }
        )
        admin = KafkaAdmin(self.config.kafka)
        admin.ensure_topic(self.topic, 4, {})
        admin.ensure_topic(self.config.progress_topic_of(self.config.tables[0]), 1, {"cleanup.policy": "compact"})
        self.cache = KafkaCache(lambda: None)
        self.publisher.write_progress(LaneProgress(0, CLOSING.layout, CLOSING.start), instead_of=None)

    @property
    def publisher(self) -> LanePublisher:
        return self.cache.publisher(self.config, "ks", "t", 0, "me")

    def publish(self, time_us: int, values: list[bytes]) -> None:
        """Publish values, their beginnings as keys."""
        times = [timeuuid_of(UnixMicros(time_us + at), bytes(8)) for at in range(len(values))]
        positions = [bytes(16) + each + bytes(4) for each in times]
        records = [(sort_key_of(at)[0], value[:8], value, at) for value, at in zip(values, positions, strict=True)]
        self.publisher.publish_run(self.topic, (b"", b""), EncodedRun(records), "cdc.position", _unexpected)

    def values(self) -> list[bytes]:
        """What consumers see."""
        with CommittedReader(self.config.kafka) as reader:
            return [record.value or b"" for record in reader.read_to_end(self.topic, range(4), 30)]

    def close(self) -> None:
        self.cache.drop_publisher(self.config, "ks", "t", 0)


def _unexpected(_at: int, error: Exception) -> None:
    raise error


@pytest.fixture
def lane_of(local_stack: LocalStack) -> Iterator[Callable[[int], Lane]]:
    """Makes a lane with a transaction timeout in ms."""
    lanes: list[Lane] = []

    def make(timeout_ms: int) -> Lane:
        lanes.append(Lane(local_stack, timeout_ms))
        return lanes[-1]

    yield make
    for lane in lanes:
        lane.close()


@pytest.mark.timeout(240)
def test_backlog_that_a_quota_holds_back_is_published_in_one_attempt(
    local_stack: LocalStack, lane_of: Callable[[int], Lane]
) -> None:
    """The producer's queue has room for all of it, but the broker does not take it within a transaction's timeout."""
    # Kafka counts a quota over eleven seconds, and lets so much pass at once. The timeout is some times longer.
    lane, sent = lane_of(30_000), [os.urandom(1_000) for _ in range(10_000)]
    admin = KafkaAdmin(lane.config.kafka)
    assert not admin.has_records(lane.topic)
    with producer_quota(local_stack.kafka, BYTES_PER_S):
        began_s = time.monotonic()
        lane.publisher.start(TASK, fresh=False)
        lane.publish(1_000_000, sent)
        lane.publisher.finish()
        took_s = time.monotonic() - began_s
    assert took_s > 30, "the quota did not hold the producer back"
    assert sorted(lane.values()) == sorted(sent)
    assert admin.has_records(lane.topic)


class _LatePages:
    """A log whose pages come late."""

    def __init__(self, columns: tuple[str, ...], after_s: float) -> None:
        self._columns, self._after_s = columns, after_s

    def page(
        self, _stream: StreamId, _window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        del page_rows, paging_state
        answer: Future[Page] = Future()
        threading.Timer(self._after_s, answer.set_result, (Page(self._columns, [], None),)).start()
        return answer


@pytest.mark.timeout(240)
def test_page_may_take_longer_than_a_transaction_may_be_open(lane_of: Callable[[int], Lane]) -> None:
    """The broker aborts what is open for two seconds. Before the next part nothing is open, however long it takes."""
    lane = lane_of(2_000)
    columns = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation")
    late = _LatePages(columns, EXPIRY_S)
    lane.publisher.start(TASK, fresh=False)

    def wait_for_page() -> None:
        rows = read_lane(
            late,
            [StreamId(bytes(16))],
            CLOSING.parts[0].window,
            LogLayout.of(columns, []),
            page_rows=50,
            in_flight=1,
            while_waiting=lane.publisher.commit_if_full,
        )
        assert list(rows) == []

    lane.publish(1_000_000, [b"first"])
    wait_for_page()
    lane.publish(1_000_001, [b"second"])
    lane.publisher.enter(1)
    assert sorted(lane.values()) == [b"first", b"second"], "a transaction is open while the part's streams are found"
    lane.publish(1_000_000, [b"third"])
    lane.publisher.finish()
    assert sorted(lane.values()) == [b"first", b"second", b"third"]
