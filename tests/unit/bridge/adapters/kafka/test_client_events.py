"""The callbacks of the Kafka clients, without a client."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from bridge.adapters.kafka import client_events
from bridge.adapters.kafka.client_events import ConnectionErrors, DeliveryErrors, ThrottleListener
from bridge.config.document import KafkaSettings

SETTINGS = KafkaSettings(bootstrap_servers=["a:1"])


class Code:
    """An error with the name of its code, and a message."""

    def __init__(self, name: str, words: str = "") -> None:
        self._name, self._words = name, words

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._words


def test_refused_login_is_remembered_until_a_call_succeeds() -> None:
    heard = ConnectionErrors(SETTINGS)
    heard(Code("_AUTHENTICATION", "wrong password"))
    heard(Code("_TRANSPORT", "connection refused"))
    heard(Code("_ALL_BROKERS_DOWN", "all down"))
    assert "wrong password" in str(heard.access)
    assert heard.last == "connection refused"
    heard.clear()
    assert (heard.access, heard.last) == (None, None)


def test_repeated_login_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka answers as a listener without logins, but that listener has accepted a login of this process."""
    monkeypatch.setattr(client_events, "_accepted_logins", set())
    sasl = {"mechanism": "OAUTHBEARER", "token": {"env": "T"}}
    settings = KafkaSettings.model_validate({"bootstrap_servers": ["a:1"], "sasl": sasl})
    words = (
        "sasl_ssl://a:1/1: SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL "
        "state: broker's supported mechanisms:  (after 1ms in state AUTH_HANDSHAKE)"
    )
    refused = Code("_AUTHENTICATION", words)
    heard = ConnectionErrors(settings)
    heard(refused)
    assert "takes no login there" in str(heard.access)
    heard.login_accepted()
    later = ConnectionErrors(settings)
    later(refused)
    assert later.access is None
    assert later.last == (
        "Kafka at a:1 refused a second login within a second of the first, which it does if a token is about to "
        f"expire; the next connection succeeds ({' '.join(words.split())})"
    )
    later(Code("_AUTHENTICATION", "wrong token"))
    assert "wrong token" in str(later.access)
    elsewhere = ConnectionErrors(KafkaSettings.model_validate({"bootstrap_servers": ["b:1"], "sasl": sasl}))
    elsewhere(refused)
    assert "takes no login there" in str(elsewhere.access)


def test_first_refused_record_is_kept() -> None:
    """Errors of later records follow from the first one, and other failures do not concern the record."""

    def record(topic: str, value: bytes) -> SimpleNamespace:
        return SimpleNamespace(topic=lambda: topic, key=lambda: None, value=lambda: value)

    refused = DeliveryErrors()
    refused(None, record("good", b""))
    refused(Code("_PURGE_QUEUE"), record("purged", b""))
    assert refused.refusal is None
    refused(Code("MSG_SIZE_TOO_LARGE"), record("first", b"12345"))
    refused(Code("MSG_SIZE_TOO_LARGE"), record("second", b""))
    assert refused.refusal is not None
    assert "topic first (MSG_SIZE_TOO_LARGE; its first has 5 bytes)" in refused.refusal


def test_every_wait_counts_and_one_a_minute_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, waits_s = [100.0], list[float]()
    monkeypatch.setattr(client_events, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    throttled = ThrottleListener("id", waits_s.append)
    with caplog.at_level(logging.WARNING):
        for at_s, wait_s in ((100.0, 0.0), (101.0, 1.5), (160.0, 2.0), (161.0, 3.0)):
            now_s[0] = at_s
            throttled(SimpleNamespace(broker_name="b1", throttle_time=wait_s))
    assert waits_s == [0.0, 1.5, 2.0, 3.0]
    assert [one.getMessage().partition(" because")[0] for one in caplog.records] == [
        "id: Kafka's broker b1 throttles it for 1.5 s",
        "id: Kafka's broker b1 throttles it for 3.0 s",
    ]
