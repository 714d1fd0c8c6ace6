"""A consumer that compares topics with the written changes, and uses only the documented form of records.

Like any consumer, it uses confluent-kafka's consumer and Avro deserializer. It finds each change by the value's
`source`. It uses no code of the bridge. The written changes are the oracle's JSON lines.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

_EXAMPLES: Final = 5
_READ_WITHIN_S: Final = 120.0
_COUNT_WITHIN_S: Final = 30.0
_INTEGERS: Final = ("int", "bigint")
_OPERATIONS: Final = {1: "update", 2: "insert", 3: "row_delete", 4: "partition_delete"}

Place = tuple[str, str, int]
"""Stream id and `cdc$time` as hex, and the number in the batch."""
_Partition = tuple[str, int]
"""Topic and number."""
_Base = tuple[str, ...]
"""Keyspace, table and partition key of a base partition."""
_Home = tuple[str, int, bytes]
"""Topic, partition and record key."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A table's columns, each a name and the type `int`, `bigint` or `text`."""

    partition: tuple[tuple[str, str], ...]
    clustering: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Counts:
    """The counts of a check.

    Attributes:
        written: acknowledged changes.
        missing: changes without a record, except late ones.
        doubled: further records of a change.
        out_of_order: records after a later change of their key.
        torn: groups with a record for some of their changes only.
        wrong: records with another content than written, in the topic of another table, or with another partition or
            key than the first record of their base partition, or with the key of another base partition.
        unexpected: records without a written change.
        late: changes without a record that became visible too late for the guarantee.
        examples: a line for each of the first few faults.
    """

    written: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    torn: int = 0
    wrong: int = 0
    unexpected: int = 0
    late: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether no fault was found."""
        found = (self.missing, self.doubled, self.out_of_order, self.torn, self.wrong, self.unexpected)
        return not any(found)

    def __str__(self) -> str:
        return (
            f"{self.written} written, {self.missing} missing, {self.doubled} doubled, "
            f"{self.out_of_order} out of order, {self.torn} torn, {self.wrong} wrong, "
            f"{self.unexpected} unexpected, {self.late} excused as late"
        )


class Topics:
    """Reads topics with read_committed, from their beginning to their end."""

    def __init__(self, kafka: str, registry: str) -> None:
        self._kafka = kafka
        self._decode = AvroDeserializer(SchemaRegistryClient({"url": registry}))
        self._ends: dict[_Partition, int] = {}
        self._counted: dict[_Partition, int] = {}
        self._records = 0

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "witness",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                # At a partition's end, a fetch waits this long before the end is reported.
                "fetch.wait.max.ms": 50,
            }
        )

    def reached(self, topics: Iterable[str]) -> int:
        """Return the number of records that a consumer sees; -1 if Kafka does not answer, or has none of the topics.

        Offsets would be misleading: transaction markers take offsets, too, and the next job's start writes abort
        markers before it publishes. Counted records are not read again, so the topics must be the same in each call.
        """
        consumer = self._consumer()
        try:
            places = _places(consumer, topics)
            ends = {_of(place): consumer.get_watermark_offsets(place, timeout=3)[1] for place in places}
            if ends != self._ends:
                since = [TopicPartition(*at, self._counted.get(at, OFFSET_BEGINNING)) for at in ends]
                found = [(_of(one), one.offset()) for one in _to_end(consumer, since, _COUNT_WITHIN_S)]
                self._records += len(found)
                self._counted.update({at: offset + 1 for at, offset in found})
                self._ends = ends
        except KafkaException:
            return -1
        finally:
            consumer.close()
        return self._records if ends else -1

    def read(self, topics: Iterable[str]) -> Iterator[tuple[str, int, bytes, dict[str, Any]]]:
        """Topic, partition, key and decoded value of each record, a partition's in their order."""
        for topic, partition, key, value in self.messages(topics):
            yield topic, partition, key, self._decode(value, SerializationContext(topic, MessageField.VALUE))

    def messages(self, topics: Iterable[str]) -> Iterator[tuple[str, int, bytes, bytes]]:
        """The same with values as they are.

        Raises:
            KafkaException: Kafka failed, or the ends were not reached within two minutes.
        """
        consumer = self._consumer()
        try:
            for message in _to_end(consumer, _places(consumer, topics), _READ_WITHIN_S):
                yield *_of(message), message.key() or b"", message.value() or b""
        finally:
            consumer.close()


def _to_end(consumer: Consumer, places: list[TopicPartition], within_s: float) -> Iterator[Any]:
    """Every message from these places to the partitions' ends; raises KafkaException when one is not reached."""
    deadline_s = time.monotonic() + within_s
    consumer.assign(places)
    unread = {_of(place) for place in places}
    while unread:
        if time.monotonic() > deadline_s:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for message in consumer.consume(2000, 0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(_of(message))
            else:
                raise KafkaException(error)


def _of(there: Any) -> _Partition:
    """Topic and partition of a message, or of a place in Kafka."""
    if isinstance(there, TopicPartition):
        return there.topic, there.partition
    return there.topic(), there.partition()


def _places(consumer: Consumer, topics: Iterable[str]) -> list[TopicPartition]:
    known = consumer.list_topics(timeout=5).topics
    return [
        TopicPartition(topic, partition, OFFSET_BEGINNING)
        for topic in topics
        if topic in known
        for partition in known[topic].partitions
    ]


class Witness:
    """Compares written changes with records, and counts the differences."""

    def __init__(self, tables: Mapping[str, Columns], written: Iterable[str], late: Iterable[Place] = ()) -> None:
        """Take the written changes.

        Args:
            tables: tables by `keyspace.table`.
            written: the oracle's lines.
            late: changes that became visible so late that their window might have been read already.
        """
        self.counts = Counts()
        self._tables = tables
        self._late = set(late)
        self._written: dict[Place, dict[str, Any]] = {}
        self._seen: set[Place] = set()
        self._last: dict[_Base, tuple[_Home, Any]] = {}
        self._keys: dict[tuple[str, bytes], _Base] = {}
        for line in written:
            change = json.loads(line)
            self._written[change["s"], change["u"], change["b"]] = change
        self.counts.written = len(self._written)

    def see(self, topic: str, partition: int, key: bytes, value: Mapping[str, Any]) -> None:
        """Look at one record; those of a partition come in their order."""
        source, counts = value["source"], self.counts
        place = (source["stream_id"].hex(), source["time"].hex(), source["batch_seq_no"])
        change = self._written.get(place)
        if change is None:
            counts.unexpected += 1
            self._example(f"unexpected: {topic} [{partition}] {place}")
            return
        if place in self._seen:
            counts.doubled += 1
            self._example(f"doubled: {topic} [{partition}] {place}")
            return
        self._seen.add(place)
        # By what was written: the record's own key may be what is wrong.
        base: _Base = (change["k"], change["t"], *change["p"])
        order = (change["g"], *_time_order(change["u"]), change["b"])
        home, last = self._last.setdefault(base, ((topic, partition, key), order))
        if order < last:
            counts.out_of_order += 1
            self._example(f"out of order: {topic} [{partition}] {place}")
        else:
            self._last[base] = (home, order)
        problem = self._misplaced(base, (topic, partition, key), home) or self._difference(change, value)
        if problem:
            counts.wrong += 1
            self._example(f"wrong: {topic} [{partition}] {place}: {problem}")

    def close(self) -> Counts:
        """Count the missing changes."""
        counts = self.counts
        groups = Counter(place[:2] for place in self._written)
        arrived = Counter(place[:2] for place in self._seen)
        for group, size in groups.items():
            if 0 < arrived[group] < size:
                counts.torn += 1
                self._example(f"torn: {arrived[group]} of {size} of {group}")
        for place in self._written.keys() - self._seen:
            if place in self._late:
                counts.late += 1
                continue
            counts.missing += 1
            change = self._written[place]
            self._example(f"missing: {change['k']}.{change['t']}, generation {change['g']}, {change['w']} us, {place}")
        return counts

    def _misplaced(self, base: _Base, here: _Home, home: _Home) -> str:
        topic, _, key = here
        if not topic.endswith(f"{base[0]}.{base[1]}"):
            return f"table {base[0]}.{base[1]}"
        if here != home:
            return f"partition and key {here[1:]}, not {home[1:]}"
        others = self._keys.setdefault((topic, key), base)
        return "" if others == base else f"key {key.hex()} is also that of {others}"

    def _difference(self, change: Mapping[str, Any], value: Mapping[str, Any]) -> str:
        columns = self._tables[f"{change['k']}.{change['t']}"]
        operation = _OPERATIONS.get(change["o"])
        cells = [*zip(columns.partition, change["p"], strict=True), *zip(columns.clustering, change["c"], strict=True)]
        wanted = {name: _value(kind, cell) for (name, kind), cell in cells}
        source = {"keyspace": change["k"], "table": change["t"], "timestamp_us": change["w"], "operation": change["o"]}
        told_of = {name: value["source"][name] for name in source}
        if told_of != source:
            return f"source {told_of}, not {source}"
        if operation is not None and value["op"].replace("static_", "") != operation:
            return f"op {value['op']}, not {operation}"
        if dict(value["key"]) != wanted:
            return f"key {value['key']}, not {wanted}"
        told = value["columns"] or {}
        for name, kind in columns.values:
            expected = {"value": _value(kind, change["x"][name])} if name in change["x"] else None
            if told.get(name) != expected:
                return f"{name} {told.get(name)}, not {expected}"
        return "" if value["ttl"] == change["l"] else f"ttl {value['ttl']}, not {change['l']}"

    def _example(self, line: str) -> None:
        kind = line.split(":", 1)[0]
        if sum(one.startswith(kind) for one in self.counts.examples) < _EXAMPLES:
            self.counts.examples.append(line)


def _value(kind: str, cell: str | None) -> int | str | None:
    if cell is None:
        return None
    raw = bytes.fromhex(cell)
    return int.from_bytes(raw, "big", signed=True) if kind in _INTEGERS else raw.decode()


def _time_order(time: str) -> tuple[int, tuple[int, ...]]:
    """How the server orders timeuuids: by time, then by the other half as signed bytes."""
    raw = bytes.fromhex(time)
    return uuid.UUID(bytes=raw).time, tuple(byte - 256 if byte > 127 else byte for byte in raw[8:])
