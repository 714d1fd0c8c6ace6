"""Reads a change topic for people: what was committed, decoded, a line a change."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from bridge.adapters.kafka.records import Record
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.encoding.text.change_text import EnvelopeText
from bridge.encoding.text.row_text import DebeziumText, FlatText, KeyText
from bridge.model.position import Position
from bridge.model.times import iso_of_millis
from schemas.avro.codec import Reader, compile_reader
from schemas.errors import DecodeError, FramingError, RegistryError
from schemas.wire.framing import unframe

_RECORDS_AT_ONCE: Final = 500
_POLL_S: Final = 0.5
_WHOLE_TOPIC_S: Final = 24 * 3600.0
"""Long enough for any topic that a person wants to see whole."""


class Records(Protocol):
    """A reader of committed records; see `bridge.adapters.kafka.clients.CommittedReader`."""

    def follow(self, topic: str, partitions: list[int], *, from_end: bool = False) -> None:
        """Read from the beginning, or from the end."""

    def poll(self, most: int, timeout_s: float) -> list[Record]:
        """The next records; none after the timeout."""

    def read_to_end(self, topic: str, partitions: list[int], timeout_s: float) -> Iterator[Record]:
        """Everything from the beginning to the end that the partitions have now."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be read.

    Attributes:
        partitions: of the topic.
        from_beginning: else only what comes from now on.
        until_end: stop at the end that the topic had at the start.
        most: stop after so many records; None for never.
    """

    topic: str
    partitions: int
    from_beginning: bool = False
    until_end: bool = False
    most: int | None = None


def records(reader: Records, wanted: Wanted) -> Iterator[Record]:
    """The wanted records as they come; within a partition in order.

    Raises:
        RetriableError, StartupError: Kafka does not answer, or does not let us read.
    """
    found = _endless(reader, wanted)
    if wanted.until_end:
        # From the end to the end there is nothing.
        partitions = list(range(wanted.partitions)) if wanted.from_beginning else []
        found = reader.read_to_end(wanted.topic, partitions, _WHOLE_TOPIC_S)
    return islice(found, wanted.most)


def _endless(reader: Records, wanted: Wanted) -> Iterator[Record]:
    reader.follow(wanted.topic, list(range(wanted.partitions)), from_end=not wanted.from_beginning)
    while True:
        yield from reader.poll(_RECORDS_AT_ONCE, _POLL_S)


class ChangeText(Protocol):
    """Renders the changes of one schema; `position` is the record header's, if it has one."""

    def json(self, change: Mapping[str, Any], position: Position | None) -> dict[str, Any]:
        """As values that JSON has."""

    def line(self, change: Mapping[str, Any], position: Position | None) -> str:
        """As one line."""


_SHAPES: Final[tuple[Callable[[Mapping[str, Any]], ChangeText], ...]] = (EnvelopeText, DebeziumText, FlatText)


class ChangePrinter:
    """Turns records into lines; fetches each schema once.

    Args:
        schema_text: gives the text of a registered schema, as `bridge.adapters.registry.client.Registry.get`.
        as_json: JSON documents instead of lines for people.
    """

    def __init__(self, schema_text: Callable[[int], str], *, as_json: bool) -> None:
        self._schema_text = schema_text
        self._as_json = as_json
        self._known: dict[int, tuple[Reader, ChangeText | None]] = {}
        self._keys: dict[int, tuple[Reader, KeyText]] = {}

    def line(self, record: Record) -> str:
        """A record as one line. A record that is no change of ours is shown as what it is.

        Raises:
            RegistryError: the registry does not answer; one that does not know the schema is no error.
        """
        if record.value is None:
            return self._tombstone(record)
        try:
            schema_id, body = unframe(record.value)
            reader, envelope = self._decoder(schema_id)
            change = reader(body)
        except (FramingError, DecodeError) as error:
            return self._dead_letter(record) or self._other(record, f"not readable: {error}")
        except RegistryError as error:
            if error.retriable:
                raise
            return self._other(record, f"not readable: {error}")
        if envelope is None:
            return self._other(record, "a record of another schema", {"schema_id": schema_id})
        position = Position.from_header(record.headers.get(POSITION_HEADER, b""))
        if not self._as_json:
            return envelope.line(change, position)
        place = {"partition": record.partition, "offset": record.kafka_offset, "schema_id": schema_id}
        return json.dumps({**envelope.json(change, position), **place}, ensure_ascii=False)

    def _decoder(self, schema_id: int) -> tuple[Reader, ChangeText | None]:
        known = self._known.get(schema_id)
        if known is None:
            schema = json.loads(self._schema_text(schema_id))
            known = self._known[schema_id] = compile_reader(schema), _text_of(schema)
        return known

    def _tombstone(self, record: Record) -> str:
        """A tombstone with its key; where that can't be read, with its bytes."""
        try:
            schema_id, body = unframe(record.key or b"")
            if schema_id not in self._keys:
                schema = json.loads(self._schema_text(schema_id))
                self._keys[schema_id] = compile_reader(schema), KeyText(schema)
            reader, text = self._keys[schema_id]
            key = reader(body)
        except (FramingError, DecodeError, ValueError):
            return self._other(record, "a tombstone")
        except RegistryError as error:
            if error.retriable:
                raise
            return self._other(record, "a tombstone")
        if self._as_json:
            place = {"partition": record.partition, "offset": record.kafka_offset, "key_schema_id": schema_id}
            return json.dumps({"op": "tombstone", "key": text.json(key), **place}, ensure_ascii=False)
        return f"{iso_of_millis(record.timestamp_ms)} {_place(record)} tombstone {text.line(key)}"

    def _dead_letter(self, record: Record) -> str | None:
        """A dead letter (`bridge.encoding.dead_letter`); None for anything else."""
        try:
            letter = json.loads(record.value or b"")
        except ValueError:
            return None
        if not isinstance(letter, dict) or "error" not in letter or "stream_id" not in letter:
            return None
        if self._as_json:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.kafka_offset}
            return json.dumps({**letter, **place}, ensure_ascii=False)
        return f"{iso_of_millis(record.timestamp_ms)} {_place(record)} dead letter {letter['error']!r}"

    def _other(self, record: Record, what: str, more: Mapping[str, Any] | None = None) -> str:
        if self._as_json:
            place = {"topic": record.topic, "partition": record.partition, "offset": record.kafka_offset}
            return json.dumps({"problem": what, **place, **(more or {})}, ensure_ascii=False)
        key = "no key" if record.key is None else f"key 0x{record.key.hex()}"
        return f"{iso_of_millis(record.timestamp_ms)} {_place(record)} {what} ({key})"


def _text_of(schema: Mapping[str, Any]) -> ChangeText | None:
    for shape in _SHAPES:
        try:
            return shape(schema)
        except (ValueError, AttributeError):
            continue
    return None


def _place(record: Record) -> str:
    return f"{record.topic}[{record.partition}]@{record.kafka_offset}"
