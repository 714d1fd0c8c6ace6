"""What all Kafka clients share: errors translated into ours, and a connection that is up before it is needed."""

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


class KafkaClient:
    """What all clients have: errors with a meaning.

    Of a failed login or handshake librdkafka tells by the way only: the call itself fails for want of a connection. It
    says so once in a while, not each time, so it is remembered until a call succeeds.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._address = ", ".join(settings.bootstrap_servers)
        self._settings = settings
        self._errors = ConnectionErrors(settings)

    def _run_callbacks(self) -> None:
        """Have the client call back with what it has to tell."""
        raise NotImplementedError

    @contextmanager
    def _translating_errors(self, what: str, needs: str | None = None) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._translate(error, what, needs) from error
        self._errors.clear()

    def _translate(self, error: KafkaException, what: str, needs: str | None = None) -> BridgeError:
        cause = error.args[0]
        if errors.is_access(cause.name()):
            if self._errors.is_repeated_login(cause.str()):
                return RetriableError(errors.repeated_login_message(self._settings, cause.str()))
            return errors.access_error(self._settings, cause.name(), cause.str())
        message = f"Kafka at {self._address}: {what} failed: {error_text(error)}"
        meant = errors.to_bridge_error(cause.name(), message, needs)
        if not isinstance(meant, RetriableError):
            return meant
        self._run_callbacks()
        if self._errors.access is None and self._errors.last is not None:
            return RetriableError(f"{message}; last heard: {self._errors.last}")
        return self._errors.access or meant


def open_connection(client: Producer | AdminClient, topic: str, timeout_s: float) -> None:
    """Have a new client's connection up, by asking for a topic twice.

    The first answer makes the client drop the connection that it came by. If it needs a coordinator or a leader before
    the next is up, it waits long before it diagnose again: 500 ms for a coordinator, and that every other time.
    """
    deadline = time.monotonic() + timeout_s
    for _ in range(2):
        client.list_topics(topic, timeout=max(MIN_TIMEOUT_S, deadline - time.monotonic()))


def error_text(error: KafkaException) -> str:
    """An error of the client as text: the name of its code, and its message in brackets."""
    cause = error.args[0]
    return f"{cause.name()} ({cause.str()})"
