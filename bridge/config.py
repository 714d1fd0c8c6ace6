"""The configuration file's shape: one model for each concern, each field with its meaning, unit, default and why.

`parse` validates a mapping whole: every unknown key and bad value is named at once. Secrets are never values in the
file: a `Secret` says where one is to be found, and is read where it is used, so a rotated one is seen by the next
connection and none can reach a log, a repr, a metric or a Spark option.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AnyHttpUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from bridge.encoding import RecordForm
from bridge.errors import StartupError
from schemas.output import OutputOptions
from schemas.subjects import Part, Subject, SubjectNameStrategy, subject_of

_TABLE = re.compile(r'^(?P<keyspace>\w+|"[^"]+")\.(?P<table>\w+|"[^"]+")$', re.ASCII)
_TABLE_TEXT = re.sub(r"\?P<\w+>", "", _TABLE.pattern)
_ADDRESS = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+):\d{1,5}$")
_SECRET = re.compile(r"password|passphrase|secret|oauthbearer\.config|\.pem$")
_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
_TOPIC = r"^[A-Za-z0-9._{}-]+$"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, hide_input_in_errors=True)


class Secret(_Model):
    """Where a secret lies: an environment variable or a file (whose trailing newline is dropped)."""

    env: str | None = Field(None, description="Name of the environment variable that holds the secret.")
    file: Path | None = Field(None, description="Path of the file that holds the secret; read again at each use.")

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ValueError("name one place for the secret: either `env` or `file`")
        return self

    def reveal(self) -> str:
        """The secret itself.

        Raises:
            StartupError: the variable is not set, or the file can't be read.
        """
        if self.env is not None:
            value = os.environ.get(self.env)
            if value is None:
                raise StartupError(f"the environment variable {self.env} is not set; it should hold a secret")
            return value
        assert self.file is not None
        try:
            return self.file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise StartupError(f"the secret's file {self.file} can't be read: {error.strerror}") from error


def _refuse_plain_secret(value: object) -> object:
    if isinstance(value, str):
        # pydantic reports ValueErrors, not TypeErrors.
        raise ValueError("a secret can't stand in the file: write {env: NAME} or {file: PATH}")  # noqa: TRY004
    return value


SecretSetting = Annotated[Secret, BeforeValidator(_refuse_plain_secret)]


def _addresses(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _address(value: str) -> str:
    if "@" in value:
        raise ValueError("an address is host:port, without user or password")
    if not _ADDRESS.match(value) or not 0 < int(value.rpartition(":")[2]) < 65536:
        raise ValueError(f"{value!r} is not host:port")
    return value


# What JSON schema says of a value is what may be written, which is more than what becomes of it.
_AddressText = Annotated[str, Field(pattern=_ADDRESS.pattern)]
_AddressList = Annotated[list[_AddressText], Field(min_length=1)]

Address = Annotated[
    str,
    BeforeValidator(
        lambda value: value if not isinstance(value, str) else _address(value), json_schema_input_type=_AddressText
    ),
]
Addresses = Annotated[
    tuple[Address, ...],
    Field(min_length=1),
    BeforeValidator(_addresses, json_schema_input_type=_AddressList | Annotated[str, Field(min_length=1)]),
]


def _instant(value: object) -> object:
    # A bare number would be read as seconds or milliseconds since 1970, whichever seems nearer.
    if isinstance(value, (int, float)) or (isinstance(value, str) and value.strip().lstrip("+-").isdecimal()):
        raise ValueError("`earliest`, `latest`, or an instant as in 2026-01-31T12:00:00+00:00")
    return value


def _aware(value: str | datetime) -> str | datetime:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError("give the instant with its UTC offset, as in 2026-01-31T12:00:00+00:00")
    return value


Start = Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_instant), AfterValidator(_aware)]

Consistency = Literal["ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "LOCAL_ONE"]


class ScyllaSettings(_Model):
    """How to reach and to spare the ScyllaDB cluster."""

    contact_points: Addresses = Field(description="Nodes to connect to first, `host:port`.")
    local_datacenter: str | None = Field(
        None, description="Data center whose nodes are asked; unset, that of the first contact point."
    )
    username: str | None = Field(None, description="Role to log in as; unset, no authentication.")
    password: SecretSetting | None = Field(None, description="Where the role's password lies.")
    consistency: Consistency = Field(
        "LOCAL_QUORUM",
        description="Consistency of log reads; together with the writers' it must overlap (R + W > RF).",
    )
    metadata_consistency: Consistency | None = Field(
        None, description="Consistency of generation reads; unset, QUORUM, or ONE when the cluster has one node."
    )
    page_rows: int = Field(2000, ge=10, le=100_000, description="Most log rows asked for in one page.")
    requests_in_flight: int = Field(
        32, ge=1, le=1024, description="Most log requests that one lane has under way at a time."
    )
    request_timeout_ms: int = Field(10_000, ge=100, description="How long one request may take, in ms.")

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
    }
)


class KafkaSettings(_Model):
    """How to reach Kafka, and what topics are made like."""

    bootstrap_servers: Addresses = Field(description="Brokers to connect to first, `host:port`.")
    partitions: int = Field(12, ge=1, le=10_000, description="Partitions of a change topic that does not exist yet.")
    replication_factor: int | None = Field(
        None, ge=1, description="Replicas of topics that do not exist yet; unset, the broker's default."
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
    properties: dict[str, str | int | bool] = Field(
        default_factory=dict,
        description="Further librdkafka properties for every client (not those that the protocol depends on).",
    )

    @field_validator("properties")
    @classmethod
    def _leave_ours_alone(cls, value: dict[str, str | int | bool]) -> dict[str, str | int | bool]:
        taken = sorted(_OURS & value.keys())
        if taken:
            raise ValueError(f"{', '.join(taken)}: set by the bridge itself, exactly-once depends on it")
        secret = sorted(filter(_SECRET.search, value))
        if secret:
            raise ValueError(f"{', '.join(secret)}: a secret can't stand in the file")
        return value


class RegistrySettings(_Model):
    """How to reach the schema registry (Confluent's REST interface), and how schemas are registered."""

    url: AnyHttpUrl = Field(description="Base address, as Confluent's clients take it.")
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
    ca_file: Path | None = Field(
        None,
        description="PEM file with the authorities that may have signed the registry's certificate; unset, "
        "the usual public ones.",
    )
    client_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate to show to the registry (mutual TLS); unset, none."
    )
    client_key_file: Path | None = Field(
        None, description="PEM file with that certificate's private key; unset, it is in the same file."
    )
    client_key_password: SecretSetting | None = Field(
        None, description="Where the password lies that the private key is encrypted with."
    )
    request_timeout_ms: int = Field(10_000, ge=100, description="How long one request may take, in ms.")
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
    def _no_credentials(cls, value: AnyHttpUrl) -> AnyHttpUrl:
        if value.username or value.password:
            raise ValueError("no user or password in the address: use `username` and `password`")
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
        if self.client_certificate_file is None and (self.client_key_file or self.client_key_password):
            raise ValueError("`client_key_file` and `client_key_password` go with `client_certificate_file`")
        if self.url.scheme != "https" and (self.ca_file or self.client_certificate_file):
            raise ValueError("`ca_file` and `client_certificate_file` need an address that begins with https://")
        return self

    def subject_of(self, topic: str, part: Part, schema_text: str) -> Subject:
        """The subject of a topic's keys or values with this Avro schema."""
        own = self.key_subject_name_strategy if part == "key" else self.value_subject_name_strategy
        return subject_of(own or self.subject_name_strategy, topic, part, schema_text)


class ReadingSettings(_Model):
    """Which part of the log is read, and in what portions."""

    start: Start = Field(
        "earliest",
        description="Where a table that has no progress yet begins: the oldest change that the log still holds, "
        "now, or an instant with its UTC offset.",
    )
    confidence_ms: int = Field(
        10_000,
        ge=0,
        description="Age in ms that a change must reach before it is read (the confidence window). Below write "
        "timeout plus clock skew, changes that become visible late are missed; 0 is for tests.",
    )
    leeway_ms: int = Field(
        5_000,
        ge=0,
        description="How long in ms after its end a generation may still get rows; ScyllaDB's own bound is 5 s.",
    )
    max_window_ms: int = Field(
        3_600_000, ge=100, description="Longest window of `cdc$time`, in ms, that one micro-batch reads."
    )
    target_batch_ms: int = Field(
        3_000,
        ge=50,
        description="Duration in ms that a micro-batch of a backlog should take: windows shrink and grow towards it.",
    )
    accept_data_loss: bool = Field(
        False,
        description="Go on although changes, or the streams that held them, were gone before they were read; otherwise "
        "the table stops and says which span of time is affected.",
    )
    on_incomplete_group: Literal["stop", "deliver"] = Field(
        "stop",
        description="What to do with a group whose last row is missing (which ScyllaDB never writes): stop, or "
        "deliver what is there.",
    )
    deduplicate: bool = Field(
        False,
        description="Leave out a group that repeats the changes of an earlier one of its stream and microsecond (a "
        "client's retried write is logged twice). Of two with images either may be the one that is kept.",
    )


Shape = Literal["delta", "full", "debezium", "flat"]


class OutputSettings(_Model):
    """What a change looks like in Kafka; docs/output.md has examples of each shape."""

    shape: Shape = Field(
        "delta",
        description="Form of the values: `delta` is the change itself; `full` adds the row before and after it from "
        "the log's images; `debezium` is before, after, op and source as Debezium's connectors give them; `flat` is "
        "the row's columns with a few `__` fields.",
    )
    decimals: Literal["record", "string", "double"] = Field(
        "record", description="decimal and varint as scale and bytes (exact), as text (exact), or as doubles (rounded)."
    )
    timestamps: Literal["millis", "timestamp-millis", "timestamp-micros"] = Field(
        "millis",
        description="timestamp as a plain long of ms, or with Avro's logical type in ms or in us (which many readers "
        "turn into calendar objects that end in the year 9999).",
    )
    times: Literal["nanos", "time-micros"] = Field(
        "nanos", description="time as a plain long of ns, or with Avro's logical type in us (rounded down)."
    )
    key: Literal["partition_key", "primary_key"] | None = Field(
        None,
        description="Columns of the record's key; unset, partition_key with the shapes delta and full, primary_key "
        "with debezium and flat. With either, all changes of a base partition go to one Kafka partition, in order.",
    )
    tombstones: bool | None = Field(
        None,
        description="Follow the delete of all that a record key stands for by a record without a value, for "
        "compacted topics; unset, true with the shape debezium only.",
    )
    headers: tuple[Literal["position", "operation", "timestamp", "table"], ...] = Field(
        ("position",),
        description="Record headers, each `cdc.<name>`: position (36 bytes), operation, write timestamp in us and "
        "table as text.",
    )

    def options(self, name: str) -> OutputOptions:
        """What the encoder takes; `name` is the job's."""
        return OutputOptions(self.shape, self.decimals, self.timestamps, self.times, self.record_key, name)

    @property
    def record_key(self) -> Literal["partition_key", "primary_key"]:
        """The columns of the record's key."""
        if self.key is not None:
            return self.key
        return "primary_key" if self.shape in ("debezium", "flat") else "partition_key"

    def record_form(self, *, dead_letters: bool) -> RecordForm:
        """What records have besides their values."""
        return RecordForm(
            primary_key=self.record_key == "primary_key",
            tombstones=self.shape == "debezium" if self.tombstones is None else self.tombstones,
            operation="operation" in self.headers,
            timestamp="timestamp" in self.headers,
            table="table" in self.headers,
            dead_letters=dead_letters,
        )


class PublishingSettings(_Model):
    """What is written to Kafka, and in transactions of which size."""

    topic: str = Field(
        "{keyspace}.{table}", pattern=_TOPIC, description="Change topic's name; {keyspace} and {table} are replaced."
    )
    progress_topic: str = Field(
        "{name}.progress.{keyspace}.{table}",
        pattern=_TOPIC,
        description="Name of the compacted topic that holds the lanes' cursors; {name} is the job's.",
    )
    max_transaction_records: int = Field(
        50_000, ge=1, description="A transaction is committed at the next end of a group once it holds this many."
    )
    max_transaction_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, description="The same for its bytes of keys and values."
    )

    dead_letter_topic: str | None = Field(
        None,
        pattern=_TOPIC,
        description="Where changes go that can't be carried, as JSON with the reason and the raw cells, in the same "
        "transaction; {name}, {keyspace} and {table} are replaced. Unset, such a change stops its table.",
    )

    @field_validator("progress_topic")
    @classmethod
    def _own_progress(cls, value: str) -> str:
        lacking = [part for part in ("{name}", "{keyspace}", "{table}") if part not in value]
        if lacking:
            raise ValueError(f"must hold {', '.join(lacking)}: two jobs or tables would share one cursor")
        return value


class TableSettings(_Model):
    """One captured table; what is unset here comes from `reading` and `publishing`."""

    name: str = Field(
        description="`keyspace.table`, quoted as in CQL where a name is not all lower case.",
        json_schema_extra={"pattern": _TABLE_TEXT},
    )
    topic: str | None = Field(None, pattern=_TOPIC, description="This table's change topic.")
    start: Start | None = Field(None, description="As `reading.start`.")
    lanes: int | None = Field(None, ge=1, le=1024, description="As `spark.lanes`.")
    shape: Shape | None = Field(None, description="As `output.shape`.")

    @field_validator("name")
    @classmethod
    def _qualified(cls, value: str) -> str:
        if not _TABLE.match(value):
            raise ValueError(f'{value!r} is not keyspace.table (quote a part as in CQL: ks."MyTable")')
        return value

    @property
    def keyspace(self) -> str:
        """The keyspace's own name, without quotes."""
        return self._part("keyspace")

    @property
    def table(self) -> str:
        """The table's own name, without quotes."""
        return self._part("table")

    def _part(self, which: str) -> str:
        match = _TABLE.match(self.name)
        assert match is not None
        part = match.group(which)
        return part[1:-1] if part.startswith('"') else part.lower()


def _table(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


_Table = Annotated[
    TableSettings,
    BeforeValidator(_table, json_schema_input_type=Annotated[str, Field(pattern=_TABLE_TEXT)] | TableSettings),
]


class SparkSettings(_Model):
    """Where the work runs."""

    master: str = Field("local[*]", description="Spark master; `local[*]` is this machine alone.")
    checkpoint: str = Field(
        "checkpoint",
        description="Folder (any Hadoop-compatible path) for Spark's plan; a lost one loses and doubles nothing.",
    )
    lanes: int | None = Field(
        None, ge=1, le=1024, description="Lanes of each table; unset, as many as there are cores to work them."
    )
    trigger_interval_ms: int = Field(500, ge=0, description="Shortest time from one micro-batch to the next, in ms.")
    properties: dict[str, str | int | bool] = Field(default_factory=dict, description="Further Spark properties.")


class StartupSettings(_Model):
    """How patient the start is with servers that are not there yet."""

    patience_s: int = Field(60, ge=0, description="How long in s an unreachable server is tried again at start.")


class MonitoringSettings(_Model):
    """Metrics, probes and the status page, on one HTTP port of the job's first process."""

    enabled: bool = Field(True, description="Whether the port is opened.")
    listen: Address = Field(
        "127.0.0.1:9404",
        description="Where to listen, `host:port`; 0.0.0.0 is every interface. The default gives way to a free port "
        "when another job has it; an address that is set must be free.",
    )
    stalled_after_s: int = Field(
        60,
        ge=1,
        description="A table is not ready once its cursors have stood for this long, in s, although there is something "
        "to read.",
    )
    dead_after_s: int = Field(
        300,
        ge=10,
        description="The job counts as dead once its supervisor has not looked at its queries for this long, in s.",
    )


class LoggingSettings(_Model):
    """The job's own log, on standard error."""

    format: Literal["text", "json"] = Field(
        "text", description="Lines for people, or one JSON object a line for log collectors."
    )


class BridgeConfig(_Model):
    """One job: which tables, from where, to where."""

    name: str = Field(
        pattern=_NAME,
        description="The job's name: first part of its transactional ids, progress topics and Spark application.",
    )
    scylla: ScyllaSettings
    kafka: KafkaSettings
    registry: RegistrySettings
    tables: Annotated[tuple[_Table, ...], Field(min_length=1)]
    reading: ReadingSettings = ReadingSettings()
    output: OutputSettings = OutputSettings()
    publishing: PublishingSettings = PublishingSettings()
    spark: SparkSettings = SparkSettings()
    startup: StartupSettings = StartupSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [(table.keyspace, table.table) for table in self.tables]
        twice = sorted({".".join(name) for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{', '.join(twice)}: named twice among `tables`")
        topics = [self.topic_of(table) for table in self.tables]
        topics += [self.progress_topic_of(table) for table in self.tables]
        shared = sorted({topic for topic in topics if topics.count(topic) > 1})
        if shared:
            raise ValueError(f"{', '.join(shared)}: each table needs a change topic and a progress topic of its own")
        # Tables may share a dead-letter topic, but what reads changes or cursors can't read letters.
        mixed = sorted({self.dead_letter_topic_of(table) or "" for table in self.tables} & set(topics))
        if mixed:
            raise ValueError(f"{', '.join(mixed)}: a dead-letter topic can't be a change or progress topic too")
        return self

    def topic_of(self, table: TableSettings) -> str:
        """The change topic of a table."""
        return self._filled(table.topic or self.publishing.topic, table)

    def progress_topic_of(self, table: TableSettings) -> str:
        """The compacted topic that holds the cursors of a table's lanes."""
        return self._filled(self.publishing.progress_topic, table)

    def _filled(self, template: str, table: TableSettings) -> str:
        texts = {"name": self.name, "keyspace": table.keyspace, "table": table.table}
        return re.sub(r"\{(name|keyspace|table)\}", lambda match: texts[match.group(1)], template)

    def output_of(self, table: TableSettings) -> OutputSettings:
        """What a table's changes look like."""
        return _shaped(self.output, table)

    def dead_letter_topic_of(self, table: TableSettings) -> str | None:
        """Where a table's changes go that can't be carried; None where such a change stops it."""
        template = self.publishing.dead_letter_topic
        return None if template is None else self._filled(template, table)

    def table(self, keyspace: str, table: str) -> TableSettings:
        """The settings of a captured table.

        Raises:
            KeyError: the table is not among `tables`.
        """
        for settings in self.tables:
            if (settings.keyspace, settings.table) == (keyspace, table):
                return settings
        raise KeyError(f"{keyspace}.{table}")


class SourceConfig(_Model):
    """What the Spark source needs by itself: one table, and how to read it."""

    scylla: ScyllaSettings
    table: _Table = Field(description="The captured table.")
    reading: ReadingSettings = ReadingSettings()
    name: str = Field("scylla-cdc-bridge", description="The job's name, as the shape `debezium` tells it.")
    output: OutputSettings = OutputSettings()
    dead_letters: bool = Field(
        False, description="Give changes that can't be carried as rows of their own kind; else they stop the query."
    )
    lanes: int = Field(1, ge=1, le=1024, description="Input partitions of each micro-batch.")
    payload: Literal["avro", "json"] = Field(
        "avro", description="What `key` and `value` hold: Avro bodies, or the same as JSON text."
    )

    @property
    def output_options(self) -> OutputOptions:
        """What the encoder takes."""
        return self.table_output.options(self.name)

    @property
    def table_output(self) -> OutputSettings:
        """What the table's changes look like."""
        return _shaped(self.output, self.table)


def _shaped(output: OutputSettings, table: TableSettings) -> OutputSettings:
    return output if table.shape is None else output.model_copy(update={"shape": table.shape})


def validate(mapping: Mapping[str, object]) -> BridgeConfig:
    """The configuration of a mapping; see `bridge.config_file` for the file that it comes from.

    Raises:
        pydantic.ValidationError: with every problem in it.
    """
    return BridgeConfig.model_validate(dict(mapping))


__all__ = [
    "BridgeConfig",
    "KafkaSettings",
    "LoggingSettings",
    "MonitoringSettings",
    "OutputSettings",
    "PublishingSettings",
    "ReadingSettings",
    "RegistrySettings",
    "ScyllaSettings",
    "Secret",
    "SourceConfig",
    "SparkSettings",
    "StartupSettings",
    "TableSettings",
    "ValidationError",
    "validate",
]
