"""Kafka clients: the only module that imports `confluent_kafka` (the registry's client apart).

Thin: settings become librdkafka's properties in `kafka_properties`, its errors become ours in `kafka_errors`. What is
written when is decided in `bridge.publishing`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported explicitly
    AdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from bridge.adapters import kafka_errors
from bridge.adapters.kafka_properties import client_properties, producer_properties
from bridge.config import KafkaSettings
from bridge.errors import BridgeError, RetriableError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Record:
    """One consumed record.

    Attributes:
        timestamp_ms: the broker's or producer's timestamp, ms since the epoch.
    """

    topic: str
    partition: int
    kafka_offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int


class TransactionalProducer:
    """The producer of one transactional id. One thread only. After any error it is good for nothing but `close`."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._address = ", ".join(settings.bootstrap_servers)
        self._timeout_s = settings.transaction_timeout_ms / 1000
        with _meaning(self._address, "making a producer"):
            self._producer = Producer(producer_properties(settings, transactional_id))

    def init(self) -> None:
        """Fence older owners of the id and settle their transaction (45-55 ms; up to 1 s with one open).

        Raises:
            RetriableError: the coordinator can't be reached or is busy.
            StartupError: this principal may not use the id.
        """
        with _meaning(self._address, f"init_transactions of {self.transactional_id}"):
            self._producer.init_transactions(self._timeout_s)

    def begin(self) -> None:
        """Begin a transaction; errors as `commit`."""
        with _meaning(self._address, f"begin_transaction of {self.transactional_id}"):
            self._producer.begin_transaction()

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
    ) -> None:
        """Queue a record of the open transaction; waits while the queue is full.

        Raises:
            PoisonError: the record is larger than the client or broker allows.
            FencedError: a newer owner of the id exists.
            RetriableError: the queue did not drain within the transaction's timeout.
        """
        keywords: dict[str, Any] = {"key": key, "value": value}
        if headers:
            keywords["headers"] = list(headers)
        if partition is not None:
            keywords["partition"] = partition
        deadline = None
        while True:
            try:
                self._producer.produce(topic, **keywords)
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._timeout_s
                if now > deadline:
                    raise RetriableError(
                        f"Kafka at {self._address} took no record of {topic} for {self._timeout_s:.0f} s"
                    ) from None
                self._producer.poll(0.05)
            except KafkaException as error:
                raise _translate(error, self._address, f"producing to {topic}") from error
            else:
                return

    def commit(self) -> None:
        """Commit the open transaction; everything in it becomes visible at once.

        Raises:
            FencedError, RetriableError: it is unknown whether the transaction was committed; only the progress read
                by the id's next owner tells.
        """
        with _meaning(self._address, f"commit_transaction of {self.transactional_id}"):
            self._producer.commit_transaction(self._timeout_s)

    def abort(self) -> None:
        """Abort the open transaction; errors are logged only, because the id's next owner settles it anyway."""
        try:
            self._producer.abort_transaction(10.0)
        except KafkaException as error:
            _log.warning("aborting a transaction of %s failed: %s", self.transactional_id, _text(error))

    def close(self) -> None:
        """Let go of the client; what is still queued is dropped."""
        self._producer.purge()
        del self._producer


class KafkaAdmin:
    """Topics: their making, and whether the brokers answer."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._address = ", ".join(settings.bootstrap_servers)
        with _meaning(self._address, "making a client"):
            self._client = AdminClient(client_properties(settings))

    def ping(self, timeout_s: float = 5.0) -> None:
        """Ask for the cluster's metadata once.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse us.
        """
        with _meaning(self._address, "reading the cluster's metadata"):
            self._client.list_topics(timeout=timeout_s)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when it does not exist."""
        with _meaning(self._address, f"looking for topic {topic}"):
            # Of all topics: asking for one by name makes it, on brokers that create topics by themselves.
            found = self._client.list_topics(timeout=10).topics.get(topic)
            if found is None:
                return 0
            if found.error is not None:
                raise KafkaException(found.error)
            return len(found.partitions)

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str], *, grow: bool = False) -> None:
        """Make a topic if it does not exist; with `grow`, add the partitions that it lacks.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us.
        """
        with _meaning(self._address, f"making topic {topic}"):
            existing = self.partitions(topic)
            if existing == 0:
                new = NewTopic(
                    topic,
                    num_partitions=partitions,
                    replication_factor=self._settings.replication_factor or -1,
                    config=dict(config),
                )
                try:
                    self._client.create_topics([new], operation_timeout=30)[topic].result(30)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                        raise
                self._await_partitions(topic, partitions)
            elif existing < partitions and grow:
                self._client.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
                self._await_partitions(topic, partitions)

    def _await_partitions(self, topic: str, partitions: int) -> None:
        # Creation returns before every broker's metadata has the topic; producing too early would fail.
        deadline = time.monotonic() + 30
        while self.partitions(topic) < partitions:
            if time.monotonic() > deadline:
                raise RetriableError(f"Kafka at {self._address}: topic {topic} was made but does not appear")
            time.sleep(0.05)


class CommittedReader:
    """Reads committed records of chosen partitions, without a consumer group."""

    def __init__(self, settings: KafkaSettings, *, client_id: str = "scylla-cdc-bridge-reader") -> None:
        self._address = ", ".join(settings.bootstrap_servers)
        self._properties = {**client_properties(settings), "client.id": client_id}
        self._admin: AdminClient | None = None
        properties = {
            **self._properties,
            "group.id": client_id,  # librdkafka wants one; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "allow.auto.create.topics": False,
        }
        with _meaning(self._address, "making a consumer"):
            self._consumer = Consumer(properties)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    def follow(self, topic: str, partitions: Sequence[int], *, from_end: bool = False) -> None:
        """Read these partitions from their beginning, or from their end, with `poll`."""
        with _meaning(self._address, f"assigning {topic}"):
            places = []
            for partition in partitions:
                at = OFFSET_BEGINNING
                if from_end:
                    _, at = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                places.append(TopicPartition(topic, partition, at))
            self._consumer.assign(places)

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` records; fewer or none after `timeout_s`.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with _meaning(self._address, "consuming"):
            return [
                _record(message)
                for message in self._consumer.consume(most, timeout_s)
                if not _end_of_partition(message)
            ]

    def end(self, topic: str, partition: int) -> int:
        """The end of what can be read of a partition: its last stable offset.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with _meaning(self._address, f"looking for the end of {topic} [{partition}]"):
            return int(self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1])

    def read_to_end(self, topic: str, partitions: Sequence[int], timeout_s: float) -> Iterator[Record]:
        """Every record of these partitions from the beginning to the end that they have now.

        Raises:
            RetriableError: the end was not reached in time.
            StartupError: the brokers do not let us read.
        """
        unread = {partition: self.end(topic, partition) for partition in partitions}
        self.follow(topic, partitions)
        deadline = time.monotonic() + timeout_s
        while unread:
            if time.monotonic() > deadline:
                raise RetriableError(f"Kafka at {self._address}: {topic} was not read to its end in {timeout_s:.0f} s")
            with _meaning(self._address, f"reading {topic}"):
                for message in self._consumer.consume(5000, 0.2):
                    if not _end_of_partition(message):
                        yield _record(message)
                        continue
                    # Behind the last record may lie transaction markers, so only the end itself tells.
                    partition, reached = message.partition(), message.offset()
                    if partition in unread and reached is not None and reached >= unread[partition]:
                        del unread[partition]

    def last_record(self, topic: str, partition: int, timeout_s: float) -> Record | None:
        """The last committed record of a partition; None when it has none.

        An open transaction hides what lies behind it. The caller has fenced the partition's only writer, so a hidden
        end can only be a transaction that the coordinator is still settling: it is waited for, and never taken for
        silence.

        Raises:
            RetriableError: the end stayed hidden, or was not reached, within the timeout.
        """
        place = TopicPartition(topic, partition)
        deadline = time.monotonic() + timeout_s
        with _meaning(self._address, f"reading {topic} [{partition}]"):
            low, _ = self._consumer.get_watermark_offsets(place, timeout=timeout_s)
            end = self._true_end(place, timeout_s)
            back = 64
            while True:
                start = max(low, end - back)
                found = self._last_between(place, start, end, deadline)
                if found is not None or start == low:
                    return found
                back *= 16

    def _true_end(self, place: TopicPartition, timeout_s: float) -> int:
        """The partition's end, open transactions included."""
        if self._admin is None:
            self._admin = AdminClient(self._properties)
        found = self._admin.list_offsets(
            {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=timeout_s,
        )
        end: int = found[place].result(timeout_s).offset
        return end

    def _last_between(self, place: TopicPartition, start: int, end: int, deadline: float) -> Record | None:
        self._consumer.assign([TopicPartition(place.topic, place.partition, start)])
        found: Record | None = None
        try:
            while True:
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"Kafka at {self._address}: the end of {place.topic} [{place.partition}] stays hidden by an "
                        "open transaction, or was not reached in time"
                    )
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                if _end_of_partition(message):
                    reached = message.offset()
                    if reached is not None and reached >= end:
                        return found
                    continue
                found = _record(message)
        finally:
            self._consumer.unassign()


def _end_of_partition(message: Message) -> bool:
    error = message.error()
    if error is None:
        return False
    if error.code() == KafkaError._PARTITION_EOF:
        return True
    raise KafkaException(error)


def _record(message: Message) -> Record:
    topic, partition, kafka_offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert kafka_offset is not None
    headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    return Record(
        topic,
        partition,
        kafka_offset,
        message.key(),
        message.value(),
        {name: value or b"" for name, value in headers},
        message.timestamp()[1],
    )


@contextmanager
def _meaning(address: str, what: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise _translate(error, address, what) from error


def _translate(error: KafkaException, address: str, what: str) -> BridgeError:
    return kafka_errors.meant(error.args[0].name(), f"Kafka at {address}: {what} failed: {_text(error)}")


def _text(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.name()} ({cause.str()})"
