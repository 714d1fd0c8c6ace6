"""What Kafka does not take, takes slowly, or hides: records over a limit, quotas, transactions that are still open."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.config.document import KafkaSettings
from bridge.errors import RetriableError, TooLargeError, UnpublishableError
from sandbox.stack.stack import LocalStack
from tests.integration.support.kafka_quota import producer_quota
from tests.integration.support.running import wait_for

pytestmark = pytest.mark.integration

LIMIT = 20_000
"""The topic's `max.message.bytes`."""
BYTES_PER_S = 15_000
"""The producers' quota; the broker averages over ten seconds or more."""


@pytest.fixture
def settings(local_stack: LocalStack) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": local_stack.kafka})


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    name = f"pressure-{uuid.uuid4().hex[:8]}"
    KafkaAdmin(settings).ensure_topic(name, 1, {"max.message.bytes": str(LIMIT)})
    return name


@contextmanager
def opened(
    settings: KafkaSettings, topic: str, limit: int | None, throttled: Callable[[float], None] = lambda _s: None
) -> Iterator[TransactionalProducer]:
    producer = TransactionalProducer(
        settings, uuid.uuid4().hex, known_topic=topic, topics_limit=limit, throttled=throttled
    )
    try:
        producer.init()
        producer.begin()
        yield producer
    finally:
        producer.close()


def values(settings: KafkaSettings, topic: str) -> list[bytes | None]:
    with CommittedReader(settings) as reader:
        return [record.value for record in reader.read_to_end(topic, [0], 30)]


def test_record_over_the_topics_limit_is_refused_and_the_rest_goes_on(settings: KafkaSettings, topic: str) -> None:
    """Batches keep to the topic's limit, which is far below the client's own; one record does not and is named."""
    limit = KafkaAdmin(settings).record_limit([topic, "no-such-topic"])
    assert limit == LIMIT
    small = [os.urandom(200) for _ in range(1_000)]
    with opened(settings, topic, limit) as producer:
        for value in small[:500]:
            producer.produce(topic, b"k", value)
        with pytest.raises(TooLargeError, match=rf"record of 30001 bytes for topic {topic} is over .* {LIMIT} bytes"):
            producer.produce(topic, b"k", os.urandom(30_000))
        for value in small[500:]:
            producer.produce(topic, b"k", value)
        producer.commit()
    assert values(settings, topic) == small


def test_limit_that_nobody_told_us_stops_with_what_to_do(
    local_stack: LocalStack, settings: KafkaSettings, topic: str
) -> None:
    """A batch that the broker x, not an error to try again for ever; nothing of it can be seen."""
    with opened(settings, topic, None) as producer:
        for _ in range(500):
            producer.produce(topic, b"k", os.urandom(200))
        with pytest.raises(
            UnpublishableError, match=f"refused a batch of records for topic {topic} .MSG_SIZE_TOO_LARGE"
        ):
            producer.commit()
    assert values(settings, topic) == []
    raised = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("max.message.bytes", "5000000", incremental_operation=AlterConfigOpType.SET)],
    )
    client = AdminClient({"bootstrap.servers": local_stack.kafka})
    for done in client.incremental_alter_configs([raised]).values():
        done.result(10)
    large = os.urandom(3_000_000)
    with opened(settings, topic, KafkaAdmin(settings).record_limit([topic])) as producer:
        # Above librdkafka's own limit, but not above the topic's: nothing has to be set for it.
        producer.produce(topic, b"k", large)
        producer.commit()
    assert values(settings, topic) == [large]


def test_quota_makes_the_job_wait_and_is_told(
    local_stack: LocalStack, settings: KafkaSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that throttles producers only delays them. The job logs this and counts the waiting time."""
    name = f"throttled-{uuid.uuid4().hex[:8]}"
    KafkaAdmin(settings).ensure_topic(name, 1, {})
    sent = [os.urandom(10_000) for _ in range(20)]
    waits: list[float] = []
    began_s = time.monotonic()
    with producer_quota(local_stack.kafka, BYTES_PER_S), opened(settings, name, None, waits.append) as producer:
        for value in sent:
            producer.produce(name, b"k", value)
        producer.commit()
        producer.begin()
        producer.produce(name, b"k", b"last")
        producer.commit()
    assert values(settings, name) == [*sent, b"last"]
    assert max(waits) > 0
    assert max(waits) <= time.monotonic() - began_s
    assert any("throttles it for" in message and "because of a quota" in message for message in caplog.messages)


def test_ends_of_topics_show_what_brokers_have_taken(settings: KafkaSettings, topic: str) -> None:
    """Also records of an open transaction, which no consumer sees yet; a topic that does not exist is empty."""
    admin = KafkaAdmin(settings)
    assert admin.total_end([topic, "no-such-topic"]) == 0
    with opened(settings, topic, None) as producer:
        producer.produce(topic, b"k", b"v")
        wait_for("the record at the broker", lambda: admin.total_end([topic]) == 1, 30)
        assert values(settings, topic) == []
    assert admin.total_end([]) == 0


def seeing_all(settings: KafkaSettings) -> Consumer:
    """A consumer that sees what is not committed, too."""
    servers = ",".join(settings.bootstrap_servers)
    return Consumer({"bootstrap.servers": servers, "group.id": "none", "isolation.level": "read_uncommitted"})


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_last_record_is_not_looked_for_before_an_open_transaction(settings: KafkaSettings, outcome: str) -> None:
    """Behind the last stable offset may lie a later cursor: it is waited for, and an older one never taken for it."""
    progress = f"progress-{uuid.uuid4().hex[:8]}"
    KafkaAdmin(settings).ensure_topic(progress, 1, {"cleanup.policy": "compact"})
    place = TopicPartition(progress, 0)
    with (
        opened(settings, progress, None) as older,
        opened(settings, progress, None) as newer,
        closing(seeing_all(settings)) as other,
        CommittedReader(settings) as reader,
    ):
        older.produce(progress, b"key", b"older", partition=0)
        older.commit()
        committed = reader.last_record(progress, 0, 20)
        assert committed is not None
        assert committed.value == b"older"
        newer.produce(progress, b"key", b"newer", partition=0)
        # A record and the marker of its commit, and one more record.
        wait_for("the open transaction's record", lambda: other.get_watermark_offsets(place, timeout=5)[1] == 3, 30)
        with pytest.raises(RetriableError, match="stays hidden by an open transaction"):
            reader.last_record(progress, 0, 5)
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(reader.last_record, progress, 0, 30)
            getattr(newer, outcome)()
            record = found.result(60)
    assert record is not None
    assert record.value == (b"newer" if outcome == "commit" else b"older")
