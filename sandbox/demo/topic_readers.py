"""Kafka consumers of committed records: one thread for each topic, which notes when records arrive."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, NamedTuple, Self

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.records import Record
from bridge.config.document import KafkaSettings
from bridge.errors import BridgeError, RetriableError
from bridge.model.times import UnixMicros

_MOST: Final = 2_000
_POLL_S: Final = 0.02
_TOPIC_EVERY_S: Final = 0.2


class ReceivedRecords(NamedTuple):
    """Some records of one topic, in the order of each partition, and the time of their arrival in Unix us."""

    at_us: UnixMicros
    records: list[Record]


class TopicReaders:
    """Reads topics from their beginning, as soon as they exist."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        """Prepare the readers. They read during the `with` block."""
        self._settings = settings
        self._queue: SimpleQueue[ReceivedRecords | BridgeError] = SimpleQueue()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_topic, args=(topic,), name=f"consumer of {topic}", daemon=True)
            for topic in topics
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def take(self, timeout_s: float) -> list[ReceivedRecords]:
        """Return the records that have arrived; wait up to `timeout_s` for the first ones.

        Raises:
            BridgeError: a consumer has failed.
        """
        found = []
        try:
            one = self._queue.get(timeout=timeout_s)
            while True:
                if isinstance(one, BridgeError):
                    raise one
                found.append(one)
                one = self._queue.get_nowait()
        except Empty:
            return found

    def _read_topic(self, topic: str) -> None:
        try:
            self._follow(topic)
        except BridgeError as error:
            self._queue.put(error)

    def _follow(self, topic: str) -> None:
        partitions = self._await_topic(topic)
        with CommittedReader(self._settings, client_id=f"demo-{topic}") as reader:
            reader.follow(topic, range(partitions))
            while not self._ended.is_set():
                records = reader.poll(_MOST, _POLL_S)
                if records:
                    self._queue.put(ReceivedRecords(UnixMicros(time.time_ns() // 1000), records))

    def _await_topic(self, topic: str) -> int:
        admin = KafkaAdmin(self._settings)
        while not self._ended.wait(_TOPIC_EVERY_S):
            try:
                partitions = admin.partitions(topic)
            except RetriableError:
                continue
            if partitions:
                return partitions
        return 0
