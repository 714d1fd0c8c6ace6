"""librdkafka's properties from the settings. Pure, but for reading secrets; no import of the client."""

from __future__ import annotations

import logging
from typing import Any

from bridge.config import KafkaSettings


def client_properties(settings: KafkaSettings) -> dict[str, Any]:
    """What every client has."""
    return {
        "client.id": "scylla-cdc-bridge",
        "reconnect.backoff.max.ms": 2000,
        "logger": logging.getLogger("librdkafka"),
        **settings.properties,
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
    }


def producer_properties(settings: KafkaSettings, transactional_id: str) -> dict[str, Any]:
    """What the producer of a transactional id has."""
    return {
        **client_properties(settings),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "enable.idempotence": True,
        "acks": "all",
        # Java clients partition like this; another hash would tear co-partitioned topics apart.
        "partitioner": "murmur2_random",
        "compression.type": settings.compression,
        "linger.ms": settings.linger_ms,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 128 * 1024,
    }
