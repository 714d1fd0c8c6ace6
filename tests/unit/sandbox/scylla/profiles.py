"""A table with columns of every multi-cell kind, and short forms for what is written to it and logged of it."""

from __future__ import annotations

from typing import Any

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.scylla.base.mutations import Bound, CollectionWrite, Insert, Mutation, Operation, RangeDelete, Update
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.log.images import ImageOptions
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import CollectionDelta, LogCell
from sandbox.scylla.values.multi_cell import field_key
from sandbox.scylla.values.nested import UserType, unpack_elements, unpack_fields, unpack_pairs
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.sandbox.scylla.orders import T, cell, key

ADDRESS = UserType("address", (("street", parse("int")), ("no", parse("int")), ("floor", parse("int"))))
Written = int | CollectionWrite | None


def profiles(*, clustering: bool = True) -> TableSchema:
    """`profiles(customer, line, seen static map, tags set, sizes map, notes list, home address, item)`."""
    columns = [
        Column("customer", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("tags", parse("set<int>"), ColumnKind.REGULAR),
        Column("sizes", parse("map<int, int>"), ColumnKind.REGULAR),
        Column("notes", parse("list<int>"), ColumnKind.REGULAR),
        Column("home", parse("address"), ColumnKind.REGULAR),
        Column("item", parse("int"), ColumnKind.REGULAR),
    ]
    if clustering:
        columns.append(Column("line", parse("int"), ColumnKind.CLUSTERING, 0))
        columns.append(Column("seen", parse("map<int, int>"), ColumnKind.STATIC))
    return TableSchema("shop", "profiles", tuple(columns))


def rules(*, clustering: bool = True, compact: bool = False, **images: Any) -> LogRules:
    return LogRules.of(
        profiles(clustering=clustering), user_types=(ADDRESS,), compact=compact, images=ImageOptions(**images)
    )


def int_cell(number: int) -> bytes:
    raw = cell(number)
    assert raw is not None
    return raw


def note(number: int) -> bytes:
    """The key of a list element; they ascend with the number."""
    return timeuuid_of(UnixMicros(T + number), b"\x80" * 8)


def tags(*put: int, remove: tuple[int, ...] = (), clear: Any = "no") -> CollectionWrite:
    return CollectionWrite(clear, tuple((int_cell(each), b"") for each in put), tuple(map(int_cell, remove)))


def sizes(put: dict[int, int] | None = None, *, remove: tuple[int, ...] = (), clear: Any = "no") -> CollectionWrite:
    pairs = tuple((int_cell(name), int_cell(value)) for name, value in (put or {}).items())
    return CollectionWrite(clear, pairs, tuple(map(int_cell, remove)))


def notes(put: dict[int, int] | None = None, *, remove: tuple[int, ...] = (), clear: Any = "no") -> CollectionWrite:
    pairs = tuple((note(name), int_cell(value)) for name, value in (put or {}).items())
    return CollectionWrite(clear, pairs, tuple(map(note, remove)))


def home(put: dict[int, int] | None = None, *, remove: tuple[int, ...] = (), clear: Any = "no") -> CollectionWrite:
    pairs = tuple((field_key(name), int_cell(value)) for name, value in (put or {}).items())
    return CollectionWrite(clear, pairs, tuple(map(field_key, remove)))


def _cells(cells: dict[str, Written]) -> dict[str, Any]:
    return {name: value if isinstance(value, CollectionWrite) else cell(value) for name, value in cells.items()}


def insert(line: int | None, *, ttl: int = 0, at: int | None = None, **cells: Written) -> Insert:
    return Insert(() if line is None else key(line), _cells(cells), ttl, None if at is None else UnixMicros(T + at))


def update(line: int | None, *, ttl: int = 0, at: int | None = None, **cells: Written) -> Update:
    return Update(() if line is None else key(line), _cells(cells), ttl, None if at is None else UnixMicros(T + at))


def range_delete(start: str | None, end: str | None, *, at: int | None = None) -> RangeDelete:
    """Bounds as in `">=1"`, `"<(1,2)"` without the parentheses: `"<1,2"`."""
    return RangeDelete(bound(start), bound(end), None if at is None else UnixMicros(T + at))


def bound(text: str | None) -> Bound | None:
    if text is None:
        return None
    numbers = text.lstrip("<>=")
    return Bound(key(*map(int, numbers.split(","))), "=" in text)


def logged(
    *operations: Operation, base: BaseState | None = None, rules: LogRules, at: int = 0
) -> list[list[tuple[Any, ...]]]:
    """For each group its rows: us after T, operation, key, ttl and the columns in words; the base follows."""
    mutation = Mutation(key(1), operations)
    stamp = UnixMicros(T + at)
    groups = log_groups(rules, mutation, stamp, base=base)
    if base is not None:
        base.write(mutation, stamp)
    return [
        [
            (
                group.timestamp_us - T,
                int(row.operation),
                tuple(map(number, row.clustering)),
                row.ttl_s,
                {name: words(name, value) for name, value in sorted(row.cells.items())},
            )
            for row in group.rows
        ]
        for group in groups
    ]


def number(raw: bytes | None) -> int | None:
    return None if raw is None else int.from_bytes(raw, "big", signed=True)


def words(column: str, value: LogCell) -> Any:
    """A log cell: a number, None, or for collections (value, deleted flag, deleted elements) or the value alone."""
    if isinstance(value, CollectionDelta):
        removed = None if value.deleted_elements is None else _keys(column, unpack_elements(value.deleted_elements))
        return (None if value.value is None else _whole(column, value.value), value.deleted, removed)
    return number(value) if value is None or column == "item" else _whole(column, value)


def _whole(column: str, raw: bytes) -> Any:
    if column == "home":
        return tuple(map(number, unpack_fields(raw)))
    if column == "tags":
        return _keys(column, unpack_elements(raw))
    return {_keys(column, [name])[0]: number(value) for name, value in unpack_pairs(raw)}


def _keys(column: str, keys: list[bytes]) -> list[Any]:
    return [{note(n): n for n in range(20)}[each] if column == "notes" else number(each) for each in keys]
