"""The transactional producer with librdkafka's mock broker, which runs inside the client."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from bridge.adapters.kafka.client_events import DeliveryErrors
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.config.document import KafkaSettings
from bridge.errors import TooLargeError
from tests.unit.bridge.encoded_runs import run_of

SETTINGS = KafkaSettings.model_validate(
    {"bootstrap_servers": "127.0.0.1:1", "properties": {"test.mock.num.brokers": 1}}
)


@pytest.mark.parametrize(
    ("limit", "bytes_"), [(None, 1_000_000), (20_000, 20_000), (3_000_000, 3_000_000), (10, 1_000)]
)
def test_transaction_goes_on_without_a_record_over_the_limit(limit: int | None, bytes_: int) -> None:
    """The limit is librdkafka's default while the topics' limit is not known, else theirs, above it or below."""
    producer = TransactionalProducer(SETTINGS, "id", known_topic="t", topics_limit=limit)
    try:
        producer.init()
        producer.begin()
        producer.produce("topic", b"key", b"before", {}, 0)
        with pytest.raises(TooLargeError, match=f"record of {bytes_ + 3} bytes .* over the limit of {bytes_} bytes"):
            producer.produce("topic", b"key", os.urandom(bytes_), {}, 0)
        producer.produce("topic", b"key", os.urandom(bytes_ - 300), {}, 0)
        producer.commit()
    finally:
        producer.close()


def test_configured_limit_takes_precedence() -> None:
    """`message.max.bytes` may be above the topics' limit, because compression makes records smaller."""
    properties = SETTINGS.properties | {"message.max.bytes": 50_000}
    producer = TransactionalProducer(
        SETTINGS.model_copy(update={"properties": properties}), "id", known_topic="t", topics_limit=20_000
    )
    try:
        producer.init()
        producer.begin()
        producer.produce("topic", b"key", bytes(40_000), {}, 0)
        producer.commit()
    finally:
        producer.close()


def test_last_record_taken_is_the_one_over_the_limit() -> None:
    """The records before it are part of the transaction; the iterator shows how many were taken."""
    producer = TransactionalProducer(SETTINGS, "id", known_topic="t", topics_limit=20_000)
    records = iter(run_of([b"ey"] * 3, [b"before", os.urandom(20_000), b"behind"], [bytes(36)] * 3).records)
    try:
        producer.init()
        producer.begin()
        with pytest.raises(TooLargeError, match="a record of 20005 bytes for topic topic"):
            producer.produce_run("topic", (b"k", b"v:"), records, "position")
        assert [value for _, _, value, _ in records] == [b"behind"]
        producer.commit()
    finally:
        producer.close()


@pytest.mark.parametrize("in_run", [False, True])
@pytest.mark.parametrize("properties", [{}, {"queue.buffering.max.kbytes": 1024}])
def test_record_larger_than_the_queue_is_accepted(*, in_run: bool, properties: dict[str, int]) -> None:
    """Librdkafka reports an empty queue that is too small for a record as full; retries would never end."""
    limit = 20 << 20
    # A full queue is retried until this timeout, so it is short.
    settings = SETTINGS.model_copy(
        update={"properties": SETTINGS.properties | properties, "transaction_timeout_ms": 2000}
    )
    producer = TransactionalProducer(settings, "id", known_topic="t", topics_limit=limit)

    def produce(value: bytes) -> None:
        if in_run:
            producer.produce_run("topic", (b"", b""), iter(run_of([b"key"], [value], [bytes(36)]).records), "position")
        else:
            producer.produce("topic", b"key", value, {}, 0)

    try:
        producer.init()
        producer.begin()
        produce(b"before")
        produce(bytes((16 << 20) + 1))
        produce(bytes(limit - 300))
        with pytest.raises(TooLargeError, match=f"a record of {limit + 4} bytes .* over the limit of {limit} bytes"):
            produce(bytes(limit + 1))
        producer.commit()
    finally:
        producer.close()


def test_topics_limit_may_exceed_the_clients_maximum() -> None:
    """Kafka allows any limit up to 2 GiB, the client none over 1 GB."""
    producer = TransactionalProducer(SETTINGS, "id", known_topic="t", topics_limit=2**31 - 1)
    try:
        producer.init()
        producer.begin()
        producer.produce("topic", b"key", b"value", {}, 0)
        producer.commit()
    finally:
        producer.close()


def test_reason_of_the_first_undelivered_record_is_kept() -> None:
    """The transaction's error contains only their number; records purged after the first are no reason."""
    refused = DeliveryErrors()
    message: Any = SimpleNamespace(topic=lambda: "t", key=lambda: None, value=lambda: b"v")
    refused(None, message)
    assert refused.lost is None
    for code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._PURGE_QUEUE):
        refused(KafkaError(code), message)
    assert refused.lost == "topic t: UNKNOWN_TOPIC_OR_PART (Broker: Unknown topic or partition); was it deleted?"
    assert refused.refusal is None
