"""Changes become records or dead letters."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.config.document import KafkaSettings
from bridge.encoding.dead_letter import rejected_record_letter, shorter_letters
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedChange
from bridge.engine.write_lane import FrameHeader, LaneOutput
from bridge.errors import StartupError, TooLargeError, UnpublishableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.transaction_size import TransactionSize
from bridge.reading.table_capture import Schemas
from schemas.errors import IncompatibleSchemaError
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.spark.job.fakes import config_of

NEXT = Cursor(UnixMillis(5), UnixMicros(9_000))
BATCH = PlannedBatch(Cursor(UnixMillis(5), UnixMicros(6_000)), NEXT, Layout(2, Cursor.at_start_of(UnixMillis(5))))
TASK = LaneTask("ks", "t", 0, BATCH)


class Recorder:
    """A lane's publisher that keeps the records."""

    def __init__(self) -> None:
        self.records: list[tuple[str, bytes | None, bytes | None]] = []
        self.entered: list[int] = []

    def enter(self, part: int) -> None:
        self.entered.append(part)

    def publish(self, topic: str, key: bytes | None, value: bytes | None, *_: object) -> None:
        self.records.append((topic, key, value))


def schema_as_header(_topic: str, _part: str, schema: str) -> bytes:
    return schema.encode()


def output(publisher: Any, header: FrameHeader = schema_as_header, **sections: Any) -> LaneOutput:
    """An output to `publisher`; every topic has 4 partitions."""
    return LaneOutput(config_of("ks.t", **sections), TASK, publisher, header, lambda _topic: 4)


def test_records_are_framed_under_the_schemas_in_force() -> None:
    """The output asks for a schema's frame header once, with its first record."""
    asked: list[str] = []

    def header(_topic: str, _part: str, schema: str) -> bytes:
        asked.append(schema)
        return schema.encode()

    publisher = Recorder()
    made = output(publisher, header)
    change = EncodedChange(b"k", b"v", b"p" * 36, True)
    for part, schemas, changes in (
        (0, Schemas("k1:", "v1:"), [change, change]),
        (1, Schemas("k1:", "v1:"), [change]),
        (1, Schemas("kx:", "vx:"), []),
        (2, Schemas("k1:", "v2:"), [change]),
    ):
        made.switch_to(part, schemas)
        made.publish(iter(changes))
    assert publisher.records == [("ks.t", b"k1:k", b"v1:v")] * 3 + [("ks.t", b"k1:k", b"v2:v")]
    assert asked == ["k1:", "v1:", "k1:", "v2:"]
    assert publisher.entered == [1, 2]
    assert made.dead_letter_reason is None


def test_headers_tombstones_and_placements_are_published() -> None:
    """The position is a header if that is configured; a placement becomes one of the topic's 4 partitions."""
    published: list[tuple[Any, ...]] = []
    publisher = SimpleNamespace(publish=lambda *record: published.append(record))
    position = b"p" * 36
    for headers in (["position", "operation"], ["operation"]):
        made = output(publisher, output={"headers": headers})
        made.switch_to(0, Schemas("k:", "v:"))
        made.publish(iter([EncodedChange(b"k", None, position, True, '{"op": "d"}', 7)]))
    assert published == [
        ("ks.t", b"k:k", None, position, {POSITION_HEADER: position, "op": b"d"}, 3),
        ("ks.t", b"k:k", None, position, {"op": b"d"}, 3),
    ]


@pytest.mark.parametrize("in_runs", [False, True])
def test_changes_of_a_refused_schema_become_dead_letters(*, in_runs: bool) -> None:
    """If there is a dead-letter topic; otherwise a refusal by the registry stops the table."""
    asked: list[str] = []

    def header(_topic: str, _part: str, schema: str) -> bytes:
        asked.append(schema)
        if schema == "v2:":
            refusal = IncompatibleSchemaError("no", subject="ks.t-value", rule="FULL", reason="no")
            raise StartupError("subject ks.t-value refuses it") from refusal
        return schema.encode()

    position = bytes(16) + bytes(range(16)) + bytes(4)
    change = EncodedChange(b"k", b"v", position, True)
    refused: list[Any] = [run_of([b"k"] * 2, [b"v"] * 2, [position] * 2)] if in_runs else [change, change]

    def work(made: LaneOutput) -> None:
        for value, changes in (("v1:", [change]), ("v2:", refused), ("v3:", [change])):
            made.switch_to(0, Schemas("k1:", value))
            made.publish(iter(changes))

    with pytest.raises(StartupError, match="refuses it"):
        work(output(Recorder(), header))
    asked.clear()
    publisher = Recorder()
    made = output(publisher, header, publishing={"dead_letter_topic": "{name}.dead.{table}"})
    work(made)
    assert made.dead_letter_reason == "subject ks.t-value refuses it"
    assert [(topic, key) for topic, key, _ in publisher.records] == [
        ("ks.t", b"k1:k"),
        ("job.dead.t", None),
        ("job.dead.t", None),
        ("ks.t", b"k1:k"),
    ]
    letter = json.loads(publisher.records[1][2] or b"")
    assert (letter["error"], letter["key"], letter["value"]) == ("subject ks.t-value refuses it", "6b", "76")
    assert (letter["value_schema"], letter["batch_seq_no"]) == ("v2:", 0)
    assert asked.count("v2:") == 1


def test_dead_letters_of_the_reader_are_published_unchanged() -> None:
    """Without a request to the registry. The output keeps the first one's reason."""
    publisher = Recorder()
    made = output(publisher, publishing={"dead_letter_topic": "dead"})
    made.switch_to(0, Schemas("k:", "v:"))
    letters = [b'{"error": "torn"}', b'{"error": "worn"}']
    made.publish(EncodedChange(b"", letter, b"p" * 36, True, is_dead_letter=True) for letter in letters)
    assert publisher.records == [("dead", None, letter) for letter in letters]
    assert made.dead_letter_reason == "torn"


@pytest.mark.parametrize("in_runs", [False, True])
def test_records_over_the_limit_become_dead_letters(*, in_runs: bool) -> None:
    """If there is a dead-letter topic, with their bodies if these fit; otherwise an error names the change."""

    def publisher(broker: Broker) -> LanePublisher:
        made = LanePublisher(
            lambda: Client(broker, "id"),
            lambda: LaneProgress(0, BATCH.layout, BATCH.start, owner="job").to_bytes(),
            progress_topic=PROGRESS,
            owner="job",
            most_records=3,
            size=TransactionSize(10**9, 60.0),
        )
        made.start(TASK, fresh=False)
        return made

    sizes = (1, 597, 1, 5_000, 1)
    first_us = 1_700_000_000_000_000
    positions = [bytes(16) + timeuuid_of(UnixMicros(first_us + at), bytes(8)) + bytes(4) for at in range(len(sizes))]
    run = run_of([b"k%d" % at for at in range(len(sizes))], [b"v" * size for size in sizes], positions)

    def work(broker: Broker, **sections: Any) -> None:
        of = publisher(broker)
        made = output(of, **sections)
        made.switch_to(0, Schemas("k:", "value:"))
        made.publish(iter([run]) if in_runs else run.changes())
        of.finish()

    places = [f"ks.t: stream 0x{bytes(16).hex()}, {first_us + at} us, batch_seq_no 0" for at in range(len(sizes))]
    broker = Broker(limit=600)
    refused = f"{places[1]}: 603 bytes for topic ks.t, or set publishing.dead_letter_topic"
    with pytest.raises(UnpublishableError, match=refused):
        work(broker)
    assert broker.committed == {}
    work(broker, publishing={"dead_letter_topic": "dead"})
    assert [key for key, _ in broker.committed["ks.t"]] == [b"k:k0", b"k:k2", b"k:k4"]
    assert broker.sizes == [3, 2]
    first, second = [json.loads(letter or b"") for _, letter in broker.committed["dead"]]
    assert (first["error"], second["error"]) == (
        f"{places[1]}: 603 bytes for topic ks.t",
        f"{places[3]}: 5006 bytes for topic ks.t",
    )
    for letter, key in ((first, b"k1"), (second, b"k3")):
        assert not {"value", "value_schema"} & letter.keys()
        assert (letter["key"], letter["key_schema"]) == (key.hex(), "k:")
        assert letter["omitted_bytes"] > 600


def test_shortened_dead_letters_keep_what_they_can() -> None:
    """A tombstone keeps its null, which tells it from other changes. A letter without a key is shorter_letters once."""
    position = bytes(16) + bytes(range(16)) + bytes(4)
    letter = rejected_record_letter(("ks", "t"), position, b"key" * 10, None, ("k:", "v:"), "it is refused")
    for less in shorter_letters(letter):
        document = json.loads(less)
        assert document["value"] is None
        assert "value_schema" not in document
    rows = json.dumps({"v": 1, "error": "it is refused", "rows": [{"pk": "00"}]}).encode()
    assert [len(list(shorter_letters(one))) for one in (letter, rows)] == [2, 1]


def test_dead_letters_lose_no_more_than_they_must() -> None:
    """First the value, or the log's rows; then the key. A letter that is still too large stops the table."""
    error = "it is refused"
    position = bytes(16) + bytes(range(16)) + bytes(4)
    letter = rejected_record_letter(("ks", "t"), position, b"key" * 10, b"value" * 100, ("k:", "v:"), error)
    rows = json.dumps({"v": 1, "error": error, "rows": [{"pk": "00" * 500}]}).encode()
    taken: list[bytes] = []

    def publishing(limit: int) -> Any:
        def publish(_topic: str, _key: object, value: bytes, *_: object) -> None:
            if len(value) > limit:
                raise TooLargeError(f"{len(value)} bytes")
            taken.append(value)

        return SimpleNamespace(publish=publish)

    for limit in (10_000, len(letter) - 1, 290):
        made = output(publishing(limit), publishing={"dead_letter_topic": "dead"})
        made.publish([EncodedChange(b"", letter, position, True, is_dead_letter=True)])
    whole, keyed, bare = map(json.loads, taken)
    where = {"v", "keyspace", "table", "stream_id", "time", "batch_seq_no", "error"}
    assert whole == json.loads(letter)
    assert keyed.keys() == where | {"key", "key_schema", "omitted_bytes"}
    assert bare.keys() == where | {"omitted_bytes"}
    assert {keyed["omitted_bytes"], bare["omitted_bytes"]} == {len(letter)}
    for limit, what in ((500, rows), (100, letter)):
        made = output(publishing(limit), publishing={"dead_letter_topic": "dead"})
        change = EncodedChange(b"", what, position, True, is_dead_letter=True)
        if what is rows:
            made.publish([change])
            assert json.loads(taken[-1]) == {"v": 1, "error": error, "omitted_bytes": len(rows)}
        else:
            with pytest.raises(UnpublishableError):
                made.publish([change])


def test_large_dead_letters_are_published_or_shortened() -> None:
    """A letter that the topic takes is published, even if the Kafka client's queue is smaller; others are cut."""
    kafka = KafkaSettings.model_validate(
        {"bootstrap_servers": "a:1", "transaction_timeout_ms": 2000, "properties": {"test.mock.num.brokers": 1}}
    )
    publisher = LanePublisher(
        lambda: TransactionalProducer(kafka, "id", known_topic="dead", topics_limit=20 << 20),
        lambda: LaneProgress(0, BATCH.layout, BATCH.start, owner="job").to_bytes(),
        progress_topic=PROGRESS,
        owner="job",
        most_records=10,
        size=TransactionSize(10**9, 60.0),
    )
    publisher.start(TASK, fresh=False)
    made = output(publisher, publishing={"dead_letter_topic": "dead"})
    positions = [bytes(16) + timeuuid_of(UnixMicros(6_001 + at), bytes(8)) + bytes(4) for at in range(2)]
    try:
        for position, mib in zip(positions, (18, 21), strict=True):
            letter = b'{"error": "torn", "rows": ["%b"]}' % (b"00" * (mib << 19))
            made.publish(iter([EncodedChange(b"", letter, position, True, is_dead_letter=True)]))
        publisher.finish()
    finally:
        publisher.close()
    assert made.dead_letter_reason == "torn"
