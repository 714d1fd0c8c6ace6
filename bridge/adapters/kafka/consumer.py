"""The reader of committed records."""

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

_OF_THE_GROUP: Final = "FindCoordinator response error"
"""How librdkafka begins what it says of a group's coordinator that can't be reached."""

_T = TypeVar("_T")


class CommittedReader(KafkaClient):
    """Reads committed records of chosen partitions, without a consumer group."""

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
            "group.id": client_id,  # librdkafka wants one; nothing is committed to it
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
        # What is assigned would be handed out here, and lost.
        self._consumer.unassign()
        self._consumer.poll(0)

    def __enter__(self) -> CommittedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()

    def follow(self, topic: str, partitions: Sequence[int], *, from_end: bool = False) -> None:
        """Read these partitions from their beginning, or from their end, with `poll`."""
        with self._translating_errors(f"assigning {topic}", f"Read on topic {topic}"):
            places = []
            for partition in partitions:
                at = OFFSET_BEGINNING
                if from_end:
                    _, at = self._offset_bounds(TopicPartition(topic, partition), 10)
                places.append(TopicPartition(topic, partition, at))
            self._consumer.assign(places)

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` records; fewer or none after `timeout_s`.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with self._translating_errors("consuming", "Read on the topic"):
            return [
                _to_record(message) for message in self._consumer.consume(most, timeout_s) if not _is_no_record(message)
            ]

    def end(self, topic: str, partition: int) -> int:
        """The end of what can be read of a partition: its last stable offset.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with self._translating_errors(f"looking for the end of {topic} [{partition}]", f"Read on topic {topic}"):
            return self._offset_bounds(TopicPartition(topic, partition), 10)[1]

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
            with self._translating_errors(f"reading {topic}", f"Read on topic {topic}"):
                for message in self._consumer.consume(5000, 0.2):
                    if not _is_no_record(message):
                        yield _to_record(message)
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
        """What a partition's leader answers, given the time that is left in s.

        librdkafka gives up at once where that leader is only being chosen or has just moved.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = ask(max(MIN_TIMEOUT_S, deadline - time.monotonic()))
            except KafkaException as error:
                if not errors.is_moving(error.args[0].name()) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                self._consumer.list_topics(place.topic, timeout=timeout_s)  # who leads it now
            else:
                self._errors.login_accepted()
                return found

    def _log_end(self, place: TopicPartition, timeout_s: float) -> int:
        """The partition's end, open transactions included."""
        if self._admin is None:
            self._admin = AdminClient(self._properties)
            # Without, it takes 3 s in one of 100.
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
        self._consumer.assign([TopicPartition(place.topic, place.partition, start)])
        found: Record | None = None
        try:
            while True:
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"Kafka at {self._address}: the end of {place.topic} [{place.partition}] stays hidden by an "
                        "open transaction, or was not reached in time; if that goes on for minutes, a broker may have "
                        "left the transaction without an end: `kafka-transactions.sh find-hanging` shows it, `abort` "
                        "ends it"
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
    """Whether it is the end of a partition, or about the group that the client must name and that is never used."""
    error = message.error()
    if error is None:
        return False
    if error.code() in (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED):
        return True
    # Whoever may not log in at all can't read either, and hears of it there.
    if error.str().startswith(_OF_THE_GROUP):
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
