"""Every scalar CQL type, from the server's bytes to a consumer that knows nothing but the registry."""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from bridge.adapters.scylla import CqlSession
from bridge.config import ScyllaSettings
from bridge.local.simulator.cluster import SimulatedCluster
from bridge.local.simulator.mutations import Insert, Mutation, PartitionDelete, RowDelete, Update
from bridge.local.simulator.pacing import system_clock_us
from bridge.local.simulator.tables import SimulatedTable
from bridge.local.simulator.writer import Simulator
from bridge.local.stack import LocalStack
from bridge.model.times import UnixMicros, UnixMillis
from schemas.cql_types import parse
from schemas.table_schema import Column, ColumnKind, TableSchema
from tests.integration.running import BridgeJob

pytestmark = pytest.mark.integration


def unscaled(number: Decimal) -> dict[str, Any]:
    """A number in the form of the VariableScaleDecimal record, minimal two's complement."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    whole = int(number.scaleb(-exponent))
    size = (whole + (whole < 0)).bit_length() // 8 + 1
    return {"scale": -exponent, "value": whole.to_bytes(size, "big", signed=True)}


def varint(number: int) -> bytes:
    return bytes(unscaled(Decimal(number))["value"])


HUGE = 3**500
SOME_UUID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")
NOT_RFC = uuid.UUID("ffffffff-ffff-ffff-ffff-ffffffffffff")
NAN = struct.pack(">d", math.nan)
# Type, the server's serialization (native protocol v4, section 6), what AvroDeserializer must give.
CASES: list[tuple[str, bytes, Any]] = [
    ("ascii", b"", ""),
    ("ascii", b"abc~", "abc~"),
    ("text", "żółć 😀\0".encode(), "żółć 😀\0"),
    ("varchar", b"plain", "plain"),
    ("bigint", struct.pack(">q", -(2**63)), -(2**63)),
    ("bigint", struct.pack(">q", 2**63 - 1), 2**63 - 1),
    ("int", struct.pack(">i", -(2**31)), -(2**31)),
    ("int", struct.pack(">i", 2**31 - 1), 2**31 - 1),
    ("smallint", struct.pack(">h", -(2**15)), -(2**15)),
    ("tinyint", struct.pack(">b", -128), -128),
    ("tinyint", struct.pack(">b", 127), 127),
    ("boolean", b"\x01", True),
    ("boolean", b"\x00", False),
    ("float", struct.pack(">f", -3.4028234663852886e38), -3.4028234663852886e38),
    ("float", struct.pack(">f", math.inf), math.inf),
    ("double", struct.pack(">d", 5e-324), 5e-324),
    ("double", struct.pack(">d", -math.inf), -math.inf),
    ("blob", b"", b""),
    ("blob", bytes(range(256)), bytes(range(256))),
    ("date", struct.pack(">I", 0), -(2**31)),
    ("date", struct.pack(">I", 2**31 - 1), -1),
    ("date", struct.pack(">I", 2**32 - 1), 2**31 - 1),
    ("time", struct.pack(">q", 0), 0),
    ("time", struct.pack(">q", 86_399_999_999_999), 86_399_999_999_999),
    ("timestamp", struct.pack(">q", -(2**63)), -(2**63)),
    ("timestamp", struct.pack(">q", -62_135_596_800_001), -62_135_596_800_001),
    ("timestamp", struct.pack(">q", -1), -1),
    ("timestamp", struct.pack(">q", 253_402_300_800_000), 253_402_300_800_000),
    ("timestamp", struct.pack(">q", 2**63 - 1), 2**63 - 1),
    ("uuid", SOME_UUID.bytes, SOME_UUID),
    ("uuid", NOT_RFC.bytes, NOT_RFC),
    ("timeuuid", SOME_UUID.bytes, SOME_UUID),
    ("inet", bytes([192, 168, 1, 1]), "192.168.1.1"),
    ("inet", bytes(15) + b"\x01", "::1"),
    ("inet", bytes(10) + b"\xff\xff" + bytes([1, 2, 3, 4]), "::ffff:1.2.3.4"),
    ("varint", varint(0), unscaled(Decimal(0))),
    ("varint", varint(-(2**127) - 1), unscaled(Decimal(-(2**127) - 1))),
    ("varint", varint(HUGE), {"scale": 0, "value": varint(HUGE)}),
    ("decimal", struct.pack(">i", 10) + varint(10**19 + 1), {"scale": 10, "value": varint(10**19 + 1)}),
    ("decimal", struct.pack(">i", -(2**31) + 1) + varint(1), {"scale": -(2**31) + 1, "value": varint(1)}),
    ("decimal", struct.pack(">i", 2**31 - 1) + varint(-HUGE), {"scale": 2**31 - 1, "value": varint(-HUGE)}),
    # zigzag vints: 14 months, 25 days, 18367008009010 ns (recorded from a server)
    ("duration", bytes.fromhex("1c32fc2168cdf9d664"), {"months": 14, "days": 25, "nanoseconds": 18_367_008_009_010}),
    ("duration", bytes.fromhex("010305"), {"months": -1, "days": -2, "nanoseconds": -3}),
]  # fmt: skip

KEYSPACE = "pipe_types"
SCHEMA = TableSchema(
    KEYSPACE,
    "every",
    (
        Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
        *(Column(f"c{n}", parse(kind), ColumnKind.REGULAR) for n, (kind, _, _) in enumerate(CASES)),
    ),
)
KEYS_SCHEMA = TableSchema(
    KEYSPACE,
    "as_keys",
    (
        *(
            Column(f"p{n:02}", parse(kind), ColumnKind.PARTITION_KEY, n)
            for n, (kind, _, _) in enumerate(CASES)
            if kind != "duration"
        ),
        Column("v", parse("int"), ColumnKind.REGULAR),
    ),
)  # fmt: skip


def cell(number: int) -> bytes:
    return number.to_bytes(4, "big")


@pytest.fixture(scope="module")
def consumed(local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What a plain consumer sees of both tables: (key, value) in order of their writing."""
    session = CqlSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    cluster = SimulatedCluster(session, seed=9)
    cluster.reset()
    now_us = system_clock_us() - 60_000_000
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000))
    every, keys = SimulatedTable(SCHEMA), SimulatedTable(KEYS_SCHEMA)
    for one in (every, keys):
        one.drop(session)
        one.create(session)
    simulator = Simulator(session, cluster, [every, keys], seed=9)
    names = [f"c{n}" for n in range(len(CASES))]
    pk, ck = (cell(1),), (cell(2),)
    all_columns = {name: raw for name, (_, raw, _) in zip(names, CASES, strict=True)}
    mutations = [
        Mutation(pk, (Insert(ck, all_columns),)),
        Mutation(pk, (Update(ck, dict.fromkeys(names, None)),)),
        Mutation(pk, (Update(ck, {"c5": CASES[5][1]}, ttl_s=77),)),
        Mutation(pk, (RowDelete(ck),)),
        Mutation(pk, (PartitionDelete(),)),
    ]
    for step, mutation in enumerate(mutations):
        simulator.write(every, mutation, UnixMicros(now_us + step * 1000))
    partition = tuple(raw for kind, raw, _ in CASES if kind != "duration")
    simulator.write(keys, Mutation(partition, (Insert((), {"v": cell(5)}),)), UnixMicros(now_us + 10_000))
    session.close()
    names = [f"{KEYSPACE}.every", f"{KEYSPACE}.as_keys"]
    with BridgeJob(local_stack, tmp_path_factory.mktemp("types"), "types", names) as job:
        job.run_once()
    return {name: consume(local_stack, f"types.{KEYSPACE}.{name}") for name in ("every", "as_keys")}


def consume(stack: LocalStack, topic: str) -> list[Any]:
    """Every committed record of a topic, as confluent_kafka's own deserializer reads it."""
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": stack.registry}))
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka,
            "group.id": "types",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found, ended = [], 0
    while ended < len(partitions):
        message = consumer.poll(30)
        assert message is not None, "no end of partition within 30 s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
            continue
        found.append(
            (
                deserialize(message.key(), SerializationContext(topic, MessageField.KEY)),
                deserialize(message.value(), SerializationContext(topic, MessageField.VALUE)),
            )
        )
    consumer.close()
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: f"{number}-{CASES[number][0]}")
def test_value_arrives_unchanged(consumed: dict[str, list[Any]], number: int) -> None:
    """A value of each type, limits included, is what AvroDeserializer gives."""
    _, insert = consumed["every"][0]
    assert insert["columns"][f"c{number}"] == {"value": CASES[number][2]}


def test_operations_arrive_with_their_meaning(consumed: dict[str, list[Any]]) -> None:
    """Insert, set-to-null, untouched, TTL, row and partition delete are all told apart."""
    assert [value["op"] for _, value in consumed["every"]] == [
        "insert", "update", "update", "row_delete", "partition_delete",
    ]  # fmt: skip
    (_, insert), (_, nulled), (_, touched), (_, row_delete), (_, partition_delete) = consumed["every"]
    assert all(key == {"id": 1} for key, _ in consumed["every"])
    assert insert["key"] == {"id": 1, "ck": 2}
    assert set(map(repr, nulled["columns"].values())) == {"{'value': None}"}
    assert touched["columns"]["c5"] == {"value": CASES[5][2]}
    assert {name: value for name, value in touched["columns"].items() if value is not None}.keys() == {"c5"}
    assert (touched["ttl"], insert["ttl"]) == (77, None)
    assert row_delete["columns"] is None
    assert row_delete["key"] == {"id": 1, "ck": 2}
    assert partition_delete["key"] == {"id": 1, "ck": None}


def test_source_block_says_where_a_change_comes_from(consumed: dict[str, list[Any]]) -> None:
    """Keyspace, table, generation, stream, time, number and end of group are in every value."""
    _, value = consumed["every"][0]
    source = value["source"]
    assert (source["keyspace"], source["table"], source["version"]) == (KEYSPACE, "every", 1)
    assert len(source["stream_id"]) == len(source["time"]) == 16
    assert source["timestamp_us"] > source["generation_ms"] * 1000
    assert (source["batch_seq_no"], source["last_in_group"]) == (0, True)


def test_every_type_serves_as_key(consumed: dict[str, list[Any]]) -> None:
    """The Kafka key holds the partition key columns in their order, whatever their types."""
    ((key, value),) = consumed["as_keys"]
    wanted = {f"p{n:02}": expected for n, (kind, _, expected) in enumerate(CASES) if kind != "duration"}
    assert key == wanted
    assert list(key) == list(wanted)
    assert value["key"] == wanted
    assert value["columns"]["v"] == {"value": 5}
