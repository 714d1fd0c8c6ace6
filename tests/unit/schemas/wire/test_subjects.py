from __future__ import annotations

import json

import pytest

from schemas.record_schemas import key_schema, schema_text, value_schema
from schemas.wire.subjects import SubjectNameStrategy, record_name, subject_of
from tests.unit.schemas.example_tables import table

ORDERS = table({"pk": "int"}, keyspace="shop", name="Line Items")
KEY, VALUE = schema_text(key_schema(ORDERS)), schema_text(value_schema(ORDERS))


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    [
        ("TopicName", "t.1-key", "t.1-value"),
        ("RecordName", "shop.Line_u20_Items.Key", "shop.Line_u20_Items.Envelope"),
        ("TopicRecordName", "t.1-shop.Line_u20_Items.Key", "t.1-shop.Line_u20_Items.Envelope"),
    ],
)
def test_subjects(strategy: SubjectNameStrategy, key: str, value: str) -> None:
    """Each strategy gives Confluent's names; keys and values never share a subject."""
    assert subject_of(strategy, "t.1", "key", KEY) == key
    assert subject_of(strategy, "t.1", "value", VALUE) == value


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "record", "name": "a.b.C", "namespace": "ignored"}, "a.b.C"),
        ({"type": "record", "name": "C", "namespace": "a.b"}, "a.b.C"),
        ({"type": "record", "name": "C", "namespace": ""}, "C"),
        ({"type": "record", "name": "C"}, "C"),
    ],
)
def test_full_names(schema: dict[str, str], name: str) -> None:
    """A record's full name follows Avro's rules."""
    assert record_name(json.dumps(schema)) == name


@pytest.mark.parametrize("schema", ["string", {"type": "enum", "name": "E"}, ["null", "int"]])
def test_schemas_of_other_types(schema: object) -> None:
    """Strategies that use the name of the record refuse other types."""
    with pytest.raises(ValueError, match="not the schema of a record"):
        subject_of("RecordName", "t", "value", json.dumps(schema))
    assert subject_of("TopicName", "t", "value", json.dumps(schema)) == "t-value"
