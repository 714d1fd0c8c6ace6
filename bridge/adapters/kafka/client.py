"""What all Kafka clients share: translated errors, and a connection that is open before it is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.client_events import ConnectionErrors
from bridge.config.document import KafkaSettings
from bridge.errors import BridgeError, RetriableError

MIN_TIMEOUT_S: Final = 0.1
"""The shortest timeout of a call near its deadline."""


class KafkaClient:
    """Base of all clients: translates the errors of librdkafka.

    librdkafka reports a failed login or TLS handshake only by a callback, and only once in a while. The call itself
    fails for lack of a connection. So the reported error is remembered until a call succeeds.

    Args:
        settings: how to reach Kafka.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._address = ", ".join(settings.bootstrap_servers)
        self._settings = settings
        self._errors = ConnectionErrors(settings)

    def _run_callbacks(self) -> None:
        """Let librdkafka run the callbacks that are due."""
        raise NotImplementedError

    @contextmanager
    def _translating_errors(self, action: str, needs: str | None = None) -> Iterator[None]:
        """Translate the errors of the block, and forget remembered ones if it succeeds.

        Args:
            action: what the block does, for the message.
            needs: the right that it needs, as Kafka's ACLs name it.
        """
        try:
            yield
        except KafkaException as error:
            raise self._translate(error, action, needs) from error
        self._errors.clear()

    def _translate(self, error: KafkaException, action: str, needs: str | None = None) -> BridgeError:
        cause = error.args[0]
        if errors.is_access(cause.name()):
            if self._errors.is_repeated_login(cause.str()):
                return RetriableError(errors.repeated_login_message(self._settings, cause.str()))
            return errors.access_error(self._settings, cause.name(), cause.str())
        message = f"Kafka at {self._address}: {action} failed: {error_text(error)}"
        translated = errors.to_bridge_error(cause.name(), message, needs)
        if not isinstance(translated, RetriableError):
            return translated
        self._run_callbacks()
        if self._errors.access is None and self._errors.last is not None:
            return RetriableError(f"{message}; last connection error: {self._errors.last}")
        return self._errors.access or translated


def open_connection(client: Producer | AdminClient, topic: str, timeout_s: float) -> None:
    """Open a new client's lasting connection, by requesting a topic's metadata twice.

    The first answer makes the client drop the connection that it arrived on. If the client needs a coordinator or a
    leader before its next connection is open, it waits long until it looks again: 500 ms for a coordinator, in every
    other case.

    Args:
        client: a client that has not connected yet.
        topic: an existing topic.
        timeout_s: how long to wait, in s.
    """
    deadline = time.monotonic() + timeout_s
    for _ in range(2):
        client.list_topics(topic, timeout=max(MIN_TIMEOUT_S, deadline - time.monotonic()))


def error_text(error: KafkaException) -> str:
    """An error of the client as text: the name of its code, and its message in brackets."""
    cause = error.args[0]
    return f"{cause.name()} ({cause.str()})"
