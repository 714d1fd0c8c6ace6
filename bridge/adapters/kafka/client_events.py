"""What a Kafka client tells by the way, and what to look for when it tells nothing; no import of the client."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from bridge.adapters.kafka.errors import (
    access_error,
    is_access,
    is_no_login_reply,
    is_poison,
    is_unknown,
    repeated_login_message,
)
from bridge.adapters.tls_probe import accepts_connections, find_tls_problem, speaks_plaintext_kafka
from bridge.config.document import KafkaSettings
from bridge.errors import AccessError, RetriableError

_log = logging.getLogger(__name__)
_THROTTLED_EVERY_S: Final = 60.0

_accepted_logins: set[tuple[tuple[str, ...], str | None]] = set()
"""Where this process has logged in, and how: clients come and go, what the brokers' listeners take does not."""


class Error(Protocol):
    """The client's `KafkaError`."""

    def name(self) -> str:
        """The code's name."""

    def str(self) -> str:
        """In words."""


class Message(Protocol):
    """The client's `Message`."""

    def topic(self) -> str | None:
        """Where it was to go."""

    def key(self) -> bytes | None:
        """Its key."""

    def value(self) -> bytes | None:
        """Its value."""


class Throttling(Protocol):
    """The client's `ThrottleEvent`."""

    broker_name: str
    throttle_time: float


class ConnectionErrors:
    """What a client was told by the way. It must not know the client, which would then never be let go."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.access: AccessError | None = None
        self.last: str | None = None

    def __call__(self, error: Error) -> None:
        """The client's `error_cb`."""
        if is_access(error.name()):
            if self.is_repeated_login(error.str()):
                self.last = repeated_login_message(self._settings, error.str())
            else:
                self.access = access_error(self._settings, error.name(), error.str())
        elif error.name() in ("_TRANSPORT", "_RESOLVE"):
            self.last = error.str()

    def login_accepted(self) -> None:
        """A broker has answered: its listener takes our logins."""
        _accepted_logins.add(self._place)

    def is_repeated_login(self, reason: str) -> bool:
        """Whether a refusal with these words came of a login too soon after another one."""
        return self._place in _accepted_logins and is_no_login_reply(reason)

    @property
    def _place(self) -> tuple[tuple[str, ...], str | None]:
        return tuple(self._settings.bootstrap_servers), self._settings.sasl.mechanism

    def clear(self) -> None:
        """A call has succeeded: what was heard before explains nothing that comes."""
        self.access = self.last = None


class DeliveryErrors:
    """The first record that a broker refused for its size, or that was not delivered.

    Attributes:
        words: of the refusal.
        lost: why the first record that did not arrive did not; the transaction only says how many.
    """

    def __init__(self) -> None:
        self.refusal: str | None = None
        self.lost: str | None = None

    def __call__(self, error: Error | None, message: Message) -> None:
        """The client's `on_delivery`."""
        if error is not None and self.lost is None:
            gone = "; was it deleted?" if is_unknown(error.name()) else ""
            self.lost = f"topic {message.topic()}: {error.name()} ({error.str()}){gone}"
        if error is not None and is_poison(error.name()) and self.refusal is None:
            size = len(message.key() or b"") + len(message.value() or b"")
            self.refusal = (
                f"refused a batch of records for topic {message.topic()} ({error.name()}; its first has {size} bytes). "
                "If the topic's max.message.bytes was lowered, the next start goes by it, provided that "
                f"the bridge's user has the right DescribeConfigs on topic {message.topic()}; if "
                "kafka.properties.message.max.bytes is set, lower it, or raise the topic's"
            )


class ThrottleListener:
    """Adds up how long brokers had us wait, and says so now and then; as `ConnectionErrors`."""

    def __init__(self, name: str, count: Callable[[float], None]) -> None:
        self._name = name
        self._count = count
        self._said_s = float("-inf")

    def __call__(self, event: Throttling) -> None:
        """The client's `throttle_cb`."""
        self._count(event.throttle_time)
        now_s = time.monotonic()
        if event.throttle_time > 0 and now_s - self._said_s >= _THROTTLED_EVERY_S:
            self._said_s = now_s
            _log.warning(
                "%s: Kafka's broker %s has it wait %.1f s, for a quota; nothing is lost, it takes longer",
                self._name,
                event.broker_name,
                event.throttle_time,
            )


def raise_tls_problem(settings: KafkaSettings) -> None:
    """Find out what librdkafka does not tell: which of the ways it is in which a handshake can't succeed.

    Raises:
        AccessError: it is one that is known.
    """
    for address in settings.bootstrap_servers:
        wrong = find_tls_problem(address, settings.tls, "kafka.tls")
        if wrong is None and settings.tls.enabled and speaks_plaintext_kafka(address):
            # A broker hangs up on what it does not understand, which may have any other reason.
            wrong = "it does not speak TLS there; see kafka.tls.enabled"
        if wrong is not None:
            raise AccessError(f"Kafka at {address}: {wrong}")


def raise_if_not_kafka(settings: KafkaSettings) -> None:
    """Tell a port that is open, but does not answer as Kafka does, from one that is not there.

    Raises:
        RetriableError: something answers that is no Kafka.
    """
    for address in settings.bootstrap_servers:
        if accepts_connections(address):
            login = "" if settings.sasl.mechanism else ", or does it want a login (kafka.sasl)"
            raise RetriableError(
                f"Kafka at {address}: something takes connections there, but does not answer as Kafka does; is it "
                f"the port of another server (kafka.bootstrap_servers){login}?"
            )
