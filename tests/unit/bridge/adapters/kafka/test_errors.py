"""Translation of librdkafka's errors."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.adapters.kafka import errors
from bridge.config.document import KafkaSettings
from bridge.errors import FencedError, RetriableError, StartupError


def settings(**more: Any) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": "a:1,b:2", **more})


def test_error_codes_are_translated() -> None:
    """A missing right is named, a refused login is an access error, and an unknown code is retriable."""
    words = str(errors.to_bridge_error("TOPIC_AUTHORIZATION_FAILED", "m", "Write on topic t"))
    assert words == "m; the bridge's user needs the right Write on topic t"
    assert str(errors.to_bridge_error("INVALID_CONFIG", "m", "Write on topic t")) == "m"
    fenced = str(errors.to_bridge_error("PRODUCER_FENCED", "m"))
    assert "a second job with the same `name` is running: stop one of the two" in fenced
    kinds = {
        name: type(errors.to_bridge_error(name, "m")) for name in ("_FENCED", "INVALID_CONFIG", "_TRANSPORT", "NEW")
    }
    assert list(kinds.values()) == [FencedError, StartupError, RetriableError, RetriableError]
    login = errors.access_error(settings(), "_AUTHENTICATION", "no")
    assert str(login) == "Kafka at a:1, b:2 refuses the login; see kafka.sasl.mechanism (no)"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "SSL certificate OpenSSL verify result: unable to get local issuer certificate (20)",
            "gets no token: TLS failed; see kafka.sasl.token_endpoint_ca_file (",
        ),
        (
            "SSL: no alternative certificate subject name matches target host name 'a'",
            "gets no token: TLS failed; see kafka.sasl.token_endpoint_url (",
        ),
        (
            '{"error": "invalid_client"}',
            "refuses the login; see kafka.sasl.token_endpoint_url, client_id and client_secret (",
        ),
    ],
)
def test_failure_to_get_a_token_names_its_settings(said: str, words: str) -> None:
    """For a refusal of the identity provider, and for its certificate."""
    asked = settings(
        sasl={
            "mechanism": "OAUTHBEARER",
            "token_endpoint_url": "https://a/token",
            "client_id": "c",
            "client_secret": {"env": "PW"},
        }
    )
    found = errors.access_error(asked, "_AUTHENTICATION", f"Failed to acquire SASL OAUTHBEARER token: {said}")
    assert str(found).startswith(f"Kafka at {', '.join(asked.bootstrap_servers)} {words}")


@pytest.mark.parametrize(
    ("offered", "words"),
    [
        (
            "PLAIN,SCRAM-SHA-256",
            "does not take SCRAM-SHA-512 there, only PLAIN,SCRAM-SHA-256; see kafka.sasl.mechanism",
        ),
        ("", "takes no login there; leave kafka.sasl out, or name the port of a listener that takes one"),
    ],
)
def test_mechanism_that_is_not_enabled_is_named(offered: str, words: str) -> None:
    """The message lists the mechanisms that the broker offers."""
    said = (
        "sasl_plaintext://a:1/bootstrap: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Request not valid: "
        f"broker's supported mechanisms: {offered} (after 3ms in state AUTH_HANDSHAKE)"
    )
    asked = settings(sasl={"mechanism": "SCRAM-SHA-512", "username": "u", "password": {"env": "PW"}})
    found = errors.access_error(asked, "_AUTHENTICATION", said)
    assert str(found) == f"Kafka at {', '.join(asked.bootstrap_servers)} {words}"
