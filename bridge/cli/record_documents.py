"""Kafka records as JSON documents for people: decoded changes, tombstones, dead letters and unreadable records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bridge.adapters.kafka.records import Record
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.encoding.json_changes import DebeziumJson, EnvelopeJson, FlatJson, KeyJson
from bridge.model.position import Position
from bridge.model.times import iso_of_millis
from schemas.avro.codec import Reader, compile_reader
from schemas.errors import DecodeError, FramingError, RegistryError
from schemas.wire.framing import unframe


class ChangeRenderer(Protocol):
    """Renders the decoded changes of one schema."""

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """Return a change as JSON values; `position` comes from the record's header, if it has one."""


_RENDERERS: Final[tuple[Callable[[Mapping[str, Any]], ChangeRenderer], ...]] = (EnvelopeJson, DebeziumJson, FlatJson)


class RecordDocuments:
    """Turns records into JSON documents and fetches each schema once.

    Args:
        schema_text: returns the text of the registered schema with an id.
    """

    def __init__(self, schema_text: Callable[[int], str]) -> None:
        self._schema_text = schema_text
        self._value_decoders: dict[int, tuple[Reader, ChangeRenderer | None]] = {}
        self._key_decoders: dict[int, tuple[Reader, KeyJson]] = {}

    def document(self, record: Record) -> dict[str, Any]:
        """Return what a record holds; one that holds no change has a `problem` instead.

        Raises:
            RegistryError: the registry does not answer. A schema that the registry does not know is a `problem`.
        """
        if record.value is None:
            return self._tombstone(record)
        try:
            schema_id, body = unframe(record.value)
            reader, renderer = self._value_decoder(schema_id)
            change = reader(body)
        except (FramingError, DecodeError) as error:
            return _dead_letter(record) or _problem(record, f"not readable: {error}")
        except RegistryError as error:
            if error.retriable:
                raise
            return _problem(record, f"not readable: {error}")
        if renderer is None:
            return {**_problem(record, "not a change: the record has another schema"), "schema_id": schema_id}
        position = Position.from_header(record.headers.get(POSITION_HEADER, b""))
        place = {"partition": record.partition, "offset": record.kafka_offset, "schema_id": schema_id}
        return {**renderer.json(change, position), **place}

    def _value_decoder(self, schema_id: int) -> tuple[Reader, ChangeRenderer | None]:
        known = self._value_decoders.get(schema_id)
        if known is None:
            schema = json.loads(self._schema_text(schema_id))
            known = self._value_decoders[schema_id] = compile_reader(schema), _find_renderer(schema)
        return known

    def _tombstone(self, record: Record) -> dict[str, Any]:
        """Return a tombstone with its decoded key; with the key's bytes if they can't be decoded."""
        try:
            schema_id, body = unframe(record.key or b"")
            if schema_id not in self._key_decoders:
                schema = json.loads(self._schema_text(schema_id))
                self._key_decoders[schema_id] = compile_reader(schema), KeyJson(schema)
            reader, renderer = self._key_decoders[schema_id]
            key = reader(body)
        except (FramingError, DecodeError, ValueError):
            return _problem(record, "a tombstone whose key is not readable")
        except RegistryError as error:
            if error.retriable:
                raise
            return _problem(record, "a tombstone whose key is not readable")
        return {"op": "tombstone", "key": renderer.json(key), **_place(record), "key_schema_id": schema_id}


def _find_renderer(schema: Mapping[str, Any]) -> ChangeRenderer | None:
    for renderer in _RENDERERS:
        try:
            return renderer(schema)
        except (ValueError, AttributeError):
            continue
    return None


def _dead_letter(record: Record) -> dict[str, Any] | None:
    """Return a record of a dead-letter topic; None for any other record."""
    try:
        letter = json.loads(record.value or b"")
    except ValueError:
        return None
    if not isinstance(letter, dict) or "error" not in letter or "stream_id" not in letter:
        return None
    return {**letter, **_place(record)}


def _problem(record: Record, problem: str) -> dict[str, Any]:
    return {"problem": problem, "key": None if record.key is None else f"0x{record.key.hex()}", **_place(record)}


def _place(record: Record) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.kafka_offset,
        "timestamp": iso_of_millis(record.timestamp_ms),
    }
