"""The sections that say how to reach and to treat the servers: `scylla`, `kafka` and `registry`."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AnyHttpUrl, Field, field_validator, model_validator

from bridge.config.base import HOUR_MS, HTTP_ADDRESS, Addresses, Model, RefusedNames, SecretSetting, refuse_names
from bridge.config.sasl import SaslSettings
from bridge.config.secret_patterns import holds_secret
from bridge.config.tls import TlsFiles, TlsSettings
from schemas.wire.subjects import Part, Subject, SubjectNameStrategy, subject_of

_STRANGE_FORMS: Final = ("^[^a-z]", "[^a-z0-9.]")
_STRANGE: Final = re.compile("|".join(_STRANGE_FORMS))
"""A name that no property of librdkafka has."""
KAFKA_SECRETS: Final = ("password", "passphrase", "secret", r"oauthbearer\.config", r"jaas\.config", r"\.pem$")
_SECRET: Final = re.compile("|".join(KAFKA_SECRETS), re.IGNORECASE)

Consistency = Literal["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE"]


class ScyllaSettings(Model):
    """How to reach and to spare the ScyllaDB cluster."""

    contact_points: Addresses = Field(description="Nodes to connect to first, `host:port`.")
    local_datacenter: str | None = Field(
        None, description="Data center whose nodes are asked; unset, that of the first contact point."
    )
    username: str | None = Field(None, description="Role to log in as; unset, no authentication.")
    password: SecretSetting | None = Field(
        None, description="Where the role's password lies; read again for each connection."
    )
    consistency: Consistency = Field(
        "LOCAL_QUORUM",
        description="Consistency of log reads; together with the writers' it must overlap (R + W > RF).",
    )
    metadata_consistency: Consistency | None = Field(
        None,
        description="Consistency of generation reads; unset, QUORUM, or ONE when the cluster has one node. With "
        "several nodes ONE and LOCAL_ONE are taken for QUORUM: a node that lags behind would hide a generation.",
    )
    page_rows: int = Field(2000, ge=10, le=100_000, description="Most log rows asked for in one page.")
    requests_in_flight: int = Field(
        32,
        ge=1,
        le=1024,
        description="Most log requests that one lane has under way at a time; "
        "one that asks whether 16 streams have changes counts as 16.",
    )
    requests_per_second: int = Field(
        10_000,
        ge=1,
        le=10_000_000,
        description="Most log requests a second that looking for changes may cost, over all tables (in equal shares) "
        "and lanes. Each micro-batch asks each stream once (each counts, also where one request asks for 16), so it "
        "bounds how often a table with many streams is looked at, also after a failure; further pages, which come with "
        "changes, are not held back.",
    )
    request_timeout_ms: int = Field(10_000, ge=100, le=HOUR_MS, description="How long one request may take, in ms.")
    tls: TlsSettings = TlsSettings()

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("`username` and `password` go together: set both or none")
        return self


_OURS = frozenset(
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
        # What librdkafka calls the same besides.
        "metadata.broker.list",
        "request.required.acks",
    }
)

_SECTIONS = {
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
"""librdkafka's properties that have a setting of their own, its names for one of them that are less known included."""
_UNSAFE = {
    "enable.ssl.certificate.verification": "certificates and host names are always verified",
    "ssl.endpoint.identification.algorithm": "certificates and host names are always verified",
    # Brokers would be checked by whatever name the DNS gives for their addresses.
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
"""What the client's Python interface takes beside librdkafka's properties: objects, which no file can hold."""
_NO_PROPERTY: Final = "librdkafka has no property of that name"
_OURS_WHY: Final = "set by the bridge itself, exactly-once depends on it"
_WEAK_WHY: Final = "with these, connections are not encrypted, or not with whom one thinks"
_IN_PLAIN_SIGHT: Final = (
    "a secret can't stand in the file; kafka.sasl and kafka.tls take where one lies, {env: NAME} or {file: PATH}"
)
KAFKA_REFUSED: Final = RefusedNames(
    {
        **dict.fromkeys(_OURS, _OURS_WHY),
        **{name: f"set {setting} instead" for name, setting in _SECTIONS.items()},
        **_UNSAFE,
    },
    {
        KAFKA_SECRETS: "a secret can not stand here; kafka.sasl and kafka.tls take the place where one lies",
        _CODE_WORDS: _NO_PROPERTY,
    },
    {_STRANGE_FORMS: _NO_PROPERTY},
)
"""Properties that `kafka.properties` does not take."""
_WEAK: Final = re.compile(r"seclevel\s*=\s*0|null|anon|adh|aecdh|exp(ort)?(?=[-\d]|$)", re.IGNORECASE)
"""Cipher suites of OpenSSL that encrypt nothing or let anybody be the broker, and the level that allows them."""
_SIZES: Final = ("message.max.bytes", "queue.buffering.max.kbytes")
"""What a producer reckons with itself, before librdkafka reads it."""


class KafkaSettings(Model):
    """How to reach Kafka, and what topics are made like."""

    bootstrap_servers: Addresses = Field(description="Brokers to connect to first, `host:port`.")
    partitions: int = Field(12, ge=1, le=10_000, description="Partitions of a change topic that does not exist yet.")
    replication_factor: int | None = Field(
        None, ge=1, le=32_767, description="Replicas of topics that do not exist yet; unset, the broker's default."
    )
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "lz4", description="Compression of record batches."
    )
    linger_ms: int = Field(20, ge=0, le=10_000, description="How long a record batch may wait to fill, in ms.")
    transaction_timeout_ms: int = Field(
        60_000,
        ge=1000,
        le=900_000,
        description="After this long, in ms, the broker aborts a transaction whose lane has vanished.",
    )
    properties: Annotated[dict[str, str | int | bool], KAFKA_REFUSED] = Field(
        default_factory=dict,
        description="Further librdkafka properties for every client (not those that the protocol depends on, and not "
        "those that have a setting of their own).",
    )
    tls: TlsSettings = TlsSettings()
    sasl: SaslSettings = SaslSettings()

    @field_validator("properties")
    @classmethod
    def _leave_ours_alone(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        suites = re.split(r"[:, ]+", str(value.get("ssl.cipher.suites", "")))
        weak = any(_WEAK.search(suite) for suite in suites if not suite.startswith(("!", "-")))
        secret = [name for name, text in value.items() if _SECRET.search(name) or holds_secret(str(text))]
        refuse_names(
            [
                *((name, _NO_PROPERTY) for name in value if _STRANGE.search(name) or _CODE.search(name)),
                *((name, _OURS_WHY) for name in value if name in _OURS),
                *((name, f"set {_SECTIONS[name]} instead") for name in value if name in _SECTIONS),
                *((name, _UNSAFE[name]) for name in value if name in _UNSAFE),
                *([("ssl.cipher.suites", _WEAK_WHY)] if weak else []),
                *((name, "must be a whole number") for name in _SIZES if not str(value.get(name, 0)).isdecimal()),
                *((name, _IN_PLAIN_SIGHT) for name in secret),
            ]
        )
        return value


class _RegistryAccess(Model):
    """Where the registry is, and who we are."""

    url: AnyHttpUrl = Field(
        description="Base address, as Confluent's clients take it.", json_schema_extra=dict(HTTP_ADDRESS)
    )
    username: str | None = Field(None, description="User for basic authentication; unset, none.")
    password: SecretSetting | None = Field(
        None, description="Where the user's password lies; read again when the registry refuses it."
    )
    token: SecretSetting | None = Field(
        None,
        description="Where a token for bearer authentication lies, instead of user and password; read again when the "
        "registry refuses it.",
    )
    logical_cluster: str | None = Field(
        None, description="With a token, Confluent Cloud's id of the registry's cluster (`target-sr-cluster`)."
    )
    identity_pool: str | None = Field(
        None, description="With a token, Confluent Cloud's identity pool (`Confluent-Identity-Pool-Id`)."
    )


class RegistrySettings(TlsFiles, _RegistryAccess):
    """How to reach the schema registry (Confluent's REST interface), and how schemas are registered."""

    request_timeout_ms: int = Field(10_000, ge=100, le=HOUR_MS, description="How long one request may take, in ms.")
    auto_register: bool = Field(
        True,
        description="Register schemas that their subjects do not hold yet; otherwise they must be there, and "
        "`scylla-cdc-bridge schemas` prints or registers them.",
    )
    subject_name_strategy: SubjectNameStrategy = Field(
        "TopicName",
        description="How subjects are named, as Confluent's strategies do: `<topic>-key` and `<topic>-value`, "
        "`<record>`, or `<topic>-<record>`.",
    )
    key_subject_name_strategy: SubjectNameStrategy | None = Field(
        None, description="The same for keys alone; unset, as `subject_name_strategy`."
    )
    value_subject_name_strategy: SubjectNameStrategy | None = Field(
        None, description="The same for values alone; unset, as `subject_name_strategy`."
    )

    @field_validator("url")
    @classmethod
    def _bare(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password:
            raise ValueError("no user or password in the address: use `username` and `password`")
        if value.query is not None or value.fragment is not None:
            raise ValueError("a base address ends before `?` and `#`")
        return value

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("`username` and `password` go together: set both or none")
        if self.token is not None and self.username is not None:
            raise ValueError("either `username` and `password` or `token`, not both")
        if self.token is None and (self.logical_cluster is not None or self.identity_pool is not None):
            raise ValueError("`logical_cluster` and `identity_pool` go with a `token`")
        return self

    @model_validator(mode="after")
    def _tls_by_https(self) -> Self:
        if self.url.scheme != "https" and (self.ca_file or self.client_certificate_file):
            raise ValueError("`ca_file` and `client_certificate_file` need an address that begins with https://")
        return self

    def subject_of(self, topic: str, part: Part, schema_text: str) -> Subject:
        """The subject of a topic's keys or values with this Avro schema."""
        own = self.key_subject_name_strategy if part == "key" else self.value_subject_name_strategy
        return subject_of(own or self.subject_name_strategy, topic, part, schema_text)
