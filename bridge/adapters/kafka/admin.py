"""Topics, and whether the brokers answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported explicitly
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.client import MIN_TIMEOUT_S, KafkaClient
from bridge.adapters.kafka.client_events import raise_if_not_kafka, raise_tls_problem
from bridge.adapters.kafka.properties import client_properties
from bridge.config.document import KafkaSettings
from bridge.errors import RetriableError, StartupError
from bridge.publishing.topic_identity import CurrentTopic

_log = logging.getLogger(__name__)
_FIRST_TURN_S: Final = 0.5
_TURN_S: Final = 0.1
_IN_URLS: Final = str.maketrans("+/", "-_")
_NO_TOPIC_ID: Final = "A" * 22
"""Sixteen bytes of zeros."""

_T = TypeVar("_T")


class KafkaAdmin(KafkaClient):
    """Topics: their making, and whether the brokers answer.

    Args:
        settings: how to reach Kafka.
        quiet: whether the client logs nothing of brokers that it can't reach.
    """

    def __init__(self, settings: KafkaSettings, *, quiet: bool = False) -> None:
        super().__init__(settings)
        with self._translating_errors("making a client (see kafka.properties)"):
            own = {"error_cb": self._errors} | ({"logger": _quiet_logger()} if quiet else {})
            self._client = AdminClient(client_properties(settings) | own)

    def _run_callbacks(self) -> None:
        self._client.poll(0)

    def ping(self, timeout_s: float = 5.0) -> None:
        """Ask for the cluster's metadata once.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse us.
        """
        with self._translating_errors("reading the cluster's metadata"):
            self._list_topics(timeout_s, diagnose=True)

    def _list_topics(self, timeout_s: float, *, diagnose: bool = False) -> Mapping[str, Any]:
        """Of all topics: asking for one by name makes it, on brokers that create topics by themselves.

        Args:
            timeout_s: for how long to ask.
            diagnose: whether to find out what the client does not tell.
        """
        deadline = time.monotonic() + timeout_s
        # In turns, because between them the client tells that it is refused; longer ones, because the metadata of
        # large clusters takes its time.
        turn_s = _FIRST_TURN_S
        while True:
            left_s = deadline - time.monotonic()
            try:
                found = self._client.list_topics(timeout=max(MIN_TIMEOUT_S, min(turn_s, left_s))).topics
            except KafkaException:
                self._run_callbacks()
                if diagnose and turn_s == _FIRST_TURN_S:
                    raise_tls_problem(self._settings)
                if left_s <= turn_s or self._errors.access is not None:
                    if diagnose and self._errors.access is None and self._errors.last is None:
                        raise_if_not_kafka(self._settings)
                    raise
                turn_s *= 2
            else:
                self._errors.login_accepted()
                return found

    def _await_answer(self, future: Future[_T], timeout_s: float) -> _T:
        """What a future gives; awaited no longer once the client tells that it is refused.

        Raises:
            AccessError: it is.
            RetriableError: it gave nothing in time.
            KafkaException: as the future.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = future.result(_TURN_S)
            except TimeoutError:
                self._run_callbacks()
                if self._errors.access is not None:
                    raise self._errors.access from None
                if time.monotonic() > deadline:
                    raise RetriableError(f"Kafka at {self._address} gave no answer in {timeout_s:.0f} s") from None
            else:
                self._errors.login_accepted()
                return found

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when it does not exist."""
        with self._translating_errors(f"looking for topic {topic}"):
            found = self._list_topics(10).get(topic)
            if found is None:
                return 0
            if found.error is not None:
                raise KafkaException(found.error)
            return len(found.partitions)

    def most_record_bytes(self, topics: Sequence[str]) -> int | None:
        """The smallest `max.message.bytes` of some topics, as far as they exist and we may ask; errors as below."""
        limits = [found.get("max.message.bytes") for found in self.topic_settings(topics).values()]
        return min((int(limit) for limit in limits if limit is not None), default=None)

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """What is configured of topics; without those that do not exist, or that we may not ask of (DescribeConfigs).

        Raises:
            RetriableError: no broker answers.
        """
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = {}
        for resource, answer in self._client.describe_configs(asked, request_timeout=10).items():
            with self._translating_errors("describing topics"):
                try:
                    entries = self._await_answer(answer, 15).values()
                except KafkaException as error:
                    if not errors.is_unknown_or_hidden(error.args[0].name()):
                        raise
                else:
                    found[resource.name] = {entry.name: entry.value for entry in entries if entry.value is not None}
        return found

    def topics_now(self, topics: Sequence[str]) -> dict[str, CurrentTopic]:
        """Which topics these are; without those that do not exist, that we may not know of, or that have no id.

        Brokers older than Kafka 2.8 give topics no ids, as do some that only speak its protocol.

        Raises:
            RetriableError: no broker answers.
        """
        found = {}
        # This does not make topics.
        for name, answer in self._client.describe_topics(TopicCollection(list(topics)), request_timeout=10).items():
            with self._translating_errors("describing topics"):
                try:
                    topic = self._await_answer(answer, 15)
                except KafkaException as error:
                    if not errors.is_unknown_or_hidden(error.args[0].name()):
                        raise
                else:
                    # As Kafka's own tools print it.
                    topic_id = str(topic.topic_id).translate(_IN_URLS)
                    if topic_id != _NO_TOPIC_ID:
                        found[name] = CurrentTopic(topic_id, len(topic.partitions))
        return found

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str], *, grow: bool = False) -> bool:
        """Make a topic if it does not exist, and say whether it did not; with `grow`, add the partitions that it lacks.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us.
        """
        existing = self.partitions(topic)
        is_new = existing == 0
        if is_new:
            existing = self._make_topic(topic, partitions, config)
        if existing < partitions and grow:
            with self._translating_errors(f"adding partitions to topic {topic}", f"Alter on topic {topic}"):
                self._await_answer(self._client.create_partitions([NewPartitions(topic, partitions)])[topic], 30)
            self._await_partitions(topic, partitions)
        return is_new

    def _make_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> int:
        """Make it, unless somebody else just does; gives how many partitions it has."""
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=self._settings.replication_factor or -1,
            config=dict(config),
        )
        with self._translating_errors(f"making topic {topic}", f"Create on topic {topic}"):
            try:
                self._await_answer(self._client.create_topics([new], operation_timeout=30)[topic], 30)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return self._await_others_topic(topic)
        self._await_partitions(topic, partitions)
        return partitions

    def _await_others_topic(self, topic: str) -> int:
        # Made by somebody else just now, or long ago where we can't see it.
        deadline = time.monotonic() + 5
        while (found := self.partitions(topic)) == 0:
            if time.monotonic() > deadline:
                raise StartupError(
                    f"Kafka at {self._address}: topic {topic} exists, but the bridge's user can't see it; it needs the "
                    f"right Write on topic {topic}"
                )
            time.sleep(0.05)
        return found

    def _await_partitions(self, topic: str, partitions: int) -> None:
        # Creation returns before every broker's metadata has the topic; producing too early would fail.
        deadline = time.monotonic() + 30
        while self.partitions(topic) < partitions:
            if time.monotonic() > deadline:
                raise RetriableError(
                    f"Kafka at {self._address}: topic {topic} was made but does not appear; the bridge's user may lack "
                    f"the right Write on topic {topic}"
                )
            time.sleep(0.05)


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("librdkafka.quiet")
    if _log.getEffectiveLevel() > logging.DEBUG:
        logger.setLevel(logging.CRITICAL + 1)
    return logger
