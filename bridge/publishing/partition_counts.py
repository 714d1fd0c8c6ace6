"""How many partitions topics have, as a process of an executor goes by it.

Records keyed by the whole primary key are placed by us, modulo that number (`bridge.encoding.partitioner`). It is
kept for a
minute and no longer, because topics may grow. Then keys move, as in any topic that grows: for that minute, processes
may still go by different numbers, but a lane's task by one from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bridge.errors import RetriableError

KEPT_FOR_S: Final = 60.0


class PartitionCounts:
    """Remembers what it was told of a Kafka cluster's topics."""

    def __init__(self, ask: Callable[[str], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing yet.

        Args:
            ask: the number of partitions of a topic, 0 when it does not exist.
            clock: monotonic seconds.
        """
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """A topic's number of partitions, told at most `KEPT_FOR_S` ago.

        Raises:
            RetriableError: there is no such topic, or no broker answers.
        """
        partitions, told_s = self._known.get(topic, (0, 0.0))
        if not partitions or self._clock() - told_s >= KEPT_FOR_S:
            told_s, partitions = self._clock(), self._ask(topic)
            if not partitions:
                self._known.pop(topic, None)
                raise RetriableError(f"topic {topic} does not exist; was it deleted?")
            self._known[topic] = partitions, told_s
        return partitions
