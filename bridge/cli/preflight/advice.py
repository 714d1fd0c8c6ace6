"""Finds what a configuration leaves insecure, or what may refuse a table later. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from bridge.cli.preflight.spark_cluster import STANDALONE
from bridge.config.document import BridgeConfig

_PROTECTING_PROPERTIES: Final = ("spark.authenticate", "spark.network.crypto.enabled")
"""Properties that make Spark's processes authenticate each other, and encrypt their traffic."""


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
    """Yield a warning if Spark's processes run on several machines without authentication or encryption."""
    master, properties = config.spark.master, config.spark.properties
    is_protected = all(str(properties.get(name)).lower() == "true" for name in _PROTECTING_PROPERTIES)
    if master.startswith("local") or is_protected:
        return
    # On Kubernetes and YARN, Spark creates the secret itself.
    secret = (
        ", and spark.authenticate.secret in the spark-defaults.conf of the folder SPARK_CONF_DIR, here and on the "
        "cluster's machines"
        if master.startswith(STANDALONE)
        else ""
    )
    yield (
        "driver and executors accept commands from everyone who reaches their ports, and exchange changes unencrypted; "
        f"set {' and '.join(_PROTECTING_PROPERTIES)} to true under spark.properties{secret} (docs/security.md)"
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
