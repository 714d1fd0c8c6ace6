"""What is said at a start: what is sent readable, and what logs do not hold that the output is made of."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from bridge.cli.preflight import _master, _open_network, _readable_secrets, check_ttl
from bridge.config.document import BridgeConfig, validate
from bridge.errors import StartupError
from bridge.planning.table_watch import CdcOptions

PLACE = {"env": "PLACE"}
LOGIN = {"username": "u", "password": PLACE}


@pytest.mark.parametrize(
    ("scylla", "kafka", "registry", "settings"),
    [
        ({}, {}, {"url": "http://r"}, []),
        (
            LOGIN,
            {"sasl": {"mechanism": "PLAIN", **LOGIN}},
            {"url": "http://r", **LOGIN},
            ["scylla", "kafka", "registry"],
        ),
        ({}, {"sasl": {"mechanism": "OAUTHBEARER", "token": PLACE}}, {"url": "http://r"}, ["kafka"]),
        ({}, {"sasl": {"mechanism": "SCRAM-SHA-256", **LOGIN}}, {"url": "http://r", "token": PLACE}, ["registry"]),
        (
            {**LOGIN, "tls": {"enabled": True}},
            {"sasl": {"mechanism": "PLAIN", **LOGIN}, "tls": {"enabled": True}},
            {"url": "https://r", **LOGIN},
            [],
        ),
    ],
)
def test_readable_secrets_are_told(
    scylla: dict[str, Any], kafka: dict[str, Any], registry: dict[str, Any], settings: list[str]
) -> None:
    """Whoever sends a secret unencrypted hears of it, and how to mend it."""
    config = validate(
        {
            "name": "j",
            "scylla": {"contact_points": "a:1", **scylla},
            "kafka": {"bootstrap_servers": "b:2", **kafka},
            "registry": registry,
            "tables": ["k.t"],
        }
    )
    told = list(_readable_secrets(config))
    assert [words.partition(".")[0].partition(":")[0] for words in told] == settings
    assert all("would encrypt" in words for words in told)


def _config(master: str, properties: dict[str, Any] | None = None) -> BridgeConfig:
    return validate(
        {
            "name": "j",
            "scylla": {"contact_points": "a:1"},
            "kafka": {"bootstrap_servers": "b:2"},
            "registry": {"url": "http://r"},
            "tables": ["k.t"],
            "spark": {"master": master, "properties": properties or {}},
        }
    )


CLOSED = {"spark.authenticate": True, "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("master", "properties", "secret"),
    [
        ("local[*]", {}, None),
        ("local-cluster[2,1,1024]", {}, None),
        ("spark://a:7077", {}, True),
        ("spark://a:7077", {"spark.authenticate": True}, True),
        ("spark://a:7077", CLOSED | {"spark.network.crypto.enabled": False}, True),
        ("spark://a:7077", CLOSED, None),
        ("yarn", {}, False),
        ("k8s://https://a", {}, False),
        ("k8s://https://a", CLOSED, None),
    ],
)
def test_open_network_of_sparks_is_told(master: str, properties: dict[str, Any], secret: bool | None) -> None:
    """Whoever has Spark on several machines hears which properties close its ports, and where a secret is needed."""
    told = list(_open_network(_config(master, properties)))
    assert len(told) == (secret is not None)
    for words in told:
        assert all(name in words for name in CLOSED)
        assert ("spark.authenticate.secret in the spark-defaults.conf" in words) == secret


@pytest.mark.parametrize(("ttl_s", "is_refused"), [(0, False), (11, False), (10, True), (9, True)])
def test_log_that_forgets_before_it_is_read_is_refused(ttl_s: int, is_refused: bool) -> None:
    """By both settings, before the table is said to have lost something."""
    options = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=ttl_s)
    if not is_refused:
        check_ttl(options, 10_000, "k.t")
        return
    with pytest.raises(StartupError, match=rf"k\.t: its log keeps changes for {ttl_s} s .* 10 s old \(reading\.confid"):
        check_ttl(options, 10_000, "k.t")


def test_standalone_master_is_asked() -> None:
    """Any one of several will do; that none answers is said with the setting and the address."""
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            gone = other.getsockname()[1]
        _master(_config(f"spark://127.0.0.1:{gone},127.0.0.1:{there}"), told.append, 0)
        assert told == [f"Spark's master at 127.0.0.1:{there} answers"]
    with pytest.raises(StartupError, match=rf"spark\.master at spark://127\.0\.0\.1:{there} is not reachable"):
        _master(_config(f"spark://127.0.0.1:{there}"), told.append, 0)
    with pytest.raises(StartupError, match=r"spark\.master: .there. has no port, as in spark://there:7077"):
        _master(_config("spark://there"), told.append, 0)
