"""Names under which schemas are registered, by Confluent's three subject name strategies.

| strategy | subject |
|---|---|
| `TopicName` | `<topic>-key`, `<topic>-value` |
| `RecordName` | `<full name of the record>` |
| `TopicRecordName` | `<topic>-<full name of the record>` |

A record's full name is its namespace, a dot and its name (Avro specification, "Names"). The full name of our key record
is `<keyspace>.<table>.Key`, so that key and value never share a subject.
"""

from __future__ import annotations

import json
from typing import Literal, NewType, TypeAlias

Subject = NewType("Subject", str)
"""Name under which the registry keeps the versions of a schema."""

SubjectNameStrategy: TypeAlias = Literal["TopicName", "RecordName", "TopicRecordName"]

Part: TypeAlias = Literal["key", "value"]
"""The half of a Kafka record that a schema describes."""


def subject_of(strategy: SubjectNameStrategy, topic: str, part: Part, schema_text: str) -> Subject:
    """Return the subject of a topic's keys or values.

    Args:
        strategy: the subject name strategy.
        topic: the Kafka topic.
        part: whether the schema is of the keys or of the values.
        schema_text: Avro schema of a record, as JSON text.

    Raises:
        ValueError: the strategy needs the name of a record, and the schema does not describe a record.
    """
    if strategy == "TopicName":
        return Subject(f"{topic}-{part}")
    name = record_name(schema_text)
    return Subject(name if strategy == "RecordName" else f"{topic}-{name}")


def record_name(schema_text: str) -> str:
    """Return the full name of the record that a schema describes.

    Raises:
        ValueError: the schema does not describe a record.
    """
    match json.loads(schema_text):
        case {"type": "record", "name": str(name)} if "." in name:
            return name
        case {"type": "record", "name": str(name), "namespace": str(namespace)} if namespace:
            return f"{namespace}.{name}"
        case {"type": "record", "name": str(name)}:
            return name
    raise ValueError(f"not the schema of a record: {schema_text[:100]}")
