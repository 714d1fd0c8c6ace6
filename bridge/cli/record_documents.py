"""Kafka records as JSON documents for people: position, key and value, whatever the shape of the record."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bridge.adapters.kafka.records import Record
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.encoding.json_values import AvroValues
from bridge.model.position import Position
from bridge.model.times import iso_of_millis
from schemas.avro.codec import Reader, compile_reader
from schemas.errors import DecodeError, FramingError, RegistryError
from schemas.wire.framing import unframe


@dataclass(frozen=True, slots=True)
class _Part:
    """The key or the value of a record: its JSON value, and the id of its schema, or why it is not readable."""

    content: object
    schema_id: int | None = None
    problem: str | None = None


class RecordDocuments:
    """Turns records into JSON documents and fetches each schema once.

    Args:
        schema_text: returns the text of the registered schema with an id.
    """

    def __init__(self, schema_text: Callable[[int], str]) -> None:
        self._schema_text = schema_text
        self._decoders: dict[int, tuple[Reader, AvroValues]] = {}

    def document(self, record: Record) -> dict[str, Any]:
        """Return what a record holds, as JSON values.

        A key or value in Avro has its fields, under their CQL names. One without the registry's frame is read as JSON,
        such as a dead letter. One that is not readable is shown as its bytes, and `problem` says why. A tombstone's
        value is null.

        Raises:
            RegistryError: the registry does not answer. A schema that the registry does not know is a `problem`.
        """
        key, value = self._read(record.key), self._read(record.value)
        problems = [f"{name}: {part.problem}" for name, part in (("key", key), ("value", value)) if part.problem]
        position = Position.from_header(record.headers.get(POSITION_HEADER, b""))
        return {
            **({"problem": "; ".join(problems)} if problems else {}),
            "position": None if position is None else str(position),
            "key": key.content,
            "value": value.content,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.kafka_offset,
            "timestamp": iso_of_millis(record.timestamp_ms),
            "key_schema_id": key.schema_id,
            "schema_id": value.schema_id,
        }

    def _read(self, raw: bytes | None) -> _Part:
        if raw is None:
            return _Part(None)
        schema_id = None
        try:
            schema_id, body = unframe(raw)
            reader, values = self._decoder(schema_id)
            return _Part(values.json(reader(body)), schema_id)
        except FramingError as error:
            return _parse_json(raw) or _not_readable(raw, error)
        except DecodeError as error:
            return _not_readable(raw, error, schema_id)
        except RegistryError as error:
            if error.retriable:
                raise
            return _not_readable(raw, error, schema_id)

    def _decoder(self, schema_id: int) -> tuple[Reader, AvroValues]:
        known = self._decoders.get(schema_id)
        if known is None:
            schema = json.loads(self._schema_text(schema_id))
            if not isinstance(schema, dict):
                raise DecodeError("its schema is not that of a record")
            known = self._decoders[schema_id] = compile_reader(schema), AvroValues(schema)
        return known


def _parse_json(raw: bytes) -> _Part | None:
    try:
        return _Part(json.loads(raw))
    except ValueError:
        return None


def _not_readable(raw: bytes, error: Exception, schema_id: int | None = None) -> _Part:
    return _Part(f"0x{raw.hex()}", schema_id, f"not readable: {error}")
