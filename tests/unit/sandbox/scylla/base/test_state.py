"""The base table in memory: last write wins, cell by cell and element by element."""

from __future__ import annotations

import pytest

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import Mutation, Operation, PartitionDelete, RowDelete, UnknownOperation
from sandbox.scylla.base.state import BaseRow, BaseState
from tests.unit.sandbox.scylla.orders import T, cell, key
from tests.unit.sandbox.scylla.profiles import home, insert, notes, number, range_delete, rules, sizes, tags, update

SECOND = 1_000_000


def written(*operations: Operation, compact: bool = False) -> BaseState:
    base = BaseState(rules(compact=compact).columns)
    for operation in operations:
        base.write(Mutation(key(1), (operation,)), T)
    return base


def item(base: BaseState, line: int = 4, *, later_s: int = 0) -> int | None:
    row = base.row(key(1), key(line), UnixMicros(T + later_s * SECOND))
    return None if row is None else number(row.cells.get("item"))


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        (update(4, item=1, at=2), update(4, item=2, at=1), 1),
        (update(4, item=1), update(4, item=2), 2),
        (update(4, item=1), update(4, item=None), None),
        (update(4, item=1, ttl=9), update(4, item=2), 1),
        (update(4, item=1, ttl=9), update(4, item=2, ttl=8), 1),
        (update(4, item=1), RowDelete(key(4)), None),
        (update(4, item=1, at=1), RowDelete(key(4)), 1),
        (update(4, item=1), range_delete(">3", "<5"), None),
        (update(4, item=1), range_delete(">4", "<5"), 1),
        (update(4, item=1, at=1), range_delete(">3", "<5"), 1),
        (update(4, item=1), PartitionDelete(), None),
        (update(4, item=1, at=1), PartitionDelete(), 1),
        (update(4, item=1), UnknownOperation(42, key(4)), 1),
    ],
)
def test_the_later_write_wins_in_either_order(one: Operation, other: Operation, left: int | None) -> None:
    """Dead beats live, and expiring beats lasting, at one microsecond."""
    assert item(written(one, other)) == left
    assert item(written(other, one)) == left


def test_a_ttl_ends_at_the_coordinators_clock() -> None:
    """Not counted from the timestamp."""
    base = BaseState(rules().columns)
    base.write(Mutation(key(1), (insert(4, item=1, ttl=5),)), UnixMicros(T - 100 * SECOND), T)
    assert (item(base, later_s=4), item(base, later_s=5)) == (1, None)
    assert base.row(key(1), key(4), UnixMicros(T + 5 * SECOND)) is None


def test_a_row_lives_by_its_marker_or_its_last_cell() -> None:
    """An inserted row stays when its cells are set to null. An updated row and a row of a compact table do not."""
    for first, compact, stays in ((insert(4, item=1), False, True), (update(4, item=1), False, False),
                                  (insert(4, item=1), True, False)):  # fmt: skip
        base = written(first, update(4, item=None, at=1), compact=compact)
        assert (base.row(key(1), key(4), T) is not None) == stays


def test_collections_are_merged_element_by_element() -> None:
    """In the order of their keys; the overwrite's tombstone is a microsecond older than its elements."""
    base = written(
        update(4, at=5, tags=tags(3, 1, clear="overwrite"), sizes=sizes({2: 20, 1: 10}), notes=notes({2: 2, 1: 1})),
        update(4, at=4, tags=tags(9), sizes=sizes({2: 99, 3: 30})),
        update(4, at=6, tags=tags(2, remove=(3,)), home=home({1: 5})),
        update(4, at=6, home=home(clear="delete")),
    )
    row = base.row(key(1), key(4), T)
    assert row is not None
    found = {name: {number(k): number(v) for k, v in each.items()} for name, each in row.collections.items()}
    assert {name: list(found[name].items()) for name in ("tags", "sizes")} == {
        "tags": [(1, 0), (2, 0)],
        "sizes": [(1, 10), (2, 20), (3, 30)],
    }
    assert [number(value) for value in row.collections["notes"].values()] == [1, 2]
    assert "home" not in row.collections


def test_rows_come_in_clustering_order_and_the_static_row_by_itself() -> None:
    """A range delete leaves the static row alone; a partition's delete does not."""
    base = written(update(5, item=5), update(-4, item=4, at=1), update(None, seen=sizes({1: 1})), update(7, item=7))
    base.write(Mutation(key(1), (range_delete(None, None),)), T)
    assert [clustering for clustering, _row in base.rows(key(1), T)] == [key(-4)]
    assert base.static(key(1), T).collections == {"seen": {cell(1): cell(1)}}
    base.write(Mutation(key(1), (PartitionDelete(UnixMicros(T + 1)),)), T)
    assert list(base.rows(key(1), T)) == []
    assert base.static(key(1), T) == base.static(key(2), T) == BaseRow()
    assert base.partitions == [key(1)]


def test_a_dropped_column_is_forgotten() -> None:
    """Even if it comes back."""
    base = written(insert(4, item=1, tags=tags(1, clear="overwrite")))
    base.alter(rules().columns, dropped=["item", "tags"])
    assert base.row(key(1), key(4), T) == BaseRow({}, {}, has_marker=True)
