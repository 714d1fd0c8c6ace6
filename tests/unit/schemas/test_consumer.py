"""What a plain consumer reads: Confluent's deserializer with its in-memory registry."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from schemas.table_codec import TableCodec
from schemas.wire.framing import frame
from tests.unit.schemas.example_tables import counted, log_columns, rich_table, row, sized, table
from tests.unit.schemas.recorded_cells import RECORDED


def plain(value: object) -> object:
    return str(value) if isinstance(value, uuid.UUID) else value


@pytest.fixture(scope="module")
def client() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://consumer"})


def read(client: SchemaRegistryClient, schema: str, field: MessageField, body: bytes) -> dict[str, Any]:
    """Read a body as a consumer does, with and without the topic; both must agree."""
    schema_id = client.register_schema(f"t-{field}", Schema(schema, "AVRO"))
    deserializer = AvroDeserializer(client)
    value = deserializer(frame(schema_id, body), SerializationContext("t", field))
    assert isinstance(value, dict)
    assert repr(deserializer(frame(schema_id, body))) == repr(value)
    return value


@pytest.mark.parametrize(("cql_type", "raw", "expected"), RECORDED)
def test_avro_deserializer(client: SchemaRegistryClient, cql_type: str, raw: str, expected: object) -> None:
    """AvroDeserializer reads keys and values of every type, also at its limits."""
    example = table({"pk": cql_type}, {"ck": cql_type}, {"v": cql_type})
    codec = TableCodec(example, log_columns(example))
    cell = bytes.fromhex(raw)
    cells = row(example, {"pk": cell, "ck": cell, "v": cell})
    key = read(client, codec.key_avro_schema, MessageField.KEY, codec.encode_key(cells))
    body = codec.encode(cells, operation=2, generation_ms=1, last_in_group=True)[1]
    value = read(client, codec.value_avro_schema, MessageField.VALUE, body)

    found = [key["pk"], value["key"]["pk"], value["key"]["ck"], value["columns"]["v"]["value"]]
    if isinstance(expected, float) and math.isnan(expected):
        assert all(math.isnan(one) for one in found)
    else:
        assert [plain(one) for one in found] == [expected] * 4


def test_rich_table(client: SchemaRegistryClient) -> None:
    """AvroDeserializer reads collections, tuples, vectors and user-defined types, also nested ones."""
    example = rich_table()
    codec = TableCodec(example, log_columns(example))
    one, uuid16 = b"\x00\x00\x00\x01", bytes(15) + b"\x01"
    address = sized(b"street", None, counted(b"tag"))
    cells = {
        "pk": one,
        "ck": one,
        "when": sized(one, b"x"),
        "m": counted(b"k", counted(one), of=2),
        "l": counted(uuid16, b"\x01\x03\x05", of=2),
        "nested": counted(uuid16, sized(one, address, counted(b"\x7f\x00\x00\x01")), of=2),
        "u": sized(None, one, None),
        "uf": sized(address, b"\x05"),
        "vec": bytes(12),
    }
    body = codec.encode(row(example, cells), operation=2, generation_ms=1, last_in_group=True)[1]
    value = read(client, codec.value_avro_schema, MessageField.VALUE, body)
    seen = {"street": "street", "zip": None, "tags": ["tag"]}
    columns = value["columns"]
    assert value["key"]["when"] == {"field_0": 1, "field_1": "x"}
    assert columns["m"]["added"] == [{"key": "k", "value": [1]}]
    assert columns["l"]["added"][0]["value"] == {"months": -1, "days": -2, "nanoseconds": -3}
    assert columns["nested"]["value"][0]["value"] == {"field_0": 1, "field_1": seen, "field_2": ["127.0.0.1"]}
    assert columns["u"] == {"cleared": False, "fields": {"street": None, "zip": {"value": 1}, "tags": None}}
    assert columns["uf"] == {"value": {"a_u20_b": seen, "n": {"scale": 0, "value": b"\x05"}}}
    assert columns["vec"] == {"value": [0.0, 0.0, 0.0]}
    assert columns["s"] is columns["st"] is None
