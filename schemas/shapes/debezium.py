"""The shape ``debezium``: what Debezium's connectors write and its transforms expect.

A record is ``{before, after, source, op, ts_ms, ...}``. `before` and `after` are whole rows with their keys, from the
log's images. The post-image is the row after the change. Without a post-image, `after` combines the pre-image and the
change. Without a pre-image `before` is null, except in deletes: there it has the key, as for a PostgreSQL table with
the default replica identity. ``source.unavailable`` and ``source.before_unavailable`` list the columns that are null in
`after` and `before` because the log does not have their values.

| ScyllaDB | op |
|---|---|
| insert | c |
| update, static update | u |
| delete or expiry of a row, a partition or a range | d |
| an unknown operation | m; with a post-image u |

`m` is Debezium's op for a message that is not a change of a row. Such a record has neither `before` nor `after`, and
Debezium's transform drops records without both. With a post-image the row after an unknown operation is known, so the
record is an update.

The names of the records end in ``.Envelope``, ``.Value`` and ``.Key``, because Debezium's transforms recognise them by
these. `ts_ms` is the time of the write, like ``source.ts_ms``, and not the time of encoding, so that a replay gives the
same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final
from uuid import UUID

from schemas.avro.records import ENVELOPE_VERSION, UNKNOWN_OPERATION, Records
from schemas.log.change_records import LogRecords
from schemas.log.log_change import LogChange
from schemas.log.operations import RANGE_DELETE
from schemas.shapes.base import Effect, LogOptions, Shape, absent_postimages, partial_preimages

_OPS: Final = {
    "insert": "c",
    "update": "u",
    "static_update": "u",
    "row_delete": "d",
    "partition_delete": "d",
    RANGE_DELETE: "d",
    "row_expiry": "d",
    "partition_expiry": "d",
    UNKNOWN_OPERATION: "m",
}
_CONNECTOR: Final = "scylla"
_END_OF_NS_US: Final = 2**63 // 1000
"""From this distance to 1970 on, nanoseconds do not fit in a long."""
_UNTOUCHED: Final = "without post-images source.unavailable lists the columns that a change does not touch"


class DebeziumShape(Shape):
    """The shape ``debezium``; a delete has a tombstone by default, as with Debezium's connectors."""

    name = "debezium"
    summary = "is before, after, op and source as Debezium's connectors give them"
    by_row = True
    default_key = "primary_key"
    default_tombstones = True
    keys_only = "after has the row only if there is a post-image"
    preimages: ClassVar = {
        "false": Effect(
            f"before is null, and for a delete only the key; {_UNTOUCHED}",
            is_loss=True,
        ),
        "true": Effect(
            "before has the columns that the change touches, and in a batch over several rows a null "
            f"there is unreliable; {_UNTOUCHED}",
            is_loss=True,
        ),
        "full": Effect("before has the whole row", is_loss=False),
    }
    postimages: ClassVar = {
        False: Effect(
            "after combines the pre-image and the change, and source.unavailable lists the columns that "
            "neither of them gives",
            is_loss=True,
        ),
        True: Effect("after has the whole row", is_loss=False),
    }

    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's schema, in order."""
        value = records.whole_row("Value")
        return [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": _source_type()},
            {"name": "transaction", "type": ["null", _transaction_type()], "default": None},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
            {"name": "ts_us", "type": ["null", "long"], "default": None},
            {"name": "ts_ns", "type": ["null", "long"], "default": None},
            *records.range(),
        ]

    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields."""
        symbol = log.symbol(change)
        op = _OPS[symbol] if symbol != UNKNOWN_OPERATION or change.after is None else "u"
        empty: list[str] = []
        key = log.primary_key(change, symbol, empty)
        before, earlier, after = log.rows.before(change, symbol), None, None
        unavailable: list[str] = []
        before_unavailable: list[str] = []
        if op == "d" or (before.row is not None and op != "m"):
            earlier = log.whole_row("Value", key, before)
            before_unavailable = [*empty, *log.rows.unavailable(before, symbol)]
        if op in ("c", "u"):
            outcome = log.rows.row_after(change, symbol)
            after = log.whole_row("Value", key, outcome)
            unavailable = [*empty, *log.rows.unavailable(outcome, symbol)]
        if op == "m":
            log.rows.check_cells(change)
        source = _values_of_source(log, change)
        return {
            "before": earlier,
            "after": after,
            "source": {**source, "unavailable": unavailable, "before_unavailable": before_unavailable},
            "transaction": None,
            "op": op,
            "ts_ms": ("long", source["ts_ms"]),
            "ts_us": source["ts_us"],
            "ts_ns": source["ts_ns"],
            **log.range(change),
        }

    def advice(self, options: LogOptions) -> Iterator[str]:
        """Yield which images are missing or unreliable."""
        yield from super().advice(options)
        yield from partial_preimages(options)
        yield from absent_postimages(self.name, options)


DEBEZIUM = DebeziumShape()


def _values_of_source(log: LogRecords, change: LogChange) -> dict[str, object]:
    source = log.source(change)
    timestamp_us, stream_id, time = source["timestamp_us"], source["stream_id"], source["time"]
    assert isinstance(timestamp_us, int)
    assert isinstance(stream_id, bytes)
    assert isinstance(time, bytes)
    ttl, ttl_mixed = log.ttl_of(change)
    return {
        "version": str(ENVELOPE_VERSION),
        "connector": _CONNECTOR,
        "name": log.job,
        "ts_ms": timestamp_us // 1000,
        "ts_us": ("long", timestamp_us),
        "ts_ns": ("long", timestamp_us * 1000) if abs(timestamp_us) < _END_OF_NS_US else None,
        "snapshot": ("string", "false"),
        "db": source["keyspace"],
        "sequence": None,
        "keyspace": source["keyspace"],
        "table": source["table"],
        "generation_ms": source["generation_ms"],
        "stream_id": stream_id.hex(),
        "time": str(UUID(bytes=time)),
        "batch_seq_no": source["batch_seq_no"],
        "operation": source["operation"],
        "last_in_group": source["last_in_group"],
        "ttl": ttl,
        "ttl_mixed": ttl_mixed,
    }


def _source_type() -> object:
    fields = [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "doc": "The job's name.", "type": "string"},
        {"name": "ts_ms", "doc": "The write timestamp in milliseconds since the Unix epoch.", "type": "long"},
        {"name": "snapshot", "type": ["null", "string"], "default": None},
        {"name": "db", "doc": "CQL name of the keyspace.", "type": "string"},
        {"name": "sequence", "type": ["null", "string"], "default": None},
        {"name": "ts_us", "type": ["null", "long"], "default": None},
        {
            "name": "ts_ns",
            "doc": "Null from the year 2262 on, and before 1678.",
            "type": ["null", "long"],
            "default": None,
        },
        {"name": "keyspace", "doc": "CQL name of the keyspace.", "type": "string"},
        {"name": "table", "doc": "CQL name of the base table.", "type": "string"},
        {"name": "generation_ms", "doc": "Start of the CDC generation, ms since the Unix epoch.", "type": "long"},
        {"name": "stream_id", "doc": "cdc$stream_id in hex.", "type": "string"},
        {"name": "time", "doc": "cdc$time, a timeuuid.", "type": "string"},
        {"name": "batch_seq_no", "doc": "cdc$batch_seq_no.", "type": "int"},
        {"name": "operation", "doc": "cdc$operation.", "type": "int"},
        {"name": "last_in_group", "doc": "Whether no change of the same stream and time follows.", "type": "boolean"},
        {
            "name": "ttl",
            "doc": "Time to live in seconds of what was written; null without one, or where it differs.",
            "type": ["null", "long"],
            "default": None,
        },
        {
            "name": "ttl_mixed",
            "doc": "Whether parts of what was written have different times to live, or some have none.",
            "type": "boolean",
            "default": False,
        },
        _column_list_field("unavailable", "after"),
        _column_list_field("before_unavailable", "before"),
    ]
    return {"name": "Source", "type": "record", "fields": fields}


def _column_list_field(name: str, row: str) -> object:
    return {
        "name": name,
        "doc": f"CQL names of columns that are null in `{row}` because the log does not tell their value, or because "
        "it has zero length, which their Avro type lacks.",
        "type": {"type": "array", "items": "string"},
        "default": [],
    }


def _transaction_type() -> object:
    fields = [
        {"name": "id", "type": "string"},
        {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"},
    ]
    return {"name": "block", "namespace": "event", "type": "record", "fields": fields}
