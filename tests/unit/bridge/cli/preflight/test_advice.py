"""Checks and advice on single settings: unencrypted secrets, Spark's network and master, the log's TTL."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from bridge.cli.preflight.advice import find_open_network, find_unencrypted_secrets
from bridge.cli.preflight.spark_cluster import check_master
from bridge.cli.preflight.tables import check_ttl
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
def test_unencrypted_secrets(
    scylla: dict[str, Any], kafka: dict[str, Any], registry: dict[str, Any], settings: list[str]
) -> None:
    """Each secret that is sent unencrypted has a warning with the setting that would encrypt it."""
    config = validate(
        {
            "name": "j",
            "scylla": {"contact_points": "a:1", **scylla},
            "kafka": {"bootstrap_servers": "b:2", **kafka},
            "registry": registry,
            "tables": ["k.t"],
        }
    )
    warnings = list(find_unencrypted_secrets(config))
    assert [warning.partition(".")[0].partition(":")[0] for warning in warnings] == settings
    assert all("would encrypt" in warning for warning in warnings)


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


AUTHENTICATE, ENCRYPT = "spark.authenticate", "spark.network.crypto.enabled"


@pytest.mark.parametrize(
    ("master", "properties", "off"),
    [
        ("local[*]", {}, []),
        ("local[*]", {AUTHENTICATE: False, ENCRYPT: False}, [AUTHENTICATE]),
        ("local-cluster[2,1,1024]", {}, []),
        ("spark://a:7077", {}, []),
        ("spark://a:7077", {AUTHENTICATE: True, ENCRYPT: "true"}, []),
        ("spark://a:7077", {AUTHENTICATE: "false"}, [AUTHENTICATE]),
        ("spark://a:7077", {ENCRYPT: False}, [ENCRYPT]),
        ("yarn", {AUTHENTICATE: False, ENCRYPT: False}, [AUTHENTICATE, ENCRYPT]),
        ("k8s://https://a", {}, []),
        ("k8s://https://a", {AUTHENTICATE: False}, [AUTHENTICATE]),
    ],
)
def test_open_network(master: str, properties: dict[str, Any], off: list[str]) -> None:
    """A warning names each protection that the configuration turns off, and where a secret is needed."""
    warnings = list(find_open_network(_config(master, properties)))
    assert len(warnings) == len(off)
    for warning, name in zip(warnings, off, strict=True):
        assert f"leave out spark.properties.{name}" in warning
        needs_secret = master.startswith("spark://") and name == AUTHENTICATE
        assert ("spark.authenticate.secret in the spark-defaults.conf" in warning) == needs_secret


@pytest.mark.parametrize(("ttl_s", "is_refused"), [(0, False), (11, False), (10, True), (9, True)])
def test_ttl_within_the_confidence_window(ttl_s: int, is_refused: bool) -> None:
    """A log whose TTL is not longer than the confidence window is refused, and both settings are named."""
    options = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=ttl_s)
    if not is_refused:
        check_ttl(options, 10_000, "k.t")
        return
    with pytest.raises(StartupError, match=rf"k\.t: its log keeps changes for {ttl_s} s .* 10 s old \(reading\.confid"):
        check_ttl(options, 10_000, "k.t")


def test_standalone_master() -> None:
    """One answering master is enough; if none answers, the error has the setting and the address."""
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = server.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as other:
            gone = other.getsockname()[1]
        check_master(_config(f"spark://127.0.0.1:{gone},127.0.0.1:{there}"), lines.append, 0)
        assert lines == [f"Spark's master at 127.0.0.1:{there} answers"]
    with pytest.raises(StartupError, match=rf"spark\.master at spark://127\.0\.0\.1:{there} is not reachable"):
        check_master(_config(f"spark://127.0.0.1:{there}"), lines.append, 0)
    with pytest.raises(StartupError, match=r"spark\.master: .there. has no port, as in spark://there:7077"):
        check_master(_config("spark://there"), lines.append, 0)
