"""The three comparisons: positions, order, and a copy made from the records against the table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.live.cql_types import Elements, Map, Udt
from tests.live.log import LogChange, Position
from tests.live.tables import Column, Table
from tests.live.topics import Record
from tests.replica import Replica, SeenRow, frozen

_EXAMPLES: Final = 4
_EMPTY: Final = "EMPTY"

Cells = dict[str, Any]
Rows = dict[tuple[Any, ...], Cells]
"""Cells that are not null by column, of each row by its whole key. A static row has the partition key alone."""


@dataclass(slots=True)
class Finding:
    """What was found on a table.

    Attributes:
        table: its full name.
        log_rows: rows of the log.
        changes: changes of the log, for which there must be records.
        records: records in Kafka.
        missing: changes without a record.
        late: changes without a record whose write was not confirmed in time: the bridge need not have seen them.
        doubled: further records of a change.
        unexpected: records of no change, or with another key or source than the change.
        out_of_order: records after a later change of their key, or in another Kafka partition.
        rows: rows of the table.
        differing_rows: rows that differ between table and copy; None if the records have no values.
        generations: starts of the streams' generations that the records name, in ms.
        examples: a line for each of the first faults of a kind.
    """

    table: str
    log_rows: int = 0
    changes: int = 0
    records: int = 0
    missing: int = 0
    late: int = 0
    doubled: int = 0
    unexpected: int = 0
    out_of_order: int = 0
    rows: int = 0
    differing_rows: int | None = None
    generations: set[int] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """The number of differences."""
        return self.missing + self.doubled + self.unexpected + self.out_of_order + (self.differing_rows or 0)

    def example(self, kind: str, text: str) -> None:
        """Keep the line if it is one of the first of its kind."""
        if sum(one.startswith(kind) for one in self.examples) < _EXAMPLES:
            self.examples.append(f"{kind}: {self.table}: {text}")


def compare_positions(
    finding: Finding,
    table: Table,
    changes: Mapping[Position, LogChange],
    records: Iterable[Record],
    unsettled: Iterable[tuple[int, int]] = (),
) -> None:
    """Compare the log's changes with the records: each change must have one record with its key.

    Args:
        finding: takes the counts.
        table: the table.
        changes: the log's changes.
        records: its records.
        unsettled: spans of time in us in which a write was sent that was not confirmed.
    """
    finding.changes = len(changes)
    seen: Counter[Position] = Counter()
    for record in records:
        finding.records += 1
        change, source = changes.get(record.position), record.value["source"]
        told = Position(source["stream_id"], source["time"], source["batch_seq_no"])
        if change is None or told != record.position or source["operation"] != change.operation:
            finding.unexpected += 1
            finding.example("unexpected", f"{record.position}, source {told}")
        elif canonical_key(table.partition, map(frozen, record.key.values())) != change.key:
            finding.unexpected += 1
            finding.example("unexpected", f"{record.position} with key {record.key}, not {change.key}")
        seen[record.position] += 1
        finding.generations.add(source["generation_ms"])
    for position, count in seen.items():
        if count > 1:
            finding.doubled += count - 1
            finding.example("doubled", f"{position}: {count} records")
    for position in changes.keys() - seen.keys():
        if any(start <= position.written_us <= end for start, end in unsettled):
            finding.late += 1
            continue
        finding.missing += 1
        finding.example("missing", f"{position}, key {changes[position].key}, operation {changes[position].operation}")


def compare_order(finding: Finding, records: Iterable[Record]) -> None:
    """Check that the records of a key ascend, in one Kafka partition."""
    latest: dict[bytes, tuple[int, Position]] = {}
    for record in records:
        partition, last = latest.get(record.raw_key, (record.partition, record.position))
        if record.position.order < last.order or record.partition != partition:
            finding.out_of_order += 1
            finding.example(
                "out of order", f"{record.position} in partition {record.partition} after {last} in {partition}"
            )
        latest[record.raw_key] = (partition, max(last, record.position, key=lambda one: one.order))


def compare_copy(finding: Finding, table: Table, records: Iterable[Record], base: Rows, now_us: int) -> None:
    """Compare the table with a copy that is made from the records.

    Args:
        finding: takes the counts.
        table: the table.
        records: its records, in any order.
        base: the table's content.
        now_us: the time of `base`.
    """
    copy = copied(table, records, now_us)
    finding.rows, finding.differing_rows = len(base), 0
    for key in base.keys() | copy.keys():
        found, wanted = copy.get(key), base.get(key)
        if found == wanted:
            continue
        finding.differing_rows += 1
        if found is None or wanted is None:
            finding.example(
                "differing row", f"{key} is only in the {'table' if found is None else 'copy'}: {found or wanted}"
            )
            continue
        names = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
        cells = ", ".join(f"{name}: {found.get(name)!r} in the copy, not {wanted.get(name)!r}" for name in names)
        finding.example("differing row", f"{key}: {cells}")


def copied(table: Table, records: Iterable[Record], now_us: int) -> Rows:
    """The rows of a copy at a time, made from records."""
    replica: Replica | None = None
    learnt: list[Mapping[str, Any]] = []
    for record in records:
        if replica is None:
            replica = _replica(table, record.schema)
        if not any(schema is record.schema for schema in learnt):
            learnt.append(record.schema)
            replica.learn(record.schema)
        replica.apply(record.key, record.value)
    return {} if replica is None else _rows_of(table, replica, now_us)


def _replica(table: Table, schema: Mapping[str, Any]) -> Replica:
    key = next(one for one in schema["fields"] if one["name"] == "key")["type"]["fields"]
    names = [one["name"] for one in key if isinstance(one["type"], list)]
    clustering = dict(zip(names, table.clustering, strict=True))

    def pack(name: str, element: Any, value: Any) -> bytes:
        return _packed(table.column(replica.cql_name(name)), element, value)

    replica = Replica(schema, lambda name, value: clustering[name].type.order(value), pack)
    return replica


def _rows_of(table: Table, replica: Replica, now_us: int) -> Rows:
    for column, dropped_us in table.dropped_us.items():
        replica.forget(column, dropped_us)
    found: Rows = {}
    for partition in replica.partitions:
        key = canonical_key(table.partition, partition.values())
        static = _cells(table, replica, replica.static(partition, now_us))
        if static:
            found[key] = static
        for clustering, row in replica.rows(partition, now_us).items():
            found[key + canonical_key(table.clustering, clustering)] = _cells(table, replica, row)
    return found


def canonical_key(columns: Iterable[Column], values: Iterable[Any]) -> tuple[Any, ...]:
    """Key columns of a record in the form of `cql_types`."""
    return tuple(column.type.of_record(value) for column, value in zip(columns, values, strict=True))


def _cells(table: Table, replica: Replica, row: SeenRow) -> Cells:
    present = {one.name for one in table.values}
    cells = {}
    for field_name, value in row.cells.items():
        name = replica.cql_name(field_name)
        if name in present and value != _EMPTY:
            cells[name] = table.column(name).type.of_record(value)
    for field_name, elements in row.collections.items():
        name = replica.cql_name(field_name)
        if name in present:
            cells[name] = _gathered(table.column(name), elements)
    return cells


def _gathered(column: Column, elements: Mapping[Any, Any]) -> Any:
    match column.type:
        case Elements(kind="set", element=element):
            return frozenset(element.of_record(one) for one in elements)
        case Elements(element=element):
            return tuple(element.of_record(one) for one in elements.values())
        case Map(key=of_key, value=of_value):
            return frozenset((of_key.of_record(key), of_value.of_record(value)) for key, value in elements.items())
        case Udt() as udt:
            return udt.of_record(dict(elements))
    raise AssertionError(column)


def _packed(column: Column, element: Any, value: Any) -> bytes:
    match column.type:
        case Elements(kind="set"):
            return b""
        case Elements(element=inner) | Map(value=inner):
            return inner.pack(value)
        case Udt(fields=fields):
            return dict(fields)[element].pack(value)
        case atomic:
            return atomic.pack(value)


def rows_of(table: Table, selected: Iterable[Mapping[str, Any]]) -> Rows:
    """The table's content from the rows of a SELECT."""
    found: Rows = {}
    for row in selected:
        key = tuple(one.type.of_driver(row[one.name]) for one in table.partition)
        if static := _selected(table.statics, row):
            found[key] = static
        if any(row[one.name] is None for one in table.clustering):
            continue  # a partition without rows
        clustering = tuple(one.type.of_driver(row[one.name]) for one in table.clustering)
        found[key + clustering] = _selected(table.regular, row)
    return found


def _selected(columns: Iterable[Column], row: Mapping[str, Any]) -> Cells:
    cells = {}
    for one in columns:
        value = row[one.name]
        if value is None or (one.type.is_multi_cell and not value):
            continue
        cells[one.name] = one.type.of_driver(value)
    return cells
