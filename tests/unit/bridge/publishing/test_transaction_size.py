"""Transactions that are as large as the brokers take in time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bridge.errors import RetriableError
from bridge.model.counters import LaneCounters
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.transaction_size import FIRST_BYTES, TransactionSize
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.bridge.publishing.lane_fakes import batch, first_start, position

TIMEOUT_S = 60.0
MOST_BYTES = 1 << 26
RECORD_BYTES = 1 << 12


class SlowBroker:
    """Takes so many bytes a second, and aborts a transaction that has been open for too long.

    Attributes:
        commits: bytes and time of each commit.
        slow_after: the number of commits after which it becomes a thousand times slower.
    """

    def __init__(self, bytes_per_s: float) -> None:
        self.kafka = Broker()
        self.bytes_per_s = bytes_per_s
        self.now_s = 0.0
        self.counters = LaneCounters()
        self.size = TransactionSize(MOST_BYTES, TIMEOUT_S)
        self.commits: list[tuple[int, float]] = []
        self.slow_after = 1 << 30
        first_start(self.kafka)

    def publisher(self) -> LanePublisher:
        return LanePublisher(
            lambda: _SlowClient(self),
            lambda: self.kafka.markers.get(0),
            progress_topic=PROGRESS,
            owner="job",
            most_records=50_000,
            size=self.size,
            most_s=TIMEOUT_S / 4,
            clock=lambda: self.now_s,
            count=self.counters.add,
        )

    def publish(self, records: int) -> None:
        """Publish a micro-batch in one attempt."""
        publisher = self.publisher()
        publisher.start(batch(0, records), fresh=True)
        places = [position(time_us, 0) for time_us in range(records)]
        run = run_of([b""] * records, [bytes(RECORD_BYTES)] * records, places)
        try:
            publisher.publish_run("topic", (b"", b""), run, None, too_large=_unexpected)
            publisher.finish()
        finally:
            publisher.close()


class _SlowClient(Client):
    def __init__(self, broker: SlowBroker) -> None:
        super().__init__(broker.kafka, "id")
        self._slow = broker
        self._bytes = 0

    def begin(self) -> None:
        super().begin()
        self._began_s, self._bytes = self._slow.now_s, 0

    def produce(self, topic: str, key: bytes | None, value: bytes | None, *place: Any, **named: Any) -> None:
        self._bytes += len(value or b"")
        super().produce(topic, key, value, *place, **named)

    def commit(self) -> None:
        slow = self._slow
        slowness = 1000 if len(slow.commits) >= slow.slow_after else 1
        took_s = 0.005 + self._bytes / slow.bytes_per_s * slowness
        slow.now_s += took_s
        if slow.now_s - self._began_s > TIMEOUT_S:
            raise RetriableError("_MSG_TIMED_OUT")
        slow.commits.append((self._bytes, took_s))
        super().commit()


def _unexpected(_at: int, error: Exception) -> None:
    raise error


@pytest.mark.parametrize("bytes_per_s", [2_000, 12_500, 62_500, 250_000, 10**6])
def test_backlog_is_published_through_a_slow_broker(bytes_per_s: int) -> None:
    """No transaction fails, none takes long, and the time goes into publishing."""
    broker = SlowBroker(bytes_per_s)
    records = bytes_per_s * 600 // RECORD_BYTES
    broker.publish(records)
    assert len(broker.kafka.committed["topic"]) == records
    assert broker.counters.aborts == 0
    longest_s = max(took_s for _, took_s in broker.commits)
    assert longest_s <= max(2 * TIMEOUT_S / 8, (FIRST_BYTES + RECORD_BYTES) / bytes_per_s)
    assert broker.now_s <= 1.1 * 600 + 1


def test_full_speed_is_reached_within_a_few_transactions() -> None:
    """A broker that takes 50 MB/s gets as much at a time as the settings allow."""
    broker = SlowBroker(50e6)
    broker.publish(3 * MOST_BYTES // RECORD_BYTES)
    sizes = [size // FIRST_BYTES for size, _ in broker.commits]
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024, 1]


def test_attempt_that_a_broker_made_fail_is_followed_by_one_that_commits() -> None:
    """The broker becomes a thousand times slower: what is under way fails once, and no more."""
    broker = SlowBroker(50e6)
    broker.slow_after = 8
    records = MOST_BYTES // RECORD_BYTES
    with pytest.raises(RetriableError, match="_MSG_TIMED_OUT"):
        broker.publish(records)
    assert (broker.counters.aborts, len(broker.commits)) == (1, 8)
    broker.publish(records)
    assert broker.counters.aborts == 1
    assert len(broker.kafka.committed["topic"]) == records


def test_small_transactions_say_nothing_about_the_limit() -> None:
    """A table with few changes neither raises it nor lowers it."""
    size = TransactionSize(MOST_BYTES, TIMEOUT_S)
    size.most_bytes = 1 << 20
    for _ in range(20):
        size.note_commit(500, 0.005)
    assert size.most_bytes == 1 << 20


def limits(size: TransactionSize, commits: list[tuple[int, float]]) -> Iterator[int]:
    for one in commits:
        size.note_commit(*one)
        yield size.most_bytes


def test_limit_stays_within_its_bounds() -> None:
    """Also after commits that take no time, or for ever; a low setting is kept."""
    assert list(limits(TransactionSize(FIRST_BYTES + 1, TIMEOUT_S), [(FIRST_BYTES, 0.0), (1, 1e6)])) == [
        FIRST_BYTES + 1,
        FIRST_BYTES,
    ]
    low = TransactionSize(2_000, TIMEOUT_S)
    assert list(limits(low, [(2_000, 0.0), (2_000, 50.0)])) == [2_000, 2_000]
