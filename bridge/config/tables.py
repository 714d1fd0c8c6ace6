"""The sections about tables and their changes: `tables`, `reading`, `output` and `publishing`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from bridge.config.base import DAY_MS, HOUR_MS, ExpectedText, Model, Start
from schemas.options import OutputOptions, RecordForm, ShapeName
from schemas.shapes.base import Shape
from schemas.shapes.catalog import SHAPES, shape_of

_TABLE = re.compile(r'^(?P<keyspace>\w+|"[^"]+")\.(?P<table>\w+|"[^"]+")$', re.ASCII)
_TABLE_TEXT = re.sub(r"\?P<\w+>", "", _TABLE.pattern)
_TOPIC = r"^[A-Za-z0-9._{}-]+$"
_TOPIC_EXPECTED = ExpectedText("letters, digits, '.', '_' and '-', and the placeholders {name}, {keyspace} and {table}")

_IntegrityInput = Literal["off", "sample", "always", False]


class ReadingSettings(Model):
    """Which part of the log the job reads, and in which portions."""

    start: Start = Field(
        "earliest",
        description="Where a table without progress starts: `earliest` is now minus the log's TTL, `latest` is now, "
        "or an instant with its UTC offset. A change keeps the TTL with which it was written. If the TTL has been "
        "reduced, the log holds older changes than `earliest` reads; an instant reaches them.",
    )
    confidence_ms: int = Field(
        10_000,
        ge=0,
        le=DAY_MS,
        description="Age in ms at which changes are read (the confidence window). Changes that become visible later "
        "are missed: choose more than write timeout plus clock skew; with logged batches, 120000 (ScyllaDB replays an "
        "interrupted one after 60 s or more); with hints, the longest outage of a node. No window covers an "
        "interrupted lightweight transaction: the next one on its partition finishes it, with the former timestamp. "
        "0 is for tests.",
    )
    leeway_ms: int = Field(
        5_000,
        ge=0,
        le=DAY_MS,
        description="How long in ms after its end a generation may still receive rows; ScyllaDB's own limit is 5 s.",
    )
    max_window_ms: int = Field(
        HOUR_MS, ge=100, le=30 * DAY_MS, description="Longest window of `cdc$time`, in ms, that one micro-batch reads."
    )
    target_batch_ms: int = Field(
        3_000,
        ge=50,
        le=HOUR_MS,
        description="Duration in ms that a micro-batch should take while there is a backlog; window lengths adapt to "
        "it.",
    )
    idle_interval_ms: int = Field(
        30_000,
        ge=0,
        le=HOUR_MS,
        description="Longest time in ms between two micro-batches of a table without writes. The interval grows to "
        "half of the time since the last write; the next change is late by at most the interval.",
    )
    accept_data_loss: bool = Field(
        False,
        strict=True,  # only a real boolean may permit a loss
        description="Continue although changes, or the streams that held them, were gone before they were read, and "
        "start again although the cursors of a published table are gone. If not set, the table stops and says what is "
        "lost.",
    )
    on_incomplete_group: Literal["stop", "deliver"] = Field(
        "stop",
        description="What to do with a group whose last row is missing (which ScyllaDB never writes): stop the table, "
        "or publish the rows that there are.",
    )
    integrity: Annotated[
        Literal["off", "sample", "always"],
        # YAML reads a bare `off` as false.
        BeforeValidator(lambda value: "off" if value is False else value, json_schema_input_type=_IntegrityInput),
    ] = Field(
        "sample",
        description="Whether to check that the key of a change belongs to the stream that holds the change: for every "
        "change, for one in 64, or for none. A mismatch is counted and logged with its position; it stops nothing.",
    )
    deduplicate: bool = Field(
        False,
        description="Leave out a group that repeats the changes of an earlier group of its stream and microsecond: "
        "ScyllaDB logs a write twice if a client retries it. If both have images, either of them may be kept.",
    )


def _shapes_where(chosen: Callable[[Shape], bool]) -> str:
    """Return the names of some shapes, as part of a sentence."""
    *first, last = (shape.name for shape in SHAPES.values() if chosen(shape))
    return f"{', '.join(first)} and {last}" if first else last


class OutputSettings(Model):
    """What a change looks like in Kafka; docs/change-events.md has examples of each shape."""

    shape: ShapeName = Field(
        "delta",
        description=f"Form of the values: {'; '.join(f'`{shape.name}` {shape.summary}' for shape in SHAPES.values())}.",
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
        description="Columns of the record's key; unset, partition_key with the shapes "
        f"{_shapes_where(lambda shape: shape.default_key == 'partition_key')}, primary_key with "
        f"{_shapes_where(lambda shape: shape.default_key == 'primary_key')}. With either, all changes of a base "
        "partition go to one Kafka partition, in order.",
    )
    tombstones: bool | None = Field(
        None,
        description="After the delete of everything under a record key, publish a record without a value, for "
        f"compacted topics; unset, true with the shape {_shapes_where(lambda shape: shape.default_tombstones)} only.",
    )
    headers: tuple[Literal["position", "operation", "timestamp", "table"], ...] = Field(
        ("position",),
        description="Record headers, each `cdc.<name>`: position (36 bytes), operation, write timestamp in us and "
        "table as text.",
    )

    @field_validator("headers")
    @classmethod
    def _refuse_duplicates(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        duplicates = sorted({name for name in value if value.count(name) > 1})
        if duplicates:
            raise ValueError(f"{', '.join(duplicates)}: named twice")
        return value

    def options(self, name: str) -> OutputOptions:
        """Return the encoder's options; `name` is the job's."""
        return OutputOptions(self.shape, self.decimals, self.timestamps, self.times, self.record_key, name)

    @property
    def record_key(self) -> Literal["partition_key", "primary_key"]:
        """The columns of the record's key."""
        if self.key is not None:
            return self.key
        return shape_of(self.shape).default_key

    def record_form(self, *, dead_letters: bool) -> RecordForm:
        """Return which parts records have besides their values.

        Args:
            dead_letters: whether changes that cannot be published become dead letters.
        """
        return RecordForm(
            primary_key=self.record_key == "primary_key",
            tombstones=shape_of(self.shape).default_tombstones if self.tombstones is None else self.tombstones,
            operation="operation" in self.headers,
            timestamp="timestamp" in self.headers,
            table="table" in self.headers,
            dead_letters=dead_letters,
        )


class PublishingSettings(Model):
    """Which topics the job writes, and how large its transactions are."""

    topic: Annotated[str, _TOPIC_EXPECTED] = Field(
        "{keyspace}.{table}", pattern=_TOPIC, description="Change topic's name; {keyspace} and {table} are replaced."
    )
    progress_topic: Annotated[str, _TOPIC_EXPECTED] = Field(
        "{name}.progress.{keyspace}.{table}",
        pattern=_TOPIC,
        description="Name of the compacted topic that holds the lanes' cursors; {name} is the job's.",
    )
    max_transaction_records: int = Field(
        50_000,
        ge=1,
        le=10_000_000,
        description="Once a transaction has this many records, it is committed at the next end of a group.",
    )
    max_transaction_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        le=2**31 - 1,
        description="Once a transaction has this many bytes of keys and values, it is committed at the next end of a "
        "group; sooner while the brokers are slow.",
    )

    dead_letter_topic: Annotated[str | None, _TOPIC_EXPECTED] = Field(
        None,
        pattern=_TOPIC,
        description="Topic for changes that cannot be published: JSON with the reason and the raw cells, in the same "
        "transaction; {name}, {keyspace} and {table} are replaced. Unset, such a change stops its table.",
    )

    @field_validator("progress_topic")
    @classmethod
    def _require_placeholders(cls, value: str) -> str:
        missing = [part for part in ("{name}", "{keyspace}", "{table}") if part not in value]
        if missing:
            raise ValueError(f"must hold {', '.join(missing)}: two jobs or tables would share one cursor")
        return value


class TableSettings(Model):
    """One captured table. Unset settings take their values from `reading`, `output`, `publishing` and `spark`."""

    name: Annotated[str, ExpectedText("keyspace.table")] = Field(
        description="`keyspace.table`, quoted as in CQL where a name is not all lower case.",
        json_schema_extra={"pattern": _TABLE_TEXT},
    )
    topic: Annotated[str | None, _TOPIC_EXPECTED] = Field(
        None, pattern=_TOPIC, description="This table's change topic."
    )
    start: Start | None = Field(None, description="As `reading.start`.")
    lanes: int | None = Field(None, ge=1, le=1024, description="As `spark.lanes`.")
    shape: ShapeName | None = Field(None, description="As `output.shape`.")

    @field_validator("name")
    @classmethod
    def _require_keyspace(cls, value: str) -> str:
        if not _TABLE.match(value):
            raise ValueError(f'{value!r} is not keyspace.table (quote a part as in CQL: ks."MyTable")')
        return value

    @property
    def keyspace(self) -> str:
        """The keyspace's name without quotes."""
        return self._unquoted("keyspace")

    @property
    def table(self) -> str:
        """The table's name without quotes."""
        return self._unquoted("table")

    def _unquoted(self, which: str) -> str:
        match = _TABLE.match(self.name)
        assert match is not None
        part = match.group(which)
        return part[1:-1] if part.startswith('"') else part.lower()


def _expand_name(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


TableEntry = Annotated[
    TableSettings,
    BeforeValidator(_expand_name, json_schema_input_type=Annotated[str, Field(pattern=_TABLE_TEXT)] | TableSettings),
]
