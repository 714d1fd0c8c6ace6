"""The source's rows and options."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from bridge.encoding.group_encoder import EncodedChange
from bridge.engine.lane_task import Publishing
from bridge.errors import ConfigError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset, canonical_json
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.reports import LaneReport
from bridge.publishing.table_start import TableStart
from spark.source import rows
from spark.source.source import ScyllaCdcSource, SourceOptions
from spark.source.stream_reader import LanePartition
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.schemas.example_tables import table
from tests.unit.spark.job.fakes import config_of

SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "int"}, {})
NEXT = Cursor(UnixMillis(5), UnixMicros(9_000))
BATCH = PlannedBatch(Cursor(UnixMillis(5), UnixMicros(6_000)), NEXT, Layout(2, Cursor.at_start_of(UnixMillis(5))))
OPTIONS = {"scylla.contact_points": "127.0.0.1:9042", "table": "shop.orders"}


def test_arrow_and_spark_schemas_agree() -> None:
    """Spark accepts only Arrow batches whose schema equals that of the row type."""
    report = rows.report_batch(LaneReport("ks.t", 0, NEXT, []))
    for ours, theirs in ((rows.ARROW_SCHEMA, rows.ROW_TYPE), (report.schema, rows.REPORT_TYPE)):
        assert [(field.name, field.type, field.nullable) for field in ours] == [
            (field.name, field.type, field.nullable) for field in to_arrow_schema(theirs)
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


def test_runs_become_pieces_of_bounded_size() -> None:
    """A piece ends with the record that makes it large enough."""
    run = run_of([b"k"] * 9_500, [b"%d" % n for n in range(9_500)], [b"p" * 36] * 9_500)
    large = run_of([b"k"] * 7, [bytes(3 << 20)] * 7, [b"p" * 36] * 7)
    one = EncodedChange(b"k", None, b"p" * 36, False, '{"a": "b"}', 3)
    found = [batch.to_pylist() for batch in rows.change_batches([run, one, one, large])]
    assert [len(piece) for piece in found] == [4000, 4000, 1500, 2, 3, 3, 1]
    assert [row["value"] for piece in found[:3] for row in piece] == [value for _, _, value, _ in run.records]
    shown = {"kind": rows.CHANGE, "key": b"k", "value": None, "position": b"p" * 36, "last_in_group": False}
    assert found[3] == [shown | {"text": '{"a": "b"}', "placement": 3}] * 2


def test_options_by_themselves_make_a_source() -> None:
    """A user gives flat options; other settings have their defaults."""
    options = SourceOptions.parse(OPTIONS | {"reading.confidence_ms": "0", "payload": "json", "lanes": "3"})
    assert (options.config.lanes, options.config.payload, options.config.reading.confidence_ms) == (3, "json", 0)
    assert (options.start, options.publishing, options.signals) == (None, None, None)
    assert ScyllaCdcSource(dict(OPTIONS)).schema() == rows.ROW_TYPE
    assert ScyllaCdcSource.name() == "scylla-cdc"


def test_job_says_where_its_table_stands() -> None:
    """Options carry the table's start to the planner, and to the tasks what they need to publish."""
    cursor = Cursor(UnixMillis(5), UnixMicros(6_000))
    start = TableStart(Layout(2, cursor), cursor)
    job = config_of("shop.orders")
    given = OPTIONS | {"table_start": json.dumps(start.to_json()), "job": job.model_dump_json(), "owner": "it"}
    options = SourceOptions.parse(given)
    assert (options.start, options.publishing) == (start, Publishing(job, "it"))
    assert ScyllaCdcSource(given).schema() == rows.REPORT_TYPE


def test_wrong_options_are_named() -> None:
    """One error names every wrong option."""
    with pytest.raises(ConfigError) as caught:
        SourceOptions.parse({"scylla.contact_point": "127.0.0.1:9042", "table": "orders", "lanes": "0"})
    words = str(caught.value)
    assert all(name in words for name in ("contact_point", "table", "lanes"))


def test_partition_carries_its_task() -> None:
    """A task gets the plan itself."""
    partition = LanePartition("ks", "t", 1, canonical_json(StreamOffset(NEXT, BATCH).to_json()))
    assert (partition.task.batch, partition.task.lane) == (BATCH, 1)
