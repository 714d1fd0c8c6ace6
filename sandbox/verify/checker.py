"""Compares the records in Kafka with the written changes: each change once, in order for its key, with its content.

The checker ignores lanes, windows and transactions. Like any consumer, it decodes records with the registry's schemas.
It finds a record's change by its position (stream id, `cdc$time`, `cdc$batch_seq_no`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import UUID

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.position import POSITION_BYTES, timeuuid_in
from bridge.model.times import UnixMicros, UnixMillis, micros_of
from sandbox.scylla.oracle import ExpectedChange
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.codec import Reader, compile_reader
from schemas.cql.table import TableSchema
from schemas.errors import DecodeError, FramingError
from schemas.wire.framing import unframe

_EXAMPLES: Final = 5


@dataclass(slots=True)
class Verdict:
    """The counts of a check, with a few examples of each fault.

    Attributes:
        written: written changes.
        arrived: written changes with a record.
        doubled: further records of a change.
        out_of_order: records after a record of a later change of their key.
        wrong: records with another key or value than written, or in another partition than their key's first record.
        unexpected: records without a written change.
        examples: one line for each of the first few faults of every kind.
    """

    written: int = 0
    arrived: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong: int = 0
    unexpected: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Written changes without a record."""
        return self.written - self.arrived

    @property
    def clean(self) -> bool:
        """Whether each change arrived exactly once, in order and as it was written."""
        return not (self.missing or self.doubled or self.out_of_order or self.wrong or self.unexpected)

    def __str__(self) -> str:
        return (
            f"{self.written} written, {self.arrived} arrived, {self.missing} missing, {self.doubled} doubled, "
            f"{self.out_of_order} out of order, {self.wrong} wrong, {self.unexpected} unexpected"
        )


class Checker:
    """Compares consumed records with expected changes. Both may arrive in any interleaving. Not thread-safe.

    The records of one partition must come in order.

    Attributes:
        verdict: the verdict so far; final after `close`.
    """

    def __init__(
        self,
        tables: Iterable[TableSchema],
        registry: Registry,
        *,
        full: Collection[str] = (),
    ) -> None:
        """Create a checker without expected changes.

        Args:
            tables: the tables to check, with resolved user-defined types.
            registry: registry with the records' schemas.
            full: names `keyspace.table` of the tables with records of the shape `full`; the others have `delta`.

        Raises:
            UnsupportedTypeError: a column's type has no Avro form.
        """
        self.verdict = Verdict()
        self._tables = {
            (table.keyspace, table.name): ExpectedRecords(table, full=table.full_name in full) for table in tables
        }
        self._registry = registry
        self._readers: dict[int, Reader] = {}
        # Position -> the change, and None once it was seen (its content is not needed twice).
        self._expected: dict[bytes, ExpectedChange | None] = {}
        # Topic and key -> the partition of its first record, and the latest change seen.
        self._latest: dict[tuple[str, bytes], tuple[int, tuple[int, bytes, int]]] = {}
        self._early: defaultdict[bytes, list[Record]] = defaultdict(list)
        self._arrived: defaultdict[tuple[str, str], dict[UnixMillis, int]] = defaultdict(dict)

    def expect(self, changes: Iterable[ExpectedChange]) -> None:
        """Add changes that were written.

        Raises:
            RegistryError: as `see`, for records that came before.
        """
        for change in changes:
            position = change.stream_id + change.time + change.batch_seq_no.to_bytes(4, "big")
            self._expected[position] = change
            self.verdict.written += 1
            for early in self._early.pop(position, ()):
                self.see(early)

    def arrived(self, keyspace: str, table: str) -> dict[UnixMillis, int]:
        """Number of arrived changes of a table, by generation."""
        return dict(sorted(self._arrived[keyspace, table].items()))

    def see(self, record: Record) -> UnixMicros | None:
        """Check a consumed record.

        Returns:
            The change's write timestamp in Unix us; None if the change is not known (yet), or the record is not its
            first.

        Raises:
            RegistryError: the registry does not answer, or knows a schema no more.
        """
        verdict = self.verdict
        position = record.headers.get(POSITION_HEADER, b"")
        if position not in self._expected:
            # The record may arrive before its change is expected. `close` counts the remaining ones.
            self._early[position].append(record)
            return None
        change = self._expected[position]
        if change is None:
            verdict.doubled += 1
            self._example("doubled", record)
            return None
        self._expected[position] = None
        verdict.arrived += 1
        by_generation = self._arrived[change.keyspace, change.table]
        by_generation[change.generation_ms] = by_generation.get(change.generation_ms, 0) + 1
        place = (record.topic, record.key or b"")
        partition, latest = self._latest.setdefault(place, (record.partition, change.order))
        if change.order < latest:
            verdict.out_of_order += 1
            self._example("out of order", record)
        else:
            self._latest[place] = (partition, change.order)
        difference = self._difference(record, change)
        if not difference and record.partition != partition:
            difference = f"partition {record.partition}, earlier changes of its key are in {partition}"
        if difference:
            verdict.wrong += 1
            self._example(f"wrong ({difference})", record)
        return change.timestamp_us

    def close(self) -> Verdict:
        """Count the records without a change, and return the final verdict."""
        for records in self._early.values():
            for record in records:
                self.verdict.unexpected += 1
                self._example("unexpected", record)
        self._early.clear()
        missing = ((position, change) for position, change in self._expected.items() if change is not None)
        for position, change in islice(missing, _EXAMPLES):
            name = f"{change.keyspace}.{change.table}"
            self.verdict.examples.append(
                f"missing: {name}, generation {change.generation_ms}, position {position.hex()}"
            )
        return self.verdict

    def _difference(self, record: Record, change: ExpectedChange) -> str:
        """The fault of a record, as text; empty if there is none."""
        table = self._tables[(change.keyspace, change.table)]
        try:
            key, value = self._decode(record.key), self._decode(record.value)
        except (DecodeError, FramingError) as error:
            return str(error)
        if not _same(key, table.key(change)):
            return f"key {key} instead of {table.key(change)}"
        expected = table.value(change)
        if value.keys() != expected.keys():
            return f"fields {', '.join(value)} instead of {', '.join(expected)}"
        for name, wanted in expected.items():
            if not _same(value[name], wanted):
                return f"{name}: {value[name]!r} instead of {wanted!r}"
        return ""

    def _decode(self, message: bytes | None) -> dict[str, Any]:
        if message is None:
            return {}
        schema_id, body = unframe(message)
        if schema_id not in self._readers:
            self._readers[schema_id] = compile_reader(json.loads(self._registry.get(schema_id)))
        return self._readers[schema_id](body)

    def _example(self, what: str, record: Record) -> None:
        examples = self.verdict.examples
        if sum(example.startswith(what[:7]) for example in examples) < _EXAMPLES:
            position = record.headers.get(POSITION_HEADER, b"").hex()
            examples.append(f"{what}: {record.topic} [{record.partition}] {record.kafka_offset}, position {position}")


def written_us(record: Record) -> UnixMicros | None:
    """The write timestamp in a record's position header; None when there is no such header."""
    position = record.headers.get(POSITION_HEADER, b"")
    return micros_of(timeuuid_in(position)) if len(position) == POSITION_BYTES else None


def _same(found: object, wanted: object) -> bool:
    match found, wanted:
        case (dict(), dict()):
            return found.keys() == wanted.keys() and all(_same(found[name], wanted[name]) for name in wanted)
        case (list(), list()):
            return len(found) == len(wanted) and all(map(_same, found, wanted))
        case (UUID(), str()):
            return str(found) == wanted
        case (float(), float()):
            return repr(found) == repr(wanted)  # NaN is itself, and the zeros differ
    return found == wanted
