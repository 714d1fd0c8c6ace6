"""Reads the committed records of topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import Final, Self, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.errors import BenchError
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import KafkaSettings
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.position import timeuuid_in
from bridge.model.times import UnixMicros, micros_of

_AT_ONCE: Final = 10_000
_DELETED_WITHIN_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A committed record: its position (empty for one without), and when it was produced and received."""

    position: bytes
    produced_ms: int
    received_us: UnixMicros
    size_bytes: int


class Follower:
    """Reads all partitions of topics from the beginning, committed records only."""

    def __init__(self, kafka: str, *topics: str) -> None:
        admin = KafkaAdmin(KafkaSettings(bootstrap_servers=(kafka,)))
        partitions = [(topic, number) for topic in topics for number in range(admin.partitions(topic))]
        self._topics = ", ".join(topics)
        self._not_at_end = set(partitions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": f"bench-{uuid.uuid4()}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for topic, number in partitions])

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def at_end(self) -> bool:
        """Whether the end of every partition has been reached at least once."""
        return not self._not_at_end

    def poll(self, timeout_s: float, most: int = _AT_ONCE) -> list[Seen]:
        """Return the arrived records; wait the whole timeout unless there are `most`.

        Raises:
            BenchError: the broker failed.
        """
        try:
            messages = self._consumer.consume(most, timeout_s)
        except KafkaException as error:
            raise BenchError(f"reading {self._topics} failed: {error}") from error
        received_us = UnixMicros(time.time_ns() // 1000)
        found = []
        for message in messages:
            failure = message.error()
            if failure is not None:
                if failure.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  # its only name
                    raise BenchError(f"reading {self._topics} failed: {failure}")
                self._not_at_end.discard((message.topic() or "", message.partition() or 0))
                continue
            headers = dict(cast("Sequence[tuple[str, bytes | None]]", message.headers() or ()))
            size = len(message.key() or b"") + len(message.value() or b"")
            found.append(Seen(headers.get(POSITION_HEADER) or b"", message.timestamp()[1], received_us, size))
        return found


def read_all(kafka: str, topic: str, *, timeout_s: float) -> Iterator[Seen]:
    """Yield every committed record of a topic without writers.

    Raises:
        BenchError: the broker failed, or no record came for `timeout_s` before the ends were reached.
    """
    deadline_s = time.monotonic() + timeout_s
    with Follower(kafka, topic) as follower:
        while not follower.at_end:
            if time.monotonic() > deadline_s:
                raise BenchError(f"{topic} could not be read to its end: nothing came for {timeout_s:.0f} s")
            found = follower.poll(0.2)
            yield from found
            if found:
                deadline_s = time.monotonic() + timeout_s


def written_us(position: bytes) -> UnixMicros:
    """The write timestamp of the change at a position."""
    return micros_of(timeuuid_in(position))


def delete(kafka: str, *topics: str) -> None:
    """Delete topics, so that a long series of runs does not fill the disk; failures do not matter."""
    # The broker goes on by itself with what takes longer; who measured for minutes is not to lose it by that.
    futures.wait(AdminClient({"bootstrap.servers": kafka}).delete_topics(list(topics)).values(), _DELETED_WITHIN_S)


def exists(kafka: str, topic: str) -> bool:
    """Whether a topic is there with its partitions."""
    return KafkaAdmin(KafkaSettings(bootstrap_servers=(kafka,))).partitions(topic) > 0


class Beginning:
    """Detects the first committed record of a topic, which need not exist yet."""

    def __init__(self, kafka: str, topic: str) -> None:
        settings = KafkaSettings(bootstrap_servers=(kafka,))
        self._topic = topic
        self._admin, self._reader = KafkaAdmin(settings), CommittedReader(settings)
        self._partitions = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def is_over(self) -> bool:
        """Whether a record has been committed.

        Raises:
            BridgeError: the broker failed.
        """
        self._partitions = self._partitions or self._admin.partitions(self._topic)
        return any(self._reader.end(self._topic, partition) for partition in range(self._partitions))
