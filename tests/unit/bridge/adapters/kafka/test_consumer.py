"""The reader of committed records while a partition's leader moves, with a stand-in for the client."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from bridge.adapters.kafka import consumer as consumer_module
from bridge.config.document import KafkaSettings
from bridge.errors import RetriableError


class Moving:
    """A consumer that fails its first calls, because the partition has no leader."""

    def __init__(self, answers: Sequence[int | tuple[int, int]]) -> None:
        self._answers = list(answers)
        self.asked_for_leaders = 0

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        answer = self._answers.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked_for_leaders += 1

    def unassign(self) -> None: ...

    def poll(self, timeout: float) -> None: ...


def reader(monkeypatch: pytest.MonkeyPatch, consumer: Moving) -> consumer_module.CommittedReader:
    def made(properties: dict[str, Any]) -> Moving:
        return consumer

    monkeypatch.setattr(consumer_module, "Consumer", made)
    return consumer_module.CommittedReader(KafkaSettings(bootstrap_servers=["127.0.0.1:1"]))


def test_end_waits_for_a_moving_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = [KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, (3, 8)]
    consumer = Moving(moving)
    assert reader(monkeypatch, consumer).end("t", 0) == 8
    assert consumer.asked_for_leaders == 2


def test_log_end_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client knows no leader of a new topic."""
    consumer, place = Moving([]), TopicPartition("t", 0)
    made = reader(monkeypatch, consumer)
    answers: list[Any] = [KafkaException(KafkaError(KafkaError._NOENT)), SimpleNamespace(offset=7)]

    def list_offsets(*_: object, **__: object) -> dict[TopicPartition, Any]:
        answer: Future[Any] = Future()
        found = answers.pop(0)
        answer.set_exception(found) if isinstance(found, Exception) else answer.set_result(found)
        return {place: answer}

    stand_in: Any = SimpleNamespace(list_offsets=list_offsets)
    made._admin = stand_in
    assert made._log_end(place, 5.0) == 7
    assert consumer.asked_for_leaders == 1


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Moving([KafkaError._TIMED_OUT, (3, 8)])
    with pytest.raises(RetriableError, match=r"looking for the end of t \[0\] failed: _TIMED_OUT"):
        reader(monkeypatch, consumer).end("t", 0)
    assert consumer.asked_for_leaders == 0


@pytest.mark.parametrize(
    ("code", "words", "is_of_the_group"),
    [
        (KafkaError._AUTHENTICATION, "FindCoordinator response error: Local: Authentication failure", True),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "group", True),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Fetch from broker 1 failed", False),
    ],
)
def test_errors_of_the_unused_group_are_ignored(code: int, words: str, is_of_the_group: bool) -> None:
    """Librdkafka looks for its coordinator although no group is used."""
    message: Any = SimpleNamespace(error=lambda: KafkaError(code, words))
    if is_of_the_group:
        assert consumer_module._is_no_record(message)
    else:
        with pytest.raises(KafkaException):
            consumer_module._is_no_record(message)
