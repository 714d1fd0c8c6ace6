"""Plain read_committed consumers, a thread for each topic, which note when each portion of records arrived."""

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


class Arrived(NamedTuple):
    """Some records of one topic, in the order of each of its partitions, and the moment at which they were there."""

    at_us: UnixMicros
    records: list[Record]


class Arrivals:
    """Reads topics from their beginning as soon as they exist; `take` gives what has come."""

    def __init__(self, settings: KafkaSettings, topics: Sequence[str]) -> None:
        """Prepare; reading begins with the `with` block and ends with it."""
        self._settings = settings
        self._queue: SimpleQueue[Arrived | BridgeError] = SimpleQueue()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(topic,), name=f"consumer of {topic}", daemon=True)
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

    def take(self, timeout_s: float) -> list[Arrived]:
        """All that has come; waits up to `timeout_s` for the first of it.

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

    def _run(self, topic: str) -> None:
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
                    self._queue.put(Arrived(UnixMicros(time.time_ns() // 1000), records))

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
