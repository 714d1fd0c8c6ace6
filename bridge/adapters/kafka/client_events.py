"""Callbacks of the Kafka clients, and checks for failures that the clients do not explain. Imports no client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from bridge.adapters.kafka.errors import (
    access_error,
    is_access,
    is_no_login_reply,
    is_unknown,
    is_unpublishable,
    repeated_login_message,
)
from bridge.adapters.tls_probe import accepts_connections, find_tls_problem, speaks_plaintext_kafka
from bridge.config.document import KafkaSettings
from bridge.errors import AccessError, RetriableError

_log = logging.getLogger(__name__)
_THROTTLE_LOG_EVERY_S: Final = 60.0

_accepted_logins: set[tuple[tuple[str, ...], str | None]] = set()
"""The brokers that accepted a login of this process, with the SASL mechanism. Clients are replaced; listeners stay."""


class Error(Protocol):
    """The client's `KafkaError`."""

    def name(self) -> str:
        """The name of the error code."""

    def str(self) -> str:
        """The error's message."""


class Message(Protocol):
    """The client's `Message`."""

    def topic(self) -> str | None:
        """The record's topic."""

    def key(self) -> bytes | None:
        """The record's key."""

    def value(self) -> bytes | None:
        """The record's value."""


class Throttling(Protocol):
    """The client's `ThrottleEvent`."""

    broker_name: str
    throttle_time: float


class ConnectionErrors:
    """Remembers the connection errors that a client reports; the client's `error_cb`.

    It must not refer to the client: a reference cycle would keep the client alive.

    Args:
        settings: how the client reaches Kafka; for messages.

    Attributes:
        access: the failed login or TLS handshake; None if there was none since `clear`.
        last: the last other connection error, as text; None if there was none since `clear`.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.access: AccessError | None = None
        self.last: str | None = None

    def __call__(self, error: Error) -> None:
        """Remember an error."""
        if is_access(error.name()):
            if self.is_repeated_login(error.str()):
                self.last = repeated_login_message(self._settings, error.str())
            else:
                self.access = access_error(self._settings, error.name(), error.str())
        elif error.name() in ("_TRANSPORT", "_RESOLVE"):
            self.last = error.str()

    def login_accepted(self) -> None:
        """Record that a broker has answered, so its listener accepts our logins."""
        _accepted_logins.add(self._listener)

    def is_repeated_login(self, reason: str) -> bool:
        """Whether a login was refused because it came too soon after another login."""
        return self._listener in _accepted_logins and is_no_login_reply(reason)

    @property
    def _listener(self) -> tuple[tuple[str, ...], str | None]:
        return tuple(self._settings.bootstrap_servers), self._settings.sasl.mechanism

    def clear(self) -> None:
        """Forget all errors: a call has succeeded, so they do not explain later failures."""
        self.access = self.last = None


class DeliveryErrors:
    """Remembers the first records that were not delivered; the client's `on_delivery`.

    It must not refer to the client: a reference cycle would keep the client alive.

    Attributes:
        refusal: the message for the first batch whose records a broker refused; None if there was none.
        lost: why the first undelivered record was not delivered; None if there was none. The transaction's own error
            only contains the number of undelivered records.
    """

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.lost: str | None = None

    def __call__(self, error: Error | None, message: Message) -> None:
        """Remember an error; ignore a successful delivery (None)."""
        if error is not None and self.lost is None:
            question = "; was it deleted?" if is_unknown(error.name()) else ""
            self.lost = f"topic {message.topic()}: {error.name()} ({error.str()}){question}"
        if error is not None and is_unpublishable(error.name()) and self.refusal is None:
            size = len(message.key() or b"") + len(message.value() or b"")
            self.refusal = (
                f"refused a batch of records for topic {message.topic()} ({error.name()}; its first has {size} bytes). "
                "If the topic's max.message.bytes was lowered, the next start uses the new limit, provided that "
                f"the bridge's user has the right DescribeConfigs on topic {message.topic()}; if "
                "kafka.properties.message.max.bytes is set, lower it, or raise the topic's"
            )


class ThrottleListener:
    """Counts how long brokers throttle a client, and logs it at most once a minute; the client's `throttle_cb`.

    It must not refer to the client: a reference cycle would keep the client alive.

    Args:
        name: the client's name, for log messages.
        count: receives each wait, in s.
    """

    def __init__(self, name: str, count: Callable[[float], None]) -> None:
        self._name = name
        self._count = count
        self._logged_s = float("-inf")

    def __call__(self, event: Throttling) -> None:
        """Count a wait."""
        self._count(event.throttle_time)
        now_s = time.monotonic()
        if event.throttle_time > 0 and now_s - self._logged_s >= _THROTTLE_LOG_EVERY_S:
            self._logged_s = now_s
            _log.warning(
                "%s: Kafka's broker %s throttles it for %.1f s because of a quota; nothing is lost, it takes longer",
                self._name,
                event.broker_name,
                event.throttle_time,
            )


def raise_tls_problem(settings: KafkaSettings) -> None:
    """Raise an error if TLS with a broker can't work; librdkafka does not report the reason.

    Raises:
        AccessError: the settings and a broker's TLS do not fit; the message names the setting.
    """
    for address in settings.bootstrap_servers:
        problem = find_tls_problem(address, settings.tls, "kafka.tls")
        if problem is None and settings.tls.enabled and speaks_plaintext_kafka(address):
            # A broker without TLS closes the connection, which alone may have any other reason.
            problem = "it does not speak TLS there; see kafka.tls.enabled"
        if problem is not None:
            raise AccessError(f"Kafka at {address}: {problem}")


def raise_if_not_kafka(settings: KafkaSettings) -> None:
    """Raise an error if a bootstrap server accepts connections but does not answer as Kafka.

    Raises:
        RetriableError: another server answers there, or one that requires a login.
    """
    for address in settings.bootstrap_servers:
        if accepts_connections(address):
            login = "" if settings.sasl.mechanism else ", or does it want a login (kafka.sasl)"
            raise RetriableError(
                f"Kafka at {address}: something takes connections there, but does not answer as Kafka does; is it "
                f"the port of another server (kafka.bootstrap_servers){login}?"
            )
