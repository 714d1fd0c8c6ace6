"""How many partitions topics have, as one process of an executor knows it.

Records keyed by the whole primary key go to a partition that the bridge chooses, modulo that number
(`bridge.encoding.partitioner`). A count is used for a minute only, because topics may grow. When a topic grows, keys
move to other partitions, as in any topic that grows. During that minute processes may use different counts, but a
lane's task uses one count from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bridge.errors import RetriableError

KEPT_FOR_S: Final = 60.0


class PartitionCounts:
    """Remembers the partition counts of a Kafka cluster's topics.

    Args:
        ask: returns the number of partitions of a topic, 0 when it does not exist.
        clock: monotonic seconds.
    """

    def __init__(self, ask: Callable[[str], int], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """Return a topic's number of partitions, at most `KEPT_FOR_S` old.

        Raises:
            RetriableError: the topic does not exist, or no broker answers.
        """
        partitions, asked_s = self._known.get(topic, (0, 0.0))
        if not partitions or self._clock() - asked_s >= KEPT_FOR_S:
            asked_s, partitions = self._clock(), self._ask(topic)
            if not partitions:
                self._known.pop(topic, None)
                raise RetriableError(f"topic {topic} does not exist; was it deleted?")
            self._known[topic] = partitions, asked_s
        return partitions
