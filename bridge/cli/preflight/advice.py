"""Finds what a configuration leaves insecure, or what may refuse a table later. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from bridge.cli.preflight.spark_cluster import STANDALONE
from bridge.config.document import BridgeConfig
from bridge.config.process import AUTHENTICATE, COMMON_FOLDER, ENCRYPT


def find_unencrypted_secrets(config: BridgeConfig) -> Iterator[str]:
    """Yield a warning for each secret that is sent unencrypted."""
    if config.scylla.username is not None and not config.scylla.tls.enabled:
        yield "scylla.password is sent unencrypted; scylla.tls.enabled would encrypt it"
    if config.kafka.sasl.mechanism in ("PLAIN", "OAUTHBEARER") and not config.kafka.tls.enabled:
        yield f"{config.kafka.sasl.credentials}: sent unencrypted; kafka.tls.enabled would encrypt it"
    endpoint = config.kafka.sasl.token_endpoint_url
    if endpoint is not None and not str(endpoint).startswith("https:"):
        yield "kafka.sasl.client_secret is sent unencrypted; an https token_endpoint_url would encrypt it"
    has_identity = config.registry.username is not None or config.registry.token is not None
    if has_identity and config.registry.url.scheme != "https":
        yield "registry: credentials are sent unencrypted; an https address would encrypt them"


def find_open_network(config: BridgeConfig) -> Iterator[str]:
    """Yield a warning for each protection of Spark's network that `spark.properties` turns off."""
    master, properties = config.spark.master, config.spark.properties

    def is_off(name: str) -> bool:
        return str(properties.get(name, True)).lower() != "true"

    if is_off(AUTHENTICATE):
        # Elsewhere Spark makes the secret itself.
        secret = f", and give {COMMON_FOLDER}" if master.startswith(STANDALONE) else ""
        yield (
            "Spark's processes accept commands from everyone who reaches their ports; leave out "
            f"spark.properties.{AUTHENTICATE}{secret} (docs/security.md)"
        )
    if is_off(ENCRYPT) and not master.startswith("local"):
        yield (
            "driver and executors exchange changes unencrypted; leave out "
            f"spark.properties.{ENCRYPT} (docs/security.md)"
        )


def find_future_starts(config: BridgeConfig, now: datetime) -> Iterator[str]:
    """Yield a line for each table whose start is in the future, which is refused while it has no progress."""
    for table in config.tables:
        start = table.start or config.reading.start
        if isinstance(start, datetime) and start > now:
            yield (
                f"table {table.name}: its start, {start.isoformat()}, is in the future; without progress the table is "
                "refused"
            )
