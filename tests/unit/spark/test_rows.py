"""The rows between source and sink, and the source's options."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from bridge.config import validate
from bridge.control import Begin, Schemas, end_to_json
from bridge.encoding import EncodedChange, EncodedRun
from bridge.errors import ConfigError, PoisonError, StartupError
from bridge.lane_publisher import LanePublisher
from bridge.model.cursors import Cursor, LaneProgress, Layout, PlannedBatch, StreamOffset, canonical_json
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing import LaneTask, TableStart
from schemas.errors import IncompatibleSchemaError
from spark import rows, sink
from spark.sink import KafkaLanesWriter
from spark.source import ScyllaCdcSource, SourceOptions
from spark.stream_reader import LanePartition
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.schemas.example_tables import table

SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "int"}, {})
NEXT = Cursor(UnixMillis(5), UnixMicros(9_000))
BATCH = PlannedBatch(Cursor(UnixMillis(5), UnixMicros(6_000)), NEXT, Layout(2, Cursor.at_start_of(UnixMillis(5))))
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


def test_runs_become_pieces_of_bounded_size() -> None:
    """Blocks for the sink, rows for others; the record with which a block is large enough is its last one."""
    run = EncodedRun([b"k"] * 9_500, [b"%d" % n for n in range(9_500)], [b"p" * 36] * 9_500)
    large = EncodedRun([b"k"] * 7, [bytes(3 << 20)] * 7, [b"p" * 36] * 7)
    one = EncodedChange(b"k", None, b"p" * 36, False, '{"a": "b"}', 3)
    found = [batch.to_pylist() for batch in rows.change_batches([run, one, one, large], blocks=True)]
    assert [[row["kind"] for row in block] for block in found] == [[rows.BLOCK]] * 7
    blocks = [rows.block_of(row["value"]) for block in found for row in block]
    assert [len(block[0]) for block in blocks] == [4000, 4000, 1500, 2, 3, 3, 1]
    assert [value for block in blocks[:3] for value in block[1]] == run.values
    assert list(map(EncodedChange._make, zip(*blocks[3], strict=True))) == [one, one]
    plain = [row for batch in rows.change_batches([run, one]) for row in batch.to_pylist()]
    assert [(row["kind"], row["value"]) for row in plain] == [(rows.CHANGE, value) for value in (*run.values, None)]


def test_schema_row_switches_what_records_are_framed_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record goes out under the schemas that stand before it, wherever Spark cuts the batches."""
    config = validate(
        {
            "name": "job",
            "scylla": {"contact_points": ["a:1"]},
            "kafka": {"bootstrap_servers": ["a:2"]},
            "registry": {"url": "http://a:3"},
            "tables": ["ks.t"],
        }
    )
    asked: list[str] = []

    def header(_self: object, _part: str, schema: str) -> bytes:
        asked.append(schema)
        return schema.encode()

    published: list[tuple[bytes, bytes]] = []
    publisher = SimpleNamespace(
        publish=lambda _topic, key, value, *_: published.append((key, value)), finish=lambda: None
    )
    monkeypatch.setattr(sink.LaneRows, "_header", header)
    task = LaneTask("ks", "t", 0, BATCH)
    begin = Begin(task, Schemas("k1:", "v1:"))
    change = list(rows.change_batches([EncodedChange(b"k", b"v", b"p" * 36, True)], blocks=True))
    parts = [
        *change,
        *change,
        rows.control_batch(rows.SCHEMA, Schemas("kx:", "vx:").to_json()),  # nothing was written under these
        rows.control_batch(rows.SCHEMA, Schemas("k1:", "v2:").to_json()),
        *change,
        rows.control_batch(rows.END, end_to_json([])),
    ]
    whole = pa.Table.from_batches(parts).combine_chunks().to_batches()
    assert len(whole) == 1
    for batches in (parts, whole):
        published.clear()
        asked.clear()
        KafkaLanesWriter(config, "job", None)._publish(publisher, begin, parts[0].slice(1), iter(batches))
        assert published == [(b"k1:k", b"v1:v")] * 2 + [(b"k1:k", b"v2:v")]
        assert asked == ["k1:", "v1:", "k1:", "v2:"]


def test_changes_of_a_refused_schema_are_dead_letters_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a dead-letter topic a refusal by the registry stops nothing; without one it stops the table."""
    settings: dict[str, Any] = {
        "name": "job",
        "scylla": {"contact_points": ["a:1"]},
        "kafka": {"bootstrap_servers": ["a:2"]},
        "registry": {"url": "http://a:3"},
        "tables": ["ks.t"],
    }
    asked: list[str] = []

    def header(_self: object, _part: str, schema: str) -> bytes:
        asked.append(schema)
        if schema == "v2:":
            refusal = IncompatibleSchemaError("no", subject="ks.t-value", rule="FULL", reason="no")
            raise StartupError("subject ks.t-value refuses it") from refusal
        return schema.encode()

    published: list[tuple[str, bytes | None, bytes]] = []
    publisher = SimpleNamespace(
        publish=lambda topic, key, value, *_: published.append((topic, key, value)), finish=lambda: None
    )
    monkeypatch.setattr(sink.LaneRows, "_header", header)
    position = bytes(16) + bytes(range(16)) + bytes(4)
    change = list(rows.change_batches([EncodedChange(b"k", b"v", position, True)], blocks=True))
    parts = [
        *change,
        rows.control_batch(rows.SCHEMA, Schemas("k1:", "v2:").to_json()),
        *change,
        *change,
        rows.control_batch(rows.SCHEMA, Schemas("k1:", "v3:").to_json()),
        *change,
        rows.control_batch(rows.END, end_to_json([])),
    ]
    begin = Begin(LaneTask("ks", "t", 0, BATCH), Schemas("k1:", "v1:"))
    with pytest.raises(StartupError, match="refuses it"):
        KafkaLanesWriter(validate(settings), "job", None)._publish(publisher, begin, parts[0].slice(1), iter(parts))
    published.clear()
    asked.clear()
    config = validate(settings | {"publishing": {"dead_letter_topic": "{name}.dead.{table}"}})
    poison = KafkaLanesWriter(config, "job", None)._publish(publisher, begin, parts[0].slice(1), iter(parts))
    assert poison == "subject ks.t-value refuses it"
    assert [(topic, key) for topic, key, _ in published] == [
        ("ks.t", b"k1:k"),
        ("job.dead.t", None),
        ("job.dead.t", None),
        ("ks.t", b"k1:k"),
    ]
    letter = json.loads(published[1][2])
    assert (letter["error"], letter["key"], letter["value"]) == ("subject ks.t-value refuses it", "6b", "76")
    assert (letter["value_schema"], letter["batch_seq_no"]) == ("v2:", 0)
    assert asked.count("v2:") == 1


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
    partition = LanePartition("ks", "t", 1, canonical_json(StreamOffset(NEXT, BATCH).to_json()))
    assert (partition.task.batch, partition.task.lane) == (BATCH, 1)


@pytest.mark.parametrize("in_runs", [False, True])
def test_records_over_the_limit_are_dead_letters_on_request(monkeypatch: pytest.MonkeyPatch, *, in_runs: bool) -> None:
    """With a dead-letter topic, bodies and all where these fit; without one the table stops and says which change."""
    settings: dict[str, Any] = {
        "name": "job",
        "scylla": {"contact_points": ["a:1"]},
        "kafka": {"bootstrap_servers": ["a:2"]},
        "registry": {"url": "http://a:3"},
        "tables": ["ks.t"],
    }
    task = LaneTask("ks", "t", 0, BATCH)

    def publisher(broker: Broker) -> LanePublisher:
        made = LanePublisher(
            lambda: Client(broker, "id"),
            lambda: LaneProgress(0, BATCH.layout, BATCH.start, owner="job").to_bytes(),
            progress_topic=PROGRESS,
            owner="job",
            most_records=3,
            most_bytes=10**9,
        )
        made.start(task, fresh=False)
        return made

    monkeypatch.setattr(sink.LaneRows, "_header", lambda _self, _part, schema: schema.encode())
    sizes = (1, 597, 1, 5_000, 1)
    first_us = 1_700_000_000_000_000
    positions = [bytes(16) + timeuuid_of(UnixMicros(first_us + at), bytes(8)) + bytes(4) for at in range(len(sizes))]
    run = EncodedRun([b"k%d" % at for at in range(len(sizes))], [b"v" * size for size in sizes], positions)
    changes = [run] if in_runs else list(run.changes())
    parts = [*rows.change_batches(changes, blocks=True), rows.control_batch(rows.END, end_to_json([]))]
    begin = Begin(task, Schemas("k:", "value:"))
    places = [f"ks.t: stream 0x{bytes(16).hex()}, {first_us + at} us, batch_seq_no 0" for at in range(len(sizes))]
    broker, rest = Broker(limit=600), parts[0].slice(0, 0)
    refused = f"{places[1]}: 603 bytes for topic ks.t, or set publishing.dead_letter_topic"
    with pytest.raises(PoisonError, match=refused):
        KafkaLanesWriter(validate(settings), "job", None)._publish(publisher(broker), begin, rest, iter(parts))
    assert broker.committed == {}
    config = validate(settings | {"publishing": {"dead_letter_topic": "dead"}})
    KafkaLanesWriter(config, "job", None)._publish(publisher(broker), begin, rest, iter(parts))
    assert [key for key, _ in broker.committed["ks.t"]] == [b"k:k0", b"k:k2", b"k:k4"]
    assert broker.sizes == [3, 2]
    first, second = [json.loads(letter or b"") for _, letter in broker.committed["dead"]]
    assert (first["error"], second["error"]) == (
        f"{places[1]}: 603 bytes for topic ks.t",
        f"{places[3]}: 5006 bytes for topic ks.t",
    )
    for letter in (first, second):
        assert "value" not in letter
        assert letter["omitted_bytes"] > 600
