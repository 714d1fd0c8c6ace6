"""A log holds all that its table holds: applied again with last-write-wins, it makes the same table."""

from __future__ import annotations

from itertools import islice

import pytest

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import (
    Bound,
    CollectionWrite,
    Insert,
    Mutation,
    Operation,
    PartitionDelete,
    RangeDelete,
    RowDelete,
    Update,
)
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import RANGE_STARTS, CollectionDelta, LogGroup, LogRow
from sandbox.scylla.values.multi_cell import field_key
from sandbox.scylla.values.nested import UserType, unpack_elements, unpack_fields, unpack_pairs
from sandbox.scylla.values.ordering import Key
from sandbox.scylla.workload import EVERYTHING, Workload, with_own_timestamps
from sandbox.scylla.write_times import spread
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import CqlType, SetType, UdtType, parse
from tests.unit.sandbox.scylla.orders import T

TYPES = (
    UserType("point", (("x", parse("double")), ("y", parse("frozen<list<int>>")))),
    UserType("place", (("name", parse("text")), ("at", parse("frozen<point>")), ("tags", parse("frozen<set<text>>")))),
)
VALUES = (
    "set<text>", "map<uuid, frozen<list<int>>>", "list<frozen<tuple<int, text>>>", "place", "frozen<place>",
    "map<frozen<point>, duration>", "vector<float, 3>", "tuple<varint, frozen<map<date, inet>>>", "decimal", "duration",
)  # fmt: skip


def anything(*, clustering: bool) -> TableSchema:
    """A table with columns of many types; half of them static ones too."""
    columns = [Column("pk", parse("text"), ColumnKind.PARTITION_KEY, 0)]
    columns += [Column(f"v{number}", parse(text), ColumnKind.REGULAR) for number, text in enumerate(VALUES)]
    if clustering:
        columns += [Column(f"s{number}", parse(text), ColumnKind.STATIC) for number, text in enumerate(VALUES[:5])]
        columns += [
            Column(f"ck{at}", parse(text), ColumnKind.CLUSTERING, at, at == 0)
            for at, text in enumerate(("int", "text"))
        ]
    return TableSchema("shop", "anything", tuple(columns))


def operations(group: LogGroup, types: dict[str, CqlType]) -> list[Operation]:
    """What a reader makes of a group's rows."""
    found: list[Operation] = []
    for number, row in enumerate(group.rows):
        match row.operation:
            case 1 | 2:
                write = Insert if row.operation == 2 else Update
                cells = {name: column_write(types[name], cell) for name, cell in row.cells.items()}
                found.append(write(row.clustering, cells, row.ttl_s or 0))
            case 3 | -3:
                found.append(RowDelete(row.clustering))
            case 4 | -4:
                found.append(PartitionDelete())
            case number_ if number_ in RANGE_STARTS:
                end = group.rows[number + 1]
                found.append(RangeDelete(bound(row, inclusive=5), bound(end, inclusive=7)))
    return found


def bound(row: LogRow, *, inclusive: int) -> Bound | None:
    return Bound(row.clustering, row.operation == inclusive) if row.clustering else None


def column_write(cql_type: CqlType, cell: bytes | CollectionDelta | None) -> bytes | CollectionWrite | None:
    if not isinstance(cell, CollectionDelta):
        return cell
    raw = cell.value
    pairs: list[tuple[bytes, bytes]] = []
    if raw is not None:
        match cql_type:
            case SetType():
                pairs = [(element, b"") for element in unpack_elements(raw)]
            case UdtType():
                pairs = [(field_key(at), each) for at, each in enumerate(unpack_fields(raw)) if each is not None]
            case _:
                pairs = unpack_pairs(raw)
    removed = () if cell.deleted_elements is None else tuple(unpack_elements(cell.deleted_elements))
    return CollectionWrite("overwrite" if cell.deleted else "no", tuple(pairs), removed)


def content(base: BaseState, keys: list[Key]) -> dict[object, object]:
    now_us = UnixMicros(T + 50_000_000)
    rows = {(key, clustering): row for key in keys for clustering, row in base.rows(key, now_us)}
    return {**rows, **{key: base.static(key, now_us) for key in keys}}


@pytest.mark.parametrize("clustering", [True, False])
def test_the_log_makes_the_same_table(clustering: bool) -> None:
    """Every operation on every kind of column; batches of several timestamps and TTLs; clustering columns run DESC."""
    schema = anything(clustering=clustering)
    types = {column.name: column.type for column in schema.values}
    rules = LogRules.of(schema, user_types=TYPES)
    table, copy = BaseState(rules.columns), BaseState(rules.columns)
    workload = Workload(schema, seed=7, keys=3, rows_per_key=5, mix=EVERYTHING, pool=20, user_types=TYPES)
    timed = spread(islice(workload, 250), count=250, start_us=T, until_us=UnixMicros(T + 2_500))
    seen: set[int] = set()
    for now_us, mutation in with_own_timestamps(timed, seed=7):
        for group in log_groups(rules, mutation, now_us, now_us=now_us):
            seen.update(int(row.operation) for row in group.rows)
            done = operations(group, types)
            if done:
                copy.write(Mutation(mutation.partition_key, tuple(done)), group.timestamp_us, now_us)
        table.write(mutation, now_us, now_us)
    assert content(copy, workload.partition_keys) == content(table, workload.partition_keys)
    assert seen >= ({1, 2, 3, 4, 5, 6, 7, 8, -3, -4} if clustering else {1, 2, 4, -4})
    assert len(content(table, workload.partition_keys)) > 4
