"""What librdkafka is told: where secrets come from, when tokens end, and that nothing is told that nobody set."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.adapters.kafka import errors
from bridge.adapters.kafka.properties import (
    OPAQUE_TOKEN_LIFE_S,
    QUEUE_KIB,
    client_properties,
    producer_properties,
    read_token,
)
from bridge.config.document import KafkaSettings, Secret
from bridge.errors import AccessError, FencedError, RetriableError, StartupError
from tests.unit.certificates import Authority


def settings(**more: Any) -> KafkaSettings:
    return KafkaSettings.model_validate({"bootstrap_servers": "a:1,b:2", **more})


def token(claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + ".x"


@pytest.mark.parametrize(
    ("tls", "mechanism", "protocol"),
    [
        (False, None, "PLAINTEXT"),
        (True, None, "SSL"),
        (False, "SCRAM-SHA-256", "SASL_PLAINTEXT"),
        (True, "PLAIN", "SASL_SSL"),
    ],
)
def test_protocol(monkeypatch: pytest.MonkeyPatch, tls: bool, mechanism: str | None, protocol: str) -> None:
    """TLS and login make the protocol, and only what is set is told."""
    monkeypatch.setenv("PASSWORD", "hunter2")
    sasl = {} if mechanism is None else {"mechanism": mechanism, "username": "u", "password": {"env": "PASSWORD"}}
    found = client_properties(settings(tls={"enabled": tls}, sasl=sasl))
    assert found["security.protocol"] == protocol
    told = {name: value for name, value in found.items() if name.startswith("sasl.")}
    assert told == (
        {}
        if mechanism is None
        else {f"sasl.{name}": sasl[name] for name in ("mechanism", "username")} | {"sasl.password": "hunter2"}
    )
    assert ("ssl.endpoint.identification.algorithm" in found) == tls


def test_certificates(tmp_path: Path) -> None:
    """Files are proved before librdkafka gets them; what is wrong names the setting, and no password."""
    authority = Authority.make(tmp_path)
    issued = authority.issue("bridge", password="hunter2")
    (tmp_path / "password").write_text("hunter2\n")
    tls = {
        "enabled": True,
        "ca_file": str(authority.file),
        "client_certificate_file": str(issued.certificate),
        "client_key_file": str(issued.key),
        "client_key_password": {"file": str(tmp_path / "password")},
    }
    found = producer_properties(settings(tls=tls), "id")
    assert (found["ssl.ca.location"], found["ssl.key.password"]) == (str(authority.file), "hunter2")
    (tmp_path / "password").write_text("wrong hunter2")
    with pytest.raises(AccessError, match=r"kafka\.tls\.client_certificate_file: .*can't be used") as caught:
        client_properties(settings(tls=tls))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(AccessError, match=r"kafka\.tls\.ca_file: /nowhere can't be used: No such file"):
        client_properties(settings(tls={"enabled": True, "ca_file": "/nowhere"}))


@pytest.mark.parametrize(
    ("properties", "limit", "kib"),
    [
        ({}, None, QUEUE_KIB),
        ({}, 16 << 20, QUEUE_KIB),
        ({}, (16 << 20) + 1, QUEUE_KIB + 1),
        ({}, 2**31 - 1, 976_563),
        ({"message.max.bytes": 30 << 20}, 1000, 30 * 1024),
        ({"queue.buffering.max.kbytes": 64}, 1000, 64),
        ({"queue.buffering.max.kbytes": "64"}, None, 977),
        ({"queue.buffering.max.kbytes": 1 << 20}, 20 << 20, 1 << 20),
    ],
)
def test_queue_holds_the_largest_record_and_no_more_than_it_has_to(
    properties: dict[str, Any], limit: int | None, kib: int
) -> None:
    """As large as it always is, or as the settings say, but for records larger than that."""
    found = producer_properties(settings(properties=properties), "id", limit)
    assert found["queue.buffering.max.kbytes"] == kib
    assert found["queue.buffering.max.kbytes"] * 1024 >= found["message.max.bytes"]


def test_oidc(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token endpoint is librdkafka's own business."""
    monkeypatch.setenv("CLIENT_SECRET", "hunter2")
    sasl = {
        "mechanism": "OAUTHBEARER",
        "token_endpoint_url": "https://login/token",
        "client_id": "bridge",
        "client_secret": {"env": "CLIENT_SECRET"},
        "scope": "kafka",
        "extensions": {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
    }
    found = client_properties(settings(sasl=sasl))
    assert found["sasl.oauthbearer.method"] == "oidc"
    assert found["sasl.oauthbearer.client.secret"] == "hunter2"
    assert found["sasl.oauthbearer.extensions"] == "logicalCluster=lkc-1,identityPoolId=pool-1"
    assert "oauth_cb" not in found


def test_token_is_read_anew(tmp_path: Path) -> None:
    """Each time the client asks it gets what the file holds by then, until the end that the token itself tells."""
    path = tmp_path / "token"
    path.write_text(token({"exp": 4_000_000_000}) + "\n")
    sasl = {"mechanism": "OAUTHBEARER", "token": {"file": str(path)}, "extensions": {"pool": 7}}
    give = client_properties(settings(sasl=sasl))["oauth_cb"]
    assert give("") == (token({"exp": 4_000_000_000}), 4_000_000_000.0, "", {"pool": "7"})
    path.write_text(token({"exp": 4_000_000_001}))
    assert give("")[1] == 4_000_000_001.0


@pytest.mark.parametrize("text", ["opaque", "a.b.c", token(["exp"]), token({"sub": "x"}), token({"exp": "soon"})])
def test_token_without_an_end(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """What does not tell its end is asked for again before long."""
    monkeypatch.setenv("TOKEN", text)
    secret = Secret.model_validate({"env": "TOKEN"})
    assert read_token(secret, clock=lambda: 100.0) == (text, 100.0 + OPAQUE_TOKEN_LIFE_S)


@pytest.mark.parametrize("text", ["", "hunter2 x", "hunter2\nx", token({"exp": 99})])
def test_unusable_token(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A token that can't be used is refused without being told."""
    monkeypatch.setenv("TOKEN", text)
    with pytest.raises(AccessError, match=r"^kafka\.sasl\.token: ") as caught:
        read_token(Secret.model_validate({"env": "TOKEN"}), clock=lambda: 100.0)
    assert "hunter2" not in str(caught.value)


def test_meaning_of_errors() -> None:
    """A missing right is named, a refused login is not for ever, and what is not known may pass."""
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
def test_token_that_is_not_given(said: str, words: str) -> None:
    """Of what the identity provider refuses, and of its certificate, each names its settings."""
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
def test_mechanism_that_is_not_offered(offered: str, words: str) -> None:
    """No password would mend it; librdkafka's words say what would."""
    said = (
        "sasl_plaintext://a:1/bootstrap: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Request not valid: "
        f"broker's supported mechanisms: {offered} (after 3ms in state AUTH_HANDSHAKE)"
    )
    asked = settings(sasl={"mechanism": "SCRAM-SHA-512", "username": "u", "password": {"env": "PW"}})
    found = errors.access_error(asked, "_AUTHENTICATION", said)
    assert str(found) == f"Kafka at {', '.join(asked.bootstrap_servers)} {words}"
