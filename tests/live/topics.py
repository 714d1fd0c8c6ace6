"""Reads topics as any consumer does: read_committed, with the registry's schemas and fastavro."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.live.log import Position

_POSITION: Final = "cdc.position"
_READ_WITHIN_S: Final = 300.0
_FRAME_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        partition: the Kafka partition.
        raw_key: the bytes of its key.
        position: the position that its header names.
        key: the decoded key.
        value: the decoded value.
        schema: the Avro schema of the value, parsed.
    """

    partition: int
    raw_key: bytes
    position: Position
    key: dict[str, Any]
    value: dict[str, Any]
    schema: dict[str, Any]


class Topics:
    """Reads topics from their beginning to their end. Not thread-safe."""

    def __init__(self, kafka: str, registry: str) -> None:
        self._kafka = kafka
        self._registry = SchemaRegistryClient({"url": registry})
        self._schemas: dict[int, tuple[dict[str, Any], Any]] = {}

    def records(self, topic: str) -> Iterator[Record]:
        """Every committed record, a partition's in their order."""
        for message in self._messages([topic]):
            headers = dict(message.headers() or ())
            raw = headers[_POSITION]
            key, _ = self._decode(message.key())
            value, schema = self._decode(message.value())
            position = Position(raw[:16], raw[16:32], int.from_bytes(raw[32:], "big"))
            yield Record(message.partition(), message.key(), position, key, value, schema)

    def count(self, topics: Sequence[str]) -> int:
        """The number of committed records."""
        return sum(1 for _ in self._messages(topics))

    def _decode(self, framed: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        schema_id = int.from_bytes(framed[1:_FRAME_BYTES], "big")
        if schema_id not in self._schemas:
            schema = json.loads(self._registry.get_schema(schema_id).schema_str)
            self._schemas[schema_id] = schema, fastavro.parse_schema(schema)
        schema, parsed = self._schemas[schema_id]
        found = fastavro.schemaless_reader(BytesIO(framed[_FRAME_BYTES:]), parsed, None)
        assert isinstance(found, dict)
        return found, schema

    def _messages(self, topics: Sequence[str]) -> Iterator[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "live",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            known = consumer.list_topics(timeout=30).topics
            places = [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in topics
                for partition in (known[topic].partitions if topic in known else ())
            ]
            yield from _to_end(consumer, places)
        finally:
            consumer.close()


def _to_end(consumer: Consumer, places: list[TopicPartition]) -> Iterator[Message]:
    consumer.assign(places)
    unread = {(place.topic, place.partition) for place in places}
    deadline_s = time.monotonic() + _READ_WITHIN_S
    while unread:
        if time.monotonic() > deadline_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for message in consumer.consume(2000, 0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard((message.topic(), message.partition()))
            else:
                raise KafkaException(error)
