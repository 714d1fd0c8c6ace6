"""Reads committed records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not re-exported explicitly

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.client import MIN_TIMEOUT_S, KafkaClient, open_connection
from bridge.adapters.kafka.properties import client_properties
from bridge.adapters.kafka.records import Record
from bridge.config.document import KafkaSettings
from bridge.errors import RetriableError

_GROUP_ERROR: Final = "FindCoordinator response error"
"""How librdkafka's message begins if a group's coordinator can't be found."""

_T = TypeVar("_T")


class CommittedReader(KafkaClient):
    """Reads committed records of chosen partitions, without a consumer group.

    Args:
        settings: how to reach Kafka.
        client_id: the client's id; it shows in the brokers' logs and metrics.
    """

    def __init__(self, settings: KafkaSettings, *, client_id: str = "scylla-cdc-bridge-reader") -> None:
        super().__init__(settings)
        self._properties: dict[str, Any] = {
            **client_properties(settings),
            "client.id": client_id,
            "error_cb": self._errors,
        }
        self._admin: AdminClient | None = None
        properties = {
            **self._properties,
            "group.id": client_id,  # librdkafka requires one; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "allow.auto.create.topics": False,
        }
        with self._translating_errors("making a consumer"):
            self._consumer = Consumer(properties)

    def _run_callbacks(self) -> None:
        # `poll` may return a record of an assigned partition, which would be lost.
        self._consumer.unassign()
        self._consumer.poll(0)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def follow(self, topic: str, partitions: Sequence[int], *, from_end: bool = False) -> None:
        """Choose the partitions that `poll` reads.

        Args:
            topic: their topic.
            partitions: their numbers.
            from_end: whether to start at their present ends instead of their beginnings.

        Raises:
            RetriableError: the brokers do not answer.
            StartupError: the bridge's user lacks the right Read.
        """
        with self._translating_errors(f"assigning {topic}", f"Read on topic {topic}"):
            places = []
            for partition in partitions:
                at = OFFSET_BEGINNING
                if from_end:
                    _, at = self._offset_bounds(TopicPartition(topic, partition), 10)
                places.append(TopicPartition(topic, partition, at))
            self._consumer.assign(places)

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Up to `max_records` records; fewer or none after `timeout_s`.

        Raises:
            RetriableError: the brokers do not answer.
            StartupError: the bridge's user lacks the right Read.
        """
        with self._translating_errors("consuming", "Read on the topic"):
            messages = self._consumer.consume(max_records, timeout_s)
            return [_to_record(message) for message in messages if not _is_no_record(message)]

    def end(self, topic: str, partition: int) -> int:
        """The offset behind the last readable record of a partition: its last stable offset.

        Raises:
            RetriableError: the brokers do not answer.
            StartupError: the bridge's user lacks the right Read.
        """
        with self._translating_errors(f"looking for the end of {topic} [{partition}]", f"Read on topic {topic}"):
            return self._offset_bounds(TopicPartition(topic, partition), 10)[1]

    def read_to_end(self, topic: str, partitions: Sequence[int], timeout_s: float) -> Iterator[Record]:
        """Every record of partitions, from their beginnings to their present ends.

        Args:
            topic: their topic.
            partitions: their numbers.
            timeout_s: how long it may take, in s.

        Raises:
            RetriableError: an end was not reached in time.
            StartupError: the bridge's user lacks the right Read.
        """
        unread = {partition: self.end(topic, partition) for partition in partitions}
        self.follow(topic, partitions)
        deadline = time.monotonic() + timeout_s
        while unread:
            if time.monotonic() > deadline:
                raise RetriableError(f"Kafka at {self._address}: {topic} was not read to its end in {timeout_s:.0f} s")
            with self._translating_errors(f"reading {topic}", f"Read on topic {topic}"):
                for message in self._consumer.consume(5000, 0.2):
                    if not _is_no_record(message):
                        yield _to_record(message)
                        continue
                    # Transaction markers may follow the last record, so only the reported end is decisive.
                    partition, reached = message.partition(), message.offset()
                    if partition in unread and reached is not None and reached >= unread[partition]:
                        del unread[partition]

    def last_record(self, topic: str, partition: int, timeout_s: float) -> Record | None:
        """The last committed record of a partition; None if it has none.

        An open transaction hides the records behind it. The caller has fenced the partition's only writer. So if the
        end is hidden, the coordinator is still ending a transaction: this method waits for that, and never returns an
        older record instead.

        Args:
            topic: the partition's topic.
            partition: its number.
            timeout_s: how long to wait, in s.

        Raises:
            RetriableError: the end was hidden, or not reached, within the timeout.
        """
        place = TopicPartition(topic, partition)
        deadline = time.monotonic() + timeout_s
        with self._translating_errors(f"reading {topic} [{partition}]", f"Read on topic {topic}"):
            low, _ = self._offset_bounds(place, timeout_s)
            end = self._log_end(place, timeout_s)
            back = 64
            while True:
                start = max(low, end - back)
                found = self._last_record_between(place, start, end, deadline)
                if found is not None or start == low:
                    return found
                back *= 16

    def _offset_bounds(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset of a partition and its last stable one."""

        def ask(left_s: float) -> tuple[int, int]:
            low, end = self._consumer.get_watermark_offsets(place, timeout=left_s)
            return int(low), int(end)

        return self._ask_leader(place, timeout_s, ask)

    def _ask_leader(self, place: TopicPartition, timeout_s: float, ask: Callable[[float], _T]) -> _T:
        """The answer of a partition's leader; repeats the request while the partition has no leader.

        librdkafka itself fails at once if the leader is being elected or has just moved.

        Args:
            place: the partition.
            timeout_s: how long to try, in s.
            ask: sends the request, given the remaining time in s.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = ask(max(MIN_TIMEOUT_S, deadline - time.monotonic()))
            except KafkaException as error:
                if not errors.is_moving(error.args[0].name()) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                self._consumer.list_topics(place.topic, timeout=timeout_s)  # refreshes the leader
            else:
                self._errors.login_accepted()
                return found

    def _log_end(self, place: TopicPartition, timeout_s: float) -> int:
        """The offset behind the partition's last record, open transactions included."""
        if self._admin is None:
            self._admin = AdminClient(self._properties)
            # Without this, one of 100 requests takes 3 s.
            open_connection(self._admin, place.topic, timeout_s)
        admin = self._admin

        def ask(left_s: float) -> int:
            found = admin.list_offsets(
                {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=left_s,
            )
            end: int = found[place].result(left_s).offset
            return end

        return self._ask_leader(place, timeout_s, ask)

    def _last_record_between(self, place: TopicPartition, start: int, end: int, deadline: float) -> Record | None:
        """The last committed record from offset `start` to offset `end`; None if there is none."""
        self._consumer.assign([TopicPartition(place.topic, place.partition, start)])
        found: Record | None = None
        try:
            while True:
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"Kafka at {self._address}: the end of {place.topic} [{place.partition}] stays hidden by an "
                        "open transaction, or was not reached in time; if this lasts for minutes, a broker may have "
                        "left a hanging transaction: `kafka-transactions.sh find-hanging` lists it, `abort` ends it"
                    )
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                if _is_no_record(message):
                    reached = message.offset()
                    if reached is not None and reached >= end:
                        return found
                    continue
                found = _to_record(message)
        finally:
            self._consumer.unassign()


def _is_no_record(message: Message) -> bool:
    """Whether a message is no record: the end of a partition, or an error about the unused consumer group.

    Raises:
        KafkaException: the message is another error.
    """
    error = message.error()
    if error is None:
        return False
    if error.code() in (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return True
    # A refused login fails the reads as well, and is reported there.
    if error.str().startswith(_GROUP_ERROR):
        return True
    raise KafkaException(error)


def _to_record(message: Message) -> Record:
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
