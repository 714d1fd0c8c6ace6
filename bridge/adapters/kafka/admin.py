"""Kafka administration: topics and their settings, and whether the brokers answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported explicitly
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
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
_FIRST_TRY_S: Final = 0.5
_POLL_S: Final = 0.1
_URL_SAFE: Final = str.maketrans("+/", "-_")
_NO_TOPIC_ID: Final = "A" * 22
"""Sixteen zero bytes in base64."""

_T = TypeVar("_T")


class KafkaAdmin(KafkaClient):
    """Creates and describes topics.

    Args:
        settings: how to reach Kafka.
        quiet: True for a client that does not log unreachable brokers.
    """

    def __init__(self, settings: KafkaSettings, *, quiet: bool = False) -> None:
        super().__init__(settings)
        with self._translating_errors("making a client (see kafka.properties)"):
            callbacks = {"error_cb": self._errors} | ({"logger": _quiet_logger()} if quiet else {})
            self._client = AdminClient(client_properties(settings) | callbacks)

    def _run_callbacks(self) -> None:
        self._client.poll(0)

    def ping(self, timeout_s: float = 5.0) -> None:
        """Read the cluster's metadata once.

        Args:
            timeout_s: how long to wait for an answer, in s.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse the login, or TLS fails.
        """
        with self._translating_errors("reading the cluster's metadata"):
            self._list_topics(timeout_s, diagnose=True)

    def _list_topics(self, timeout_s: float, *, diagnose: bool = False) -> Mapping[str, Any]:
        """The metadata of all topics.

        A request for one topic by name would create it, on brokers that create topics automatically.

        Args:
            timeout_s: how long to try, in s.
            diagnose: whether to look for a cause of a failure that the client does not report.
        """
        deadline = time.monotonic() + timeout_s
        # Several tries: in between, the client reports a refused login. Each try is longer than the one before: the
        # metadata of a large cluster takes long.
        try_s = _FIRST_TRY_S
        while True:
            left_s = deadline - time.monotonic()
            try:
                found = self._client.list_topics(timeout=max(MIN_TIMEOUT_S, min(try_s, left_s))).topics
            except KafkaException:
                self._run_callbacks()
                if diagnose and try_s == _FIRST_TRY_S:
                    raise_tls_problem(self._settings)
                if left_s <= try_s or self._errors.access is not None:
                    if diagnose and self._errors.access is None and self._errors.last is None:
                        raise_if_not_kafka(self._settings)
                    raise
                try_s *= 2
            else:
                self._errors.login_accepted()
                return found

    def _await_answer(self, future: Future[_T], timeout_s: float) -> _T:
        """Wait for the answer to a request, but no longer than until the client reports a refused login.

        Raises:
            AccessError: the brokers refuse the login, or TLS fails.
            RetriableError: there was no answer within `timeout_s`.
            KafkaException: the request failed.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = future.result(_POLL_S)
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
        """How many partitions a topic has; 0 if it does not exist.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse the login, or a right is missing.
        """
        with self._translating_errors(f"looking for topic {topic}"):
            found = self._list_topics(10).get(topic)
            if found is None:
                return 0
            if found.error is not None:
                raise KafkaException(found.error)
            return len(found.partitions)

    def has_records(self, topic: str) -> bool:
        """Whether a topic holds records, or held some that Kafka has deleted since; False if it does not exist.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse the login, or a right is missing.
        """
        latest = {
            TopicPartition(topic, number): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for number in range(self.partitions(topic))
        }
        if not latest:
            return False
        with self._translating_errors(f"looking for records of topic {topic}", f"Write on topic {topic}"):
            answers = self._client.list_offsets(
                latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10
            )
            return any(self._await_answer(answer, 15).offset > 0 for answer in answers.values())

    def record_limit(self, topics: Sequence[str]) -> int | None:
        """The smallest `max.message.bytes` of several topics; None if it is not known for any of them.

        Raises:
            RetriableError: no broker answers.
        """
        limits = [found.get("max.message.bytes") for found in self.topic_settings(topics).values()]
        return min((int(limit) for limit in limits if limit is not None), default=None)

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The settings of topics, by topic and name.

        A topic is left out if it does not exist, or if the bridge's user lacks the right DescribeConfigs.

        Raises:
            RetriableError: no broker answers.
        """
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        found = {}
        for resource, answer in self._client.describe_configs(resources, request_timeout=10).items():
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
        """The ids and partition counts of topics, by name.

        A topic is left out if it does not exist, if the bridge's user has no right to see it, or if it has no id.
        Brokers older than Kafka 2.8 give topics no ids, and neither do some other servers with Kafka's protocol.

        Raises:
            RetriableError: no broker answers.
        """
        found = {}
        # This request creates no topics.
        for name, answer in self._client.describe_topics(TopicCollection(list(topics)), request_timeout=10).items():
            with self._translating_errors("describing topics"):
                try:
                    topic = self._await_answer(answer, 15)
                except KafkaException as error:
                    if not errors.is_unknown_or_hidden(error.args[0].name()):
                        raise
                else:
                    # The form that Kafka's own tools print.
                    topic_id = str(topic.topic_id).translate(_URL_SAFE)
                    if topic_id != _NO_TOPIC_ID:
                        found[name] = CurrentTopic(topic_id, len(topic.partitions))
        return found

    def total_end(self, topics: Sequence[str]) -> int:
        """The sum of the ends of all partitions of topics, records in open transactions included.

        It grows with each record that a broker takes. A topic that does not exist counts as empty.

        Raises:
            RetriableError: no broker answers, or a partition has no leader.
            StartupError: the brokers refuse the login, or a right is missing.
        """
        with self._translating_errors("looking for the ends of topics"):
            known = self._list_topics(10)
            places = [
                TopicPartition(topic, partition)
                for topic in topics
                for partition in (known[topic].partitions if topic in known else ())
            ]
            if not places:
                return 0
            latest = {place: OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
            answers = self._client.list_offsets(
                latest, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=10
            )
            return sum(self._await_answer(answer, 15).offset for answer in answers.values())

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str], *, grow: bool = False) -> bool:
        """Create a topic if it does not exist.

        Args:
            topic: its name.
            partitions: how many partitions the topic needs.
            config: settings of a new topic.
            grow: whether to add missing partitions to an existing topic.

        Returns:
            Whether the topic did not exist.

        Raises:
            RetriableError: the brokers do not answer.
            StartupError: a right is missing, or the brokers do not accept the settings.
        """
        existing = self.partitions(topic)
        is_new = existing == 0
        if is_new:
            existing = self._create_topic(topic, partitions, config)
        if existing < partitions and grow:
            with self._translating_errors(f"adding partitions to topic {topic}", f"Alter on topic {topic}"):
                self._await_answer(self._client.create_partitions([NewPartitions(topic, partitions)])[topic], 30)
            self._await_partitions(topic, partitions)
        return is_new

    def _create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> int:
        """Create a topic, and return its number of partitions; another client may create it at the same time."""
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
                return self._await_existing_topic(topic)
        self._await_partitions(topic, partitions)
        return partitions

    def _await_existing_topic(self, topic: str) -> int:
        # Either another client has just created the topic, or it exists and our user has no right to see it.
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
        # The request returns before every broker's metadata has the topic; producing before that would fail.
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
