"""The rows between source and sink, and the source's options."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from bridge.encoding import EncodedChange
from bridge.errors import ConfigError
from bridge.model.cursors import Cursor, Layout, PlannedBatch, StreamOffset, canonical_json
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing import TableStart
from spark import rows
from spark.source import ScyllaCdcSource, SourceOptions
from spark.stream_reader import LanePartition

OPTIONS = {"scylla.contact_points": "127.0.0.1:9042", "table": "shop.orders"}


def test_arrow_and_spark_schemas_agree() -> None:
    """Spark takes Arrow batches only when their schema equals the row type's exactly."""
    ours, theirs = rows.ARROW_SCHEMA, to_arrow_schema(rows.ROW_TYPE)
    assert [(field.name, field.type, field.nullable) for field in ours] == [
        (field.name, field.type, field.nullable) for field in theirs
    ]


def test_changes_become_batches_of_bounded_size() -> None:
    """Many small changes, or few large ones, make several record batches and lose none."""
    small = [EncodedChange(b"k", b"%d" % n, b"p" * 36, True) for n in range(9_500)]
    batches = list(rows.change_batches(small))
    assert [batch.num_rows for batch in batches] == [4000, 4000, 1500]
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [c.value for c in small]
    large = [EncodedChange(b"k", bytes(3 << 20), b"p" * 36, True) for _ in range(7)]
    assert [batch.num_rows for batch in rows.change_batches(large)] == [3, 3, 1]
    assert list(rows.change_batches([])) == []


def test_options_by_themselves_make_a_source() -> None:
    """A user gives flat options; what is not given has its default."""
    options = SourceOptions.parse(OPTIONS | {"reading.confidence_ms": "0", "payload": "json", "lanes": "3"})
    assert (options.config.lanes, options.config.payload, options.config.reading.confidence_ms) == (3, "json", 0)
    assert (options.start, options.control) == (None, False)
    assert ScyllaCdcSource.name() == "scylla-cdc"


def test_job_says_where_its_table_stands() -> None:
    """What Kafka says of a table travels to the planner as an option."""
    cursor = Cursor(UnixMillis(5), UnixMicros(6_000))
    start = TableStart(Layout(2, cursor), cursor)
    options = SourceOptions.parse(OPTIONS | {"table_start": json.dumps(start.to_json()), "control": "true"})
    assert (options.start, options.control) == (start, True)


def test_wrong_options_are_named() -> None:
    """Every wrong option is named at once."""
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({"scylla.contact_point": "127.0.0.1:9042", "table": "orders", "lanes": "0"})
    words = str(caught.value)
    assert all(name in words for name in ("contact_point", "table", "lanes"))


def test_partition_carries_its_task() -> None:
    """What a task gets is the plan itself."""
    cursor, following = (Cursor(UnixMillis(5), UnixMicros(time_us)) for time_us in (6_000, 9_000))
    batch = PlannedBatch(cursor, following, Layout(2, Cursor.at_start_of(UnixMillis(5))))
    partition = LanePartition("ks", "t", 1, canonical_json(StreamOffset(following, batch).to_json()))
    assert (partition.task.batch, partition.task.lane) == (batch, 1)
