"""What is said at a start before any server is asked."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config import validate
from bridge.preflight import _readable_secrets

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
