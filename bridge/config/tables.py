"""The sections about tables and their changes: `tables`, `reading`, `output` and `publishing`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from bridge.config.base import DAY_MS, HOUR_MS, InWords, Model, Start
from bridge.model.record_form import RecordForm
from schemas.options import OutputOptions, ShapeName
from schemas.shapes import SHAPES, Shape, shape_of

_TABLE = re.compile(r'^(?P<keyspace>\w+|"[^"]+")\.(?P<table>\w+|"[^"]+")$', re.ASCII)
_TABLE_TEXT = re.sub(r"\?P<\w+>", "", _TABLE.pattern)
_TOPIC = r"^[A-Za-z0-9._{}-]+$"
_TOPIC_IN_WORDS = InWords("letters, digits, '.', '_' and '-', with {name}, {keyspace} and {table} for what is replaced")


_Integrity = Literal["off", "sample", "always", False]


class ReadingSettings(Model):
    """Which part of the log is read, and in what portions."""

    start: Start = Field(
        "earliest",
        description="Where a table that has no progress yet begins: now minus the log's TTL (`earliest`), now, or an "
        "instant with its UTC offset. A change keeps the TTL that it was written under: where the TTL was longer once, "
        "the log holds older changes than `earliest` reads, and an instant reaches them.",
    )
    confidence_ms: int = Field(
        10_000,
        ge=0,
        le=DAY_MS,
        description="Age in ms that a change must reach before it is read (the confidence window). Below write "
        "timeout plus clock skew, changes that become visible late are missed; 0 is for tests.",
    )
    leeway_ms: int = Field(
        5_000,
        ge=0,
        le=DAY_MS,
        description="How long in ms after its end a generation may still get rows; ScyllaDB's own bound is 5 s.",
    )
    max_window_ms: int = Field(
        HOUR_MS, ge=100, le=30 * DAY_MS, description="Longest window of `cdc$time`, in ms, that one micro-batch reads."
    )
    target_batch_ms: int = Field(
        3_000,
        ge=50,
        le=HOUR_MS,
        description="Duration in ms that a micro-batch of a backlog should take: windows shrink and grow towards it.",
    )
    idle_interval_ms: int = Field(
        30_000,
        ge=0,
        le=HOUR_MS,
        description="Longest time in ms from one micro-batch to the next of a table to which nothing is written. It "
        "grows with the silence, to half of its length: a change that ends it is late by no more than that.",
    )
    accept_data_loss: bool = Field(
        False,
        strict=True,  # nothing that only reads like a yes permits a loss
        description="Go on although changes, or the streams that held them, were gone before they were read; otherwise "
        "the table stops and says which span of time is affected.",
    )
    on_incomplete_group: Literal["stop", "deliver"] = Field(
        "stop",
        description="What to do with a group whose last row is missing (which ScyllaDB never writes): stop, or "
        "deliver what is there.",
    )
    integrity: Annotated[
        Literal["off", "sample", "always"],
        # YAML reads a bare `off` as false.
        BeforeValidator(lambda value: "off" if value is False else value, json_schema_input_type=_Integrity),
    ] = Field(
        "sample",
        description="Whether the key of a change is held against the stream that it came in: of every change, of one "
        "in 64, or of none. A mismatch is counted and logged with its position, and stops nothing.",
    )
    deduplicate: bool = Field(
        False,
        description="Leave out a group that repeats the changes of an earlier one of its stream and microsecond (a "
        "client's retried write is logged twice). Of two with images either may be the one that is kept.",
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
        description="Follow the delete of all that a record key stands for by a record without a value, for "
        f"compacted topics; unset, true with the shape {_shapes_where(lambda shape: shape.default_tombstones)} only.",
    )
    headers: tuple[Literal["position", "operation", "timestamp", "table"], ...] = Field(
        ("position",),
        description="Record headers, each `cdc.<name>`: position (36 bytes), operation, write timestamp in us and "
        "table as text.",
    )

    @field_validator("headers")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        doubled = sorted({name for name in value if value.count(name) > 1})
        if doubled:
            raise ValueError(f"{', '.join(doubled)}: named twice")
        return value

    def options(self, name: str) -> OutputOptions:
        """What the encoder takes; `name` is the job's."""
        return OutputOptions(self.shape, self.decimals, self.timestamps, self.times, self.record_key, name)

    @property
    def record_key(self) -> Literal["partition_key", "primary_key"]:
        """The columns of the record's key."""
        if self.key is not None:
            return self.key
        return shape_of(self.shape).default_key

    def record_form(self, *, dead_letters: bool) -> RecordForm:
        """What records have besides their values."""
        return RecordForm(
            primary_key=self.record_key == "primary_key",
            tombstones=shape_of(self.shape).default_tombstones if self.tombstones is None else self.tombstones,
            operation="operation" in self.headers,
            timestamp="timestamp" in self.headers,
            table="table" in self.headers,
            dead_letters=dead_letters,
        )


class PublishingSettings(Model):
    """What is written to Kafka, and in transactions of which size."""

    topic: Annotated[str, _TOPIC_IN_WORDS] = Field(
        "{keyspace}.{table}", pattern=_TOPIC, description="Change topic's name; {keyspace} and {table} are replaced."
    )
    progress_topic: Annotated[str, _TOPIC_IN_WORDS] = Field(
        "{name}.progress.{keyspace}.{table}",
        pattern=_TOPIC,
        description="Name of the compacted topic that holds the lanes' cursors; {name} is the job's.",
    )
    max_transaction_records: int = Field(
        50_000,
        ge=1,
        le=10_000_000,
        description="A transaction is committed at the next end of a group once it holds this many.",
    )
    max_transaction_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, le=2**31 - 1, description="The same for its bytes of keys and values."
    )

    dead_letter_topic: Annotated[str | None, _TOPIC_IN_WORDS] = Field(
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


class TableSettings(Model):
    """One captured table; what is unset here comes from `reading` and `publishing`."""

    name: Annotated[str, InWords("keyspace.table")] = Field(
        description="`keyspace.table`, quoted as in CQL where a name is not all lower case.",
        json_schema_extra={"pattern": _TABLE_TEXT},
    )
    topic: Annotated[str | None, _TOPIC_IN_WORDS] = Field(
        None, pattern=_TOPIC, description="This table's change topic."
    )
    start: Start | None = Field(None, description="As `reading.start`.")
    lanes: int | None = Field(None, ge=1, le=1024, description="As `spark.lanes`.")
    shape: ShapeName | None = Field(None, description="As `output.shape`.")

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


TableEntry = Annotated[
    TableSettings,
    BeforeValidator(_table, json_schema_input_type=Annotated[str, Field(pattern=_TABLE_TEXT)] | TableSettings),
]
