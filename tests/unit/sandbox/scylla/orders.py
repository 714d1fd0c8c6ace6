"""The table of these tests, and short forms for mutations and what is logged of them."""

from __future__ import annotations

from typing import Any

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import Insert, Mutation, Operation, PartitionDelete, RowDelete, Update
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import LogGroup
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

T = UnixMicros(1_700_000_000_000_000)


def table(*, clustering: bool = True, name: str = "orders", descending: bool = False) -> TableSchema:
    """`orders(customer, line, tier static, item, note)`, or without a clustering key and static column."""
    columns = [
        Column("customer", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("item", parse("int"), ColumnKind.REGULAR),
        Column("note", parse("int"), ColumnKind.REGULAR),
    ]
    if clustering:
        columns.append(Column("line", parse("int"), ColumnKind.CLUSTERING, 0, descending))
        columns.append(Column("tier", parse("int"), ColumnKind.STATIC))
    return TableSchema("shop", name, tuple(columns))


def cell(number: int | None) -> bytes | None:
    return None if number is None else number.to_bytes(4, "big", signed=True)


def key(*numbers: int) -> tuple[bytes, ...]:
    return tuple(number.to_bytes(4, "big", signed=True) for number in numbers)


def insert(line: int | None, *, ttl: int = 0, at: int | None = None, **cells: int | None) -> Insert:
    written = {name: cell(value) for name, value in cells.items()}
    return Insert(() if line is None else key(line), written, ttl, None if at is None else UnixMicros(T + at))


def update(line: int | None, *, ttl: int = 0, at: int | None = None, **cells: int | None) -> Update:
    written = {name: cell(value) for name, value in cells.items()}
    return Update(() if line is None else key(line), written, ttl, None if at is None else UnixMicros(T + at))


def delete(line: int, *, at: int | None = None) -> RowDelete:
    return RowDelete(key(line), None if at is None else UnixMicros(T + at))


def delete_partition(*, at: int | None = None) -> PartitionDelete:
    return PartitionDelete(None if at is None else UnixMicros(T + at))


def logged(*operations: Operation, clustering: bool = True, descending: bool = False) -> list[list[tuple[Any, ...]]]:
    """For each group its rows: us after T, operation, line, ttl and the columns."""
    rules = LogRules.of(table(clustering=clustering, descending=descending))
    return [readable(group) for group in log_groups(rules, Mutation(key(1), operations), T)]


def readable(group: LogGroup) -> list[tuple[Any, ...]]:
    return [
        (
            group.timestamp_us - T,
            int(row.operation),
            _number(row.clustering[0]) if row.clustering else None,
            row.ttl_s,
            {name: _number(value) for name, value in sorted(row.cells.items())},
        )
        for row in group.rows
    ]


def _number(raw: bytes | None) -> int | None:
    return None if raw is None else int.from_bytes(raw, "big", signed=True)
