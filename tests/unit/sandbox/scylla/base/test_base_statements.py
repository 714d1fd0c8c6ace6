"""The CQL that writes base tables in Cassandra."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sandbox.scylla.base.base_statements import BaseStatements
from sandbox.scylla.base.mutations import (
    Operation,
    PartitionDelete,
    PartitionExpiry,
    RangeDelete,
    RowDelete,
    RowExpiry,
    UnknownOperation,
)
from sandbox.scylla.values.nested import pack_elements, pack_pairs
from sandbox.writing_session import UNSET, WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.sandbox.scylla.orders import T, key
from tests.unit.sandbox.scylla.profiles import (
    ADDRESS,
    bound,
    home,
    insert,
    int_cell,
    notes,
    profiles,
    range_delete,
    sizes,
    tags,
    update,
)
from tests.unit.sandbox.scylla.test_writer import KeepingSession

TABLE = '"shop"."profiles"'
ROW = 'WHERE "customer" = ? AND "line" = ?'
STAMP = T.to_bytes(8, "big")


def statements(operation: Operation) -> list[tuple[str, list[Any]]]:
    written = BaseStatements(cast("WritingSession", KeepingSession()), profiles(), user_types=(ADDRESS,))
    return [(str(prepared), cells) for prepared, cells in written.write(operation, key(1), T)]


def settings(operation: Operation) -> list[tuple[str, Any]]:
    """What each UPDATE sets, and to what."""
    found = []
    for cql, cells in statements(operation):
        assert cql.startswith(f"UPDATE {TABLE} USING TIMESTAMP ? AND TTL ? SET ")
        assert cql.endswith(ROW)
        assert cells[:2] + cells[-2:] == [STAMP, int_cell(9), *key(1), *key(4)]
        found.append((cql.split(" SET ")[1].split(" WHERE ")[0], cells[2:-2]))
    return found


@pytest.mark.parametrize(
    ("column", "write", "expected"),
    [
        ("tags", None, [('"tags" = ?', [None])]),
        ("tags", tags(2, 1, clear="overwrite"), [('"tags" = ?', [pack_elements(key(1, 2))])]),
        ("tags", tags(1, remove=(2,)), [('"tags" = "tags" + ?', [pack_elements(key(1))]),
                                        ('"tags" = "tags" - ?', [pack_elements(key(2))])]),
        ("sizes", sizes({1: 5}), [('"sizes" = "sizes" + ?', [pack_pairs([key(1, 5)])])]),  # type: ignore[list-item]
        ("sizes", sizes(remove=(1,)), [('"sizes" = "sizes" - ?', [pack_elements(key(1))])]),
        ("notes", notes({2: 20, 1: 10}), [('"notes" = "notes" + ?', [pack_elements(key(10, 20))])]),
        ("notes", notes({1: 10}, clear="overwrite"), [('"notes" = ?', [pack_elements(key(10))])]),
        ("notes", notes(remove=(1,)), []),
        ("home", home({1: 5}, remove=(0,)), [('"home"."no" = ?', list(key(5))), ('"home"."street" = ?', [None])]),
        ("home", home({1: 5}, clear="overwrite"),
         [('"home" = ?', [b"\xff\xff\xff\xff" + pack_elements(key(5))[4:] + b"\xff\xff\xff\xff"])]),
    ],
)  # fmt: skip
def test_a_multi_cell_column_is_written(column: str, write: Any, expected: list[tuple[str, list[Any]]]) -> None:
    """Element by element; a list's elements get keys of Cassandra's own."""
    assert settings(update(4, ttl=9, **{column: write})) == expected


def test_a_deleted_column_dies_at_the_statements_own_time() -> None:
    """And not a microsecond earlier, as by an overwrite."""
    assert statements(update(None, seen=sizes(clear="delete"))) == [
        (f'DELETE "seen" FROM {TABLE} USING TIMESTAMP ? WHERE "customer" = ?', [STAMP, *key(1)])
    ]


def test_an_insert_writes_its_row_and_then_its_collections() -> None:
    """Which CQL could do at once, but for elements that are only added."""
    first, second = statements(insert(4, item=3, tags=tags(1, clear="overwrite")))
    assert first[0] == (
        f'INSERT INTO {TABLE} ("customer", "line", "item") VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?'
    )
    assert first[1] == [*key(1), *key(4), *key(3), STAMP, int_cell(0)]
    assert 'SET "tags" = ? WHERE' in second[0]
    (bare,) = statements(insert(4))
    assert bare[1][2] is UNSET


@pytest.mark.parametrize(
    ("operation", "where"),
    [
        (RowDelete(key(4)), [f"{ROW}"]),
        (RowExpiry(key(4)), [f"{ROW}"]),
        (PartitionDelete(), ['WHERE "customer" = ?']),
        (PartitionExpiry(), ['WHERE "customer" = ?']),
        (range_delete(">1", "<=5"), ['WHERE "customer" = ? AND "line" > ? AND "line" <= ?']),
        (range_delete(None, "<5"), ['WHERE "customer" = ? AND "line" < ?']),
        (range_delete(None, None), ['WHERE "customer" = ? AND "line" >= ?']),
        (range_delete(">5", "<1"), []),
        (UnknownOperation(42, key(4)), []),
    ],
)
def test_deletes(operation: Operation, where: list[str]) -> None:
    """Expiries are deletes like others; an unknown operation changes nothing."""
    assert [cql.split(" USING TIMESTAMP ? ")[1] for cql, _cells in statements(operation)] == where


def test_a_range_over_two_columns_is_cut_into_slices() -> None:
    """With the signs of each column's direction."""
    columns = (
        Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("a", parse("int"), ColumnKind.CLUSTERING, 0),
        Column("b", parse("int"), ColumnKind.CLUSTERING, 1, descending=True),
    )
    session = cast("WritingSession", KeepingSession())
    written = BaseStatements(session, TableSchema("shop", "t", columns))
    found = written.write(RangeDelete(bound(">1,7"), bound("<=3")), key(0), T)
    assert [(str(prepared).split('"id" = ? AND ')[1], cells[2:]) for prepared, cells in found] == [
        ('"a" = ? AND "b" < ?', list(key(1, 7))),
        ('"a" > ? AND "a" <= ?', list(key(1, 3))),
    ]
