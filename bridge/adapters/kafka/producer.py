"""Publishes records in transactions."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.client import MIN_TIMEOUT_S, KafkaClient, error_text, open_connection
from bridge.adapters.kafka.client_events import DeliveryErrors, ThrottleListener
from bridge.adapters.kafka.properties import producer_properties
from bridge.config.document import KafkaSettings
from bridge.errors import BridgeError, RetriableError, TooLargeError, UnpublishableError
from schemas.compiled.page_loop import PlainChange

_log = logging.getLogger(__name__)
_BY_KEY: Final = -1
"""The partition number that lets the partitioner choose."""


class TransactionalProducer(KafkaClient):
    """The producer of one transactional id. For one thread.

    After `TooLargeError` the transaction can go on. After every other error only `close` may be called.

    Args:
        settings: how to reach Kafka.
        transactional_id: the id.
        known_topic: an existing topic that will be written to.
        topics_limit: the smallest `max.message.bytes`, in bytes, of the topics that will be written to; None if it is
            not known.
        throttled: receives each wait, in s, that a broker imposes for a quota.
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
        self._delivery_errors = DeliveryErrors()
        self._timeout_s = settings.transaction_timeout_ms / 1000
        self._sasl = settings.sasl
        self._topics: set[str] = set()
        self._known_topic = known_topic
        self._id_resource = f"transactional id {transactional_id}"
        with self._translating_errors("making a producer"):
            properties = producer_properties(settings, transactional_id, topics_limit)
            self._password: str | None = properties.get("sasl.password")
            self._max_bytes = properties["message.max.bytes"]
            callbacks = {
                "error_cb": self._errors,
                "on_delivery": self._delivery_errors,
                "throttle_cb": ThrottleListener(transactional_id, throttled),
            }
            self._producer = Producer({**properties, **callbacks})

    def _run_callbacks(self) -> None:
        self._producer.poll(0)

    def init(self) -> None:
        """Fence older owners of the id and end their transaction; takes 60-75 ms, up to 1 s if one is open.

        Raises:
            RetriableError: the coordinator can't be reached or is busy.
            StartupError: the bridge's user lacks the right to use the id.
        """
        with self._translating_errors(f"init_transactions of {self.transactional_id}", f"Write on {self._id_resource}"):
            deadline = time.monotonic() + self._timeout_s
            open_connection(self._producer, self._known_topic, self._timeout_s)
            self._errors.login_accepted()
            self._producer.init_transactions(max(MIN_TIMEOUT_S, deadline - time.monotonic()))

    def begin(self) -> None:
        """Begin a transaction; connections opened after this call log in with the present password.

        Raises:
            FencedError: a newer owner of the id exists.
            RetriableError: the transaction can't be begun.
            StartupError: the password can't be read.
        """
        self._renew_password()
        with self._translating_errors(f"begin_transaction of {self.transactional_id}"):
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

        Args:
            topic: the record's topic.
            key: its key; None for no key.
            value: its value; None for a tombstone.
            headers: its headers, as bytes by name; None for none.
            partition: its partition; None to choose it by the key.

        Raises:
            TooLargeError: the record is larger than the settings or the topics allow; the transaction can go on.
            UnpublishableError: a broker has refused an earlier record.
            FencedError: a newer owner of the id exists.
            RetriableError: the queue did not drain within the transaction's timeout.
        """
        self._topics.add(topic)
        at = _BY_KEY if partition is None else partition
        try:
            self._producer.produce(topic, value, key, at, None, None, 0, headers)
        except BufferError:
            self._produce_when_queue_drains(topic, value, key, at, headers)
        except KafkaException as error:
            raise self._translate_produce_error(error, topic, key, value) from error

    def produce_run(
        self, topic: str, frames: tuple[bytes, bytes], records: Iterable[PlainChange], position_header: str | None
    ) -> None:
        """Queue records of the open transaction, each in the partition that its key selects.

        The records are taken one after the other. An error refers to the last record taken.

        Args:
            topic: the records' topic.
            frames: the bytes before each key and before each value.
            records: keys and values without frames, with their positions.
            position_header: name of the header for the positions; None for no headers.

        Raises:
            TooLargeError: a record is larger than the settings or the topics allow; the transaction can go on.
            UnpublishableError: a broker has refused an earlier record.
            FencedError: a newer owner of the id exists.
            RetriableError: the queue did not drain within the transaction's timeout.
        """
        self._topics.add(topic)
        produce, (before_key, before_value) = self._producer.produce, frames
        for _, key, value, position in records:
            headers: Any = None if position_header is None else {position_header: position}
            try:
                # Positional arguments: keyword arguments double the time of the call.
                produce(topic, before_value + value, before_key + key, _BY_KEY, None, None, 0, headers)
            except BufferError:
                self._produce_when_queue_drains(topic, before_value + value, before_key + key, _BY_KEY, headers)
            except KafkaException as error:
                raise self._translate_produce_error(error, topic, before_key + key, before_value + value) from error

    def _produce_when_queue_drains(
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
                raise self._translate_produce_error(error, topic, key, value) from error
            else:
                return

    def _translate_produce_error(
        self, error: KafkaException, topic: str, key: bytes | None, value: bytes | None
    ) -> BridgeError:
        if not errors.is_unpublishable(error.args[0].name()):
            return self._translate(error, f"producing to {topic}", f"Write on topic {topic}")
        size = len(key or b"") + len(value or b"")
        return TooLargeError(
            f"a record of {size} bytes for topic {topic} is over the limit of {self._max_bytes} bytes. "
            "Raise the topic's max.message.bytes, or, if it is set, kafka.properties.message.max.bytes"
        )

    def _translate(self, error: KafkaException, action: str, needs: str | None = None) -> BridgeError:
        translated = super()._translate(error, action, needs)
        if isinstance(translated, UnpublishableError):
            # The delivery report names the topic, and the size of the first refused record.
            self._run_callbacks()
        if isinstance(translated, RetriableError | UnpublishableError) and self._delivery_errors.refusal is not None:
            # The transaction's own error does not contain the refusal.
            return UnpublishableError(f"Kafka at {self._address} {self._delivery_errors.refusal}")
        if isinstance(translated, RetriableError) and self._delivery_errors.lost is not None:
            return RetriableError(f"{translated}; {self._delivery_errors.lost}")
        return translated

    def commit(self) -> None:
        """Commit the open transaction; all of its records become visible at once.

        Raises:
            FencedError, RetriableError: the transaction may or may not be committed. Only the progress that the id's
                next owner reads shows which.
        """
        needs = f"Write on {self._id_resource} and on {' and '.join(f'topic {one}' for one in sorted(self._topics))}"
        with self._translating_errors(f"commit_transaction of {self.transactional_id}", needs):
            self._producer.commit_transaction(self._timeout_s)

    def abort(self) -> None:
        """Abort the open transaction; errors are only logged: the id's next owner ends the transaction anyway."""
        try:
            self._producer.abort_transaction(10.0)
        except KafkaException as error:
            # If the transaction is over, or another owner has fenced this producer, the failure is expected.
            level = logging.DEBUG if errors.is_transaction_over(error.args[0].name()) else logging.WARNING
            _log.log(level, "aborting a transaction of %s failed: %s", self.transactional_id, error_text(error))

    def close(self) -> None:
        """Drop the queued records and release the client."""
        self._producer.purge()
        del self._producer
