"""librdkafka's properties: secrets, tokens, and nothing that is not set."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.adapters.kafka.properties import (
    OPAQUE_TOKEN_LIFE_S,
    QUEUE_KIB,
    client_properties,
    producer_properties,
    read_token,
)
from bridge.config.document import KafkaSettings, Secret
from bridge.errors import AccessError
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
def test_protocol_follows_tls_and_login(
    monkeypatch: pytest.MonkeyPatch, tls: bool, mechanism: str | None, protocol: str
) -> None:
    """Only properties that are set are passed on."""
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


def test_certificates_are_checked_first(tmp_path: Path) -> None:
    """An error names the setting, and no password."""
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
def test_queue_holds_the_largest_record(properties: dict[str, Any], limit: int | None, kib: int) -> None:
    """The queue has its default or configured size, unless a record may be larger."""
    found = producer_properties(settings(properties=properties), "id", limit)
    assert found["queue.buffering.max.kbytes"] == kib
    assert found["queue.buffering.max.kbytes"] * 1024 >= found["message.max.bytes"]


def test_token_endpoint_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka fetches the token itself."""
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


def test_token_is_read_for_each_request(tmp_path: Path) -> None:
    """With the present contents of the file, and the expiry in the token."""
    path = tmp_path / "token"
    path.write_text(token({"exp": 4_000_000_000}) + "\n")
    sasl = {"mechanism": "OAUTHBEARER", "token": {"file": str(path)}, "extensions": {"pool": 7}}
    give = client_properties(settings(sasl=sasl))["oauth_cb"]
    assert give("") == (token({"exp": 4_000_000_000}), 4_000_000_000.0, "", {"pool": "7"})
    path.write_text(token({"exp": 4_000_000_001}))
    assert give("")[1] == 4_000_000_001.0


@pytest.mark.parametrize("text", ["opaque", "a.b.c", token(["exp"]), token({"sub": "x"}), token({"exp": "soon"})])
def test_token_without_expiry_is_read_again_soon(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A token without a readable expiry is read again soon."""
    monkeypatch.setenv("TOKEN", text)
    secret = Secret.model_validate({"env": "TOKEN"})
    assert read_token(secret, clock=lambda: 100.0) == (text, 100.0 + OPAQUE_TOKEN_LIFE_S)


@pytest.mark.parametrize("text", ["", "hunter2 x", "hunter2\nx", token({"exp": 99})])
def test_unusable_token_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The message does not contain the token."""
    monkeypatch.setenv("TOKEN", text)
    with pytest.raises(AccessError, match=r"^kafka\.sasl\.token: ") as caught:
        read_token(Secret.model_validate({"env": "TOKEN"}), clock=lambda: 100.0)
    assert "hunter2" not in str(caught.value)
