"""The section `kafka`: how to reach Kafka, and how to create topics."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field, field_validator

from bridge.config.base import Addresses, Model
from bridge.config.refused_names import RefusedNames, refuse_names
from bridge.config.sasl import SaslSettings
from bridge.config.secret_patterns import holds_secret
from bridge.config.tls import TlsSettings

_UNKNOWN_FORMS: Final = ("^[^a-z]", "[^a-z0-9.]")
_UNKNOWN: Final = re.compile("|".join(_UNKNOWN_FORMS))
"""Finds a name that no property of librdkafka has."""
KAFKA_SECRETS: Final = ("password", "passphrase", "secret", r"oauthbearer\.config", r"jaas\.config", r"\.pem$")
_SECRET: Final = re.compile("|".join(KAFKA_SECRETS), re.IGNORECASE)

RESERVED: Final = frozenset(
    {
        "bootstrap.servers",
        "transactional.id",
        "enable.idempotence",
        "acks",
        "isolation.level",
        "enable.auto.commit",
        "group.id",
        "transaction.timeout.ms",
        "partitioner",
        "auto.offset.reset",
        "enable.partition.eof",
        "allow.auto.create.topics",
        "fetch.wait.max.ms",
        # librdkafka's other names for some of these.
        "metadata.broker.list",
        "request.required.acks",
    }
)
"""Properties that the bridge sets itself."""

SETTING_BY_PROPERTY: Final = {
    "linger.ms": "kafka.linger_ms",
    "queue.buffering.max.ms": "kafka.linger_ms",
    "compression.type": "kafka.compression",
    "compression.codec": "kafka.compression",
    "security.protocol": "kafka.tls.enabled and kafka.sasl.mechanism",
    "ssl.ca.location": "kafka.tls.ca_file",
    "ssl.certificate.location": "kafka.tls.client_certificate_file",
    "ssl.key.location": "kafka.tls.client_key_file",
    "ssl.key.password": "kafka.tls.client_key_password",
    "sasl.mechanism": "kafka.sasl.mechanism",
    "sasl.mechanisms": "kafka.sasl.mechanism",
    "sasl.username": "kafka.sasl.username",
    "sasl.password": "kafka.sasl.password",
    "sasl.oauthbearer.method": "kafka.sasl.token_endpoint_url",
    "sasl.oauthbearer.token.endpoint.url": "kafka.sasl.token_endpoint_url",
    "sasl.oauthbearer.client.id": "kafka.sasl.client_id",
    "sasl.oauthbearer.client.secret": "kafka.sasl.client_secret",
    "sasl.oauthbearer.scope": "kafka.sasl.scope",
    "sasl.oauthbearer.extensions": "kafka.sasl.extensions",
    "https.ca.location": "kafka.sasl.token_endpoint_ca_file",
}
"""Properties that have a setting of their own, under each name that librdkafka has for them."""

UNSAFE: Final = {
    "enable.ssl.certificate.verification": "certificates and host names are always verified",
    "ssl.endpoint.identification.algorithm": "certificates and host names are always verified",
    # With it, librdkafka would check a broker's certificate against the name that the DNS gives for its address.
    "client.dns.lookup": "certificates are checked by the configured names, not by those that the DNS gives",
}
_CODE_WORDS: Final = (
    "^logger$",
    "_cb$",
    r"^on_(commit|delivery|revoke|assign|lost)$",
    "^opaque$",
    r"^default\.topic\.config$",
)
_CODE: Final = re.compile("|".join(_CODE_WORDS), re.IGNORECASE)
"""Finds what only the client's Python interface takes: objects, which no file can hold."""
_UNKNOWN_WHY: Final = "librdkafka has no property of that name"
_RESERVED_WHY: Final = "set by the bridge itself, exactly-once depends on it"
_WEAK_WHY: Final = "with these, connections are not encrypted, or the broker is not authenticated"
_IN_PLAIN_TEXT_WHY: Final = (
    "a secret can't be in the file; kafka.sasl and kafka.tls take where one is, {env: NAME} or {file: PATH}"
)
KAFKA_REFUSED: Final = RefusedNames(
    {
        **dict.fromkeys(RESERVED, _RESERVED_WHY),
        **{name: f"set {setting} instead" for name, setting in SETTING_BY_PROPERTY.items()},
        **UNSAFE,
    },
    {
        KAFKA_SECRETS: "a secret can not be here; kafka.sasl and kafka.tls take the place where one is",
        _CODE_WORDS: _UNKNOWN_WHY,
    },
    {_UNKNOWN_FORMS: _UNKNOWN_WHY},
)
"""Properties that `kafka.properties` refuses."""
_WEAK: Final = re.compile(r"seclevel\s*=\s*0|null|anon|adh|aecdh|exp(ort)?(?=[-\d]|$)", re.IGNORECASE)
"""Finds OpenSSL's cipher suites that do not encrypt or authenticate, and the level that allows them."""
_SIZES: Final = ("message.max.bytes", "queue.buffering.max.kbytes")
"""Properties that our producer calculates with, before librdkafka checks them."""


class KafkaSettings(Model):
    """How to reach Kafka, and how to create topics."""

    bootstrap_servers: Addresses = Field(description="Brokers to connect to first, `host:port`.")
    partitions: int = Field(12, ge=1, le=10_000, description="Partitions of a change topic that does not exist yet.")
    replication_factor: int | None = Field(
        None, ge=1, le=32_767, description="Replicas of topics that do not exist yet; unset, the broker's default."
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "lz4", description="Compression of record batches."
    )
    linger_ms: int = Field(20, ge=0, le=10_000, description="Longest time in ms that a record batch waits to fill.")
    transaction_timeout_ms: int = Field(
        60_000,
        ge=1000,
        le=900_000,
        description="Time in ms after which the broker aborts a transaction whose lane has vanished.",
    )
    properties: Annotated[dict[str, str | int | bool], KAFKA_REFUSED] = Field(
        default_factory=dict,
        description="Further librdkafka properties for every client. Refused are those that the protocol depends on, "
        "and those that have a setting of their own.",
    )
    tls: TlsSettings = TlsSettings()
    sasl: SaslSettings = SaslSettings()

    @field_validator("properties")
    @classmethod
    def _refuse_properties(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        suites = re.split(r"[:, ]+", str(value.get("ssl.cipher.suites", "")))
        has_weak_suite = any(_WEAK.search(suite) for suite in suites if not suite.startswith(("!", "-")))
        secrets = [name for name, text in value.items() if _SECRET.search(name) or holds_secret(str(text))]
        refuse_names(
            [
                *((name, _UNKNOWN_WHY) for name in value if _UNKNOWN.search(name) or _CODE.search(name)),
                *((name, _RESERVED_WHY) for name in value if name in RESERVED),
                *((name, f"set {SETTING_BY_PROPERTY[name]} instead") for name in value if name in SETTING_BY_PROPERTY),
                *((name, UNSAFE[name]) for name in value if name in UNSAFE),
                *([("ssl.cipher.suites", _WEAK_WHY)] if has_weak_suite else []),
                *((name, "must be a whole number") for name in _SIZES if not str(value.get(name, 0)).isdecimal()),
                *((name, _IN_PLAIN_TEXT_WHY) for name in secrets),
            ]
        )
        return value
