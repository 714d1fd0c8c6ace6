"""How many partitions a topic has, without a request for each micro-batch."""

from __future__ import annotations

import pytest

from bridge.errors import RetriableError
from bridge.publishing.partition_counts import KEPT_FOR_S, PartitionCounts


class Kafka:
    """Answers, and records what it was asked."""

    def __init__(self) -> None:
        self.partitions = {"a": 3, "b": 5}
        self.asked: list[str] = []
        self.now_s = 1000.0

    def ask(self, topic: str) -> int:
        self.asked.append(topic)
        return self.partitions.get(topic, 0)

    def clock(self) -> float:
        return self.now_s


def test_a_topic_is_asked_for_once_a_minute() -> None:
    """Each topic by itself. New partitions are noticed then, and not before."""
    kafka = Kafka()
    sizes = PartitionCounts(kafka.ask, clock=kafka.clock)
    assert [sizes.of(topic) for topic in ("a", "b", "a", "b")] == [3, 5, 3, 5]
    assert kafka.asked == ["a", "b"]
    kafka.partitions["a"] = 6
    kafka.now_s += KEPT_FOR_S - 1
    assert (sizes.of("a"), len(kafka.asked)) == (3, 2)
    kafka.now_s += 1
    assert (sizes.of("a"), sizes.of("a"), len(kafka.asked)) == (6, 6, 3)


def test_a_missing_topic_is_named_and_asked_for_again() -> None:
    """A missing topic is forgotten, also when it existed before."""
    kafka = Kafka()
    sizes = PartitionCounts(kafka.ask, clock=kafka.clock)
    assert sizes.of("a") == 3
    del kafka.partitions["a"]
    kafka.now_s += KEPT_FOR_S
    for _ in range(2):
        with pytest.raises(RetriableError, match="topic a does not exist"):
            sizes.of("a")
    kafka.partitions["a"] = 2
    assert (sizes.of("a"), len(kafka.asked)) == (2, 4)
