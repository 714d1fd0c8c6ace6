"""Kafka clients: the only module that imports `confluent_kafka` (the registry's client apart).

Thin: settings become librdkafka's properties in `kafka_properties`, its errors become ours in `kafka_errors`, and what
it tells by the way is heard in `kafka_heard`. What is written when is decided in `bridge.publishing.protocol`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not re-exported explicitly
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.client_events import Heard, Refused, Throttled, look_at_tls, look_who_is_there
from bridge.adapters.kafka.properties import client_properties, producer_properties
from bridge.adapters.kafka.records import Record
from bridge.config.document import KafkaSettings
from bridge.errors import BridgeError, PoisonError, RetriableError, StartupError, TooLargeError
from bridge.publishing.topic_identity import CurrentTopic
from schemas.compiled.page_loop import PlainChange

_log = logging.getLogger(__name__)
_FIRST_TURN_S: Final = 0.5
_LEAST_S: Final = 0.1
_TURN_S: Final = 0.1
_IN_URLS: Final = str.maketrans("+/", "-_")
_NO_TOPIC_ID: Final = "A" * 22
"""Sixteen bytes of zeros."""
_OF_THE_GROUP: Final = "FindCoordinator response error"
"""How librdkafka begins what it says of a group's coordinator that can't be reached."""
_BY_KEY: Final = -1

_T = TypeVar("_T")


class _Client:
    """What all clients have: errors with a meaning.

    Of a failed login or handshake librdkafka tells by the way only: the call itself fails for want of a connection. It
    says so once in a while, not each time, so it is remembered until a call succeeds.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._address = ", ".join(settings.bootstrap_servers)
        self._settings = settings
        self._heard = Heard(settings)

    def _serve(self) -> None:
        """Have the client call back with what it has to tell."""
        raise NotImplementedError

    @contextmanager
    def _meaning(self, what: str, needs: str | None = None) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._translated(error, what, needs) from error
        self._heard.forget()

    def _translated(self, error: KafkaException, what: str, needs: str | None = None) -> BridgeError:
        cause = error.args[0]
        if errors.is_access(cause.name()):
            if self._heard.is_again(cause.str()):
                return RetriableError(errors.again(self._settings, cause.str()))
            return errors.access_error(self._settings, cause.name(), cause.str())
        message = f"Kafka at {self._address}: {what} failed: {_text(error)}"
        meant = errors.meant(cause.name(), message, needs)
        if not isinstance(meant, RetriableError):
            return meant
        self._serve()
        if self._heard.access is None and self._heard.last is not None:
            return RetriableError(f"{message}; last heard: {self._heard.last}")
        return self._heard.access or meant


class TransactionalProducer(_Client):
    """The producer of one transactional id. One thread only. After any error it is good for nothing but `close`.

    Args:
        settings: how to reach Kafka.
        transactional_id: the id.
        known_topic: one of the topics that are written to, which exists.
        topics_limit: the smallest `max.message.bytes` of the topics that are written to; None where it is not known.
        throttled: told of each wait, in s, that a broker imposes for a quota.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        transactional_id: str,
        *,
        known_topic: str,
        topics_limit: int | None = None,
        throttled: Callable[[float], None] = lambda _s: None,
    ) -> None:
        self.transactional_id = transactional_id
        super().__init__(settings)
        self._refused = Refused()
        self._timeout_s = settings.transaction_timeout_ms / 1000
        self._sasl = settings.sasl
        self._topics: set[str] = set()
        self._known_topic = known_topic
        self._id_resource = f"transactional id {transactional_id}"
        with self._meaning("making a producer"):
            properties = producer_properties(settings, transactional_id, topics_limit)
            self._password: str | None = properties.get("sasl.password")
            self._most_bytes = properties["message.max.bytes"]
            callbacks = {
                "error_cb": self._heard,
                "on_delivery": self._refused,
                "throttle_cb": Throttled(transactional_id, throttled),
            }
            self._producer = Producer({**properties, **callbacks})

    def _serve(self) -> None:
        self._producer.poll(0)

    def init(self) -> None:
        """Fence older owners of the id and settle their transaction (60-75 ms; up to 1 s with one open).

        Raises:
            RetriableError: the coordinator can't be reached or is busy.
            StartupError: this principal may not use the id.
        """
        with self._meaning(f"init_transactions of {self.transactional_id}", f"Write on {self._id_resource}"):
            deadline = time.monotonic() + self._timeout_s
            _connect(self._producer, self._known_topic, self._timeout_s)
            self._heard.let_in()
            self._producer.init_transactions(max(_LEAST_S, deadline - time.monotonic()))

    def begin(self) -> None:
        """Begin a transaction; errors as `commit`. Connections made from now on log in with the password of now."""
        self._renew_password()
        with self._meaning(f"begin_transaction of {self.transactional_id}"):
            self._producer.begin_transaction()

    def _renew_password(self) -> None:
        if self._password is None or self._sasl.username is None or self._sasl.password is None:
            return
        password = self._sasl.password.reveal("kafka.sasl.password")
        if password != self._password:
            self._producer.set_sasl_credentials(self._sasl.username, password)
            self._password = password
            _log.info("%s: kafka.sasl.password has changed; new connections use it", self.transactional_id)

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Any = None,
        partition: int | None = None,
    ) -> None:
        """Queue a record of the open transaction; waits while the queue is full.

        Raises:
            TooLargeError: the record is larger than the settings or the topics allow; the transaction can go on.
            PoisonError: a broker has refused an earlier one.
            FencedError: a newer owner of the id exists.
            RetriableError: the queue did not drain within the transaction's timeout.
        """
        self._topics.add(topic)
        at = _BY_KEY if partition is None else partition
        try:
            self._producer.produce(topic, value, key, at, None, None, 0, headers)
        except BufferError:
            self._produce_late(topic, value, key, at, headers)
        except KafkaException as error:
            raise self._not_taken(error, topic, key, value) from error

    def produce_run(
        self, topic: str, frames: tuple[bytes, bytes], records: Iterable[PlainChange], position_header: str | None
    ) -> None:
        """Queue records, each into the partition that follows from its key; else as `produce`.

        They are taken one after the other: when an error is raised, the last one taken is what it is about.

        Args:
            topic: where they go.
            frames: what stands before each key and before each value.
            records: as the table's loops have made them.
            position_header: name of the header that holds their positions; None for no headers.
        """
        self._topics.add(topic)
        produce, (before_key, before_value) = self._producer.produce, frames
        for _, key, value, position in records:
            headers: Any = None if position_header is None else {position_header: position}
            try:
                # By position: naming the arguments takes as long again.
                produce(topic, before_value + value, before_key + key, _BY_KEY, None, None, 0, headers)
            except BufferError:
                self._produce_late(topic, before_value + value, before_key + key, _BY_KEY, headers)
            except KafkaException as error:
                raise self._not_taken(error, topic, before_key + key, before_value + value) from error

    def _produce_late(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: Any,
    ) -> None:
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._producer.poll(0.05)
            try:
                self._producer.produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetriableError(
                        f"Kafka at {self._address} took no record of {topic} for {self._timeout_s:.0f} s"
                    ) from None
            except KafkaException as error:
                raise self._not_taken(error, topic, key, value) from error
            else:
                return

    def _not_taken(self, error: KafkaException, topic: str, key: bytes | None, value: bytes | None) -> BridgeError:
        if not errors.is_poison(error.args[0].name()):
            return self._translated(error, f"producing to {topic}", f"Write on topic {topic}")
        size = len(key or b"") + len(value or b"")
        return TooLargeError(
            f"a record of {size} bytes for topic {topic} is over the limit of {self._most_bytes} bytes. "
            "Raise the topic's max.message.bytes, or, if it is set, kafka.properties.message.max.bytes"
        )

    def _translated(self, error: KafkaException, what: str, needs: str | None = None) -> BridgeError:
        meant = super()._translated(error, what, needs)
        if isinstance(meant, PoisonError):
            self._serve()  # which record it was comes by its delivery report
        if isinstance(meant, RetriableError | PoisonError) and self._refused.words is not None:
            # The transaction only says that something was not delivered.
            return PoisonError(f"Kafka at {self._address} {self._refused.words}")
        if isinstance(meant, RetriableError) and self._refused.lost is not None:
            return RetriableError(f"{meant}; {self._refused.lost}")
        return meant

    def commit(self) -> None:
        """Commit the open transaction; everything in it becomes visible at once.

        Raises:
            FencedError, RetriableError: it is unknown whether the transaction was committed; only the progress read
                by the id's next owner tells.
        """
        needs = f"Write on {self._id_resource} and on {' and '.join(f'topic {one}' for one in sorted(self._topics))}"
        with self._meaning(f"commit_transaction of {self.transactional_id}", needs):
            self._producer.commit_transaction(self._timeout_s)

    def abort(self) -> None:
        """Abort the open transaction; errors are logged only, because the id's next owner settles it anyway."""
        try:
            self._producer.abort_transaction(10.0)
        except KafkaException as error:
            # A transaction that is another owner's by now, or over, is none of ours to abort.
            level = logging.DEBUG if errors.is_over(error.args[0].name()) else logging.WARNING
            _log.log(level, "aborting a transaction of %s failed: %s", self.transactional_id, _text(error))

    def close(self) -> None:
        """Let go of the client; what is still queued is dropped."""
        self._producer.purge()
        del self._producer


class KafkaAdmin(_Client):
    """Topics: their making, and whether the brokers answer.

    Args:
        settings: how to reach Kafka.
        quiet: whether the client logs nothing of brokers that it can't reach.
    """

    def __init__(self, settings: KafkaSettings, *, quiet: bool = False) -> None:
        super().__init__(settings)
        with self._meaning("making a client (see kafka.properties)"):
            own = {"error_cb": self._heard} | ({"logger": _quiet_logger()} if quiet else {})
            self._client = AdminClient(client_properties(settings) | own)

    def _serve(self) -> None:
        self._client.poll(0)

    def ping(self, timeout_s: float = 5.0) -> None:
        """Ask for the cluster's metadata once.

        Raises:
            RetriableError: no broker answers.
            StartupError: the brokers refuse us.
        """
        with self._meaning("reading the cluster's metadata"):
            self._all_topics(timeout_s, looks=True)

    def _all_topics(self, timeout_s: float, *, looks: bool = False) -> Mapping[str, Any]:
        """Of all topics: asking for one by name makes it, on brokers that create topics by themselves.

        Args:
            timeout_s: for how long to ask.
            looks: whether to find out what the client does not tell.
        """
        deadline = time.monotonic() + timeout_s
        # In turns, because between them the client tells that it is refused; longer ones, because the metadata of
        # large clusters takes its time.
        turn_s = _FIRST_TURN_S
        while True:
            left_s = deadline - time.monotonic()
            try:
                found = self._client.list_topics(timeout=max(_LEAST_S, min(turn_s, left_s))).topics
            except KafkaException:
                self._serve()
                if looks and turn_s == _FIRST_TURN_S:
                    look_at_tls(self._settings)
                if left_s <= turn_s or self._heard.access is not None:
                    if looks and self._heard.access is None and self._heard.last is None:
                        look_who_is_there(self._settings)
                    raise
                turn_s *= 2
            else:
                self._heard.let_in()
                return found

    def _answer(self, future: Future[_T], timeout_s: float) -> _T:
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
                self._serve()
                if self._heard.access is not None:
                    raise self._heard.access from None
                if time.monotonic() > deadline:
                    raise RetriableError(f"Kafka at {self._address} gave no answer in {timeout_s:.0f} s") from None
            else:
                self._heard.let_in()
                return found

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when it does not exist."""
        with self._meaning(f"looking for topic {topic}"):
            found = self._all_topics(10).get(topic)
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
            with self._meaning("describing topics"):
                try:
                    entries = self._answer(answer, 15).values()
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
            with self._meaning("describing topics"):
                try:
                    topic = self._answer(answer, 15)
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
            with self._meaning(f"adding partitions to topic {topic}", f"Alter on topic {topic}"):
                self._answer(self._client.create_partitions([NewPartitions(topic, partitions)])[topic], 30)
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
        with self._meaning(f"making topic {topic}", f"Create on topic {topic}"):
            try:
                self._answer(self._client.create_topics([new], operation_timeout=30)[topic], 30)
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


class CommittedReader(_Client):
    """Reads committed records of chosen partitions, without a consumer group."""

    def __init__(self, settings: KafkaSettings, *, client_id: str = "scylla-cdc-bridge-reader") -> None:
        super().__init__(settings)
        self._properties: dict[str, Any] = {
            **client_properties(settings),
            "client.id": client_id,
            "error_cb": self._heard,
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
        with self._meaning("making a consumer"):
            self._consumer = Consumer(properties)

    def _serve(self) -> None:
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
        with self._meaning(f"assigning {topic}", f"Read on topic {topic}"):
            places = []
            for partition in partitions:
                at = OFFSET_BEGINNING
                if from_end:
                    _, at = self._bounds(TopicPartition(topic, partition), 10)
                places.append(TopicPartition(topic, partition, at))
            self._consumer.assign(places)

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """Up to `most` records; fewer or none after `timeout_s`.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with self._meaning("consuming", "Read on the topic"):
            return [
                _record(message) for message in self._consumer.consume(most, timeout_s) if not _tells_no_record(message)
            ]

    def end(self, topic: str, partition: int) -> int:
        """The end of what can be read of a partition: its last stable offset.

        Raises:
            RetriableError, StartupError: the brokers do not answer, or do not let us read.
        """
        with self._meaning(f"looking for the end of {topic} [{partition}]", f"Read on topic {topic}"):
            return self._bounds(TopicPartition(topic, partition), 10)[1]

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
            with self._meaning(f"reading {topic}", f"Read on topic {topic}"):
                for message in self._consumer.consume(5000, 0.2):
                    if not _tells_no_record(message):
                        yield _record(message)
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
        with self._meaning(f"reading {topic} [{partition}]", f"Read on topic {topic}"):
            low, _ = self._bounds(place, timeout_s)
            end = self._true_end(place, timeout_s)
            back = 64
            while True:
                start = max(low, end - back)
                found = self._last_between(place, start, end, deadline)
                if found is not None or start == low:
                    return found
                back *= 16

    def _bounds(self, place: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """The first offset of a partition and its last stable one."""

        def ask(left_s: float) -> tuple[int, int]:
            low, end = self._consumer.get_watermark_offsets(place, timeout=left_s)
            return int(low), int(end)

        return self._led(place, timeout_s, ask)

    def _led(self, place: TopicPartition, timeout_s: float, ask: Callable[[float], _T]) -> _T:
        """What a partition's leader answers, given the time that is left in s.

        librdkafka gives up at once where that leader is only being chosen or has just moved.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = ask(max(_LEAST_S, deadline - time.monotonic()))
            except KafkaException as error:
                if not errors.is_moving(error.args[0].name()) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                self._consumer.list_topics(place.topic, timeout=timeout_s)  # who leads it now
            else:
                self._heard.let_in()
                return found

    def _true_end(self, place: TopicPartition, timeout_s: float) -> int:
        """The partition's end, open transactions included."""
        if self._admin is None:
            self._admin = AdminClient(self._properties)
            # Without, it takes 3 s in one of 100.
            _connect(self._admin, place.topic, timeout_s)
        admin = self._admin

        def ask(left_s: float) -> int:
            found = admin.list_offsets(
                {place: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=left_s,
            )
            end: int = found[place].result(left_s).offset
            return end

        return self._led(place, timeout_s, ask)

    def _last_between(self, place: TopicPartition, start: int, end: int, deadline: float) -> Record | None:
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
                if _tells_no_record(message):
                    reached = message.offset()
                    if reached is not None and reached >= end:
                        return found
                    continue
                found = _record(message)
        finally:
            self._consumer.unassign()


def _quiet_logger() -> logging.Logger:
    logger = logging.getLogger("librdkafka.quiet")
    if _log.getEffectiveLevel() > logging.DEBUG:
        logger.setLevel(logging.CRITICAL + 1)
    return logger


def _connect(client: Producer | AdminClient, topic: str, timeout_s: float) -> None:
    """Have a new client's connection up, by asking for a topic twice.

    The first answer makes the client drop the connection that it came by. If it needs a coordinator or a leader before
    the next is up, it waits long before it looks again: 500 ms for a coordinator, and that every other time.
    """
    deadline = time.monotonic() + timeout_s
    for _ in range(2):
        client.list_topics(topic, timeout=max(_LEAST_S, deadline - time.monotonic()))


def _tells_no_record(message: Message) -> bool:
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


def _record(message: Message) -> Record:
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


def _text(error: KafkaException) -> str:
    cause = error.args[0]
    return f"{cause.name()} ({cause.str()})"
