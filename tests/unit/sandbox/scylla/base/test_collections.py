"""What is logged of writes to multi-cell columns (spec sections 2.3 to 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.scylla.base.mutations import Operation, PartitionExpiry, RowExpiry, UnknownOperation
from sandbox.scylla.base.mutations import Update as WholeUpdate
from tests.unit.sandbox.scylla.orders import key
from tests.unit.sandbox.scylla.profiles import home, insert, int_cell, logged, notes, rules, sizes, tags, update

INSERT, UPDATE = 2, 1
FOUR = (4,)

CASES: dict[str, tuple[list[Operation], list[list[tuple[Any, ...]]]]] = {
    "elements are added in their order": (
        [update(4, tags=tags(9, -1, 3))],
        [[(0, UPDATE, FOUR, None, {"tags": ([-1, 3, 9], False, None)})]],
    ),
    "elements are removed": (
        [update(4, tags=tags(remove=(2, 1)))],
        [[(0, UPDATE, FOUR, None, {"tags": (None, False, [1, 2])})]],
    ),
    "elements are added and removed": (
        [update(4, sizes=sizes({1: 10}, remove=(2,)))],
        [[(0, UPDATE, FOUR, None, {"sizes": ({1: 10}, False, [2])})]],
    ),
    "a collection is replaced at the statement's own time": (
        [update(4, sizes=sizes({1: 10}, clear="overwrite"))],
        [[(0, UPDATE, FOUR, None, {"sizes": ({1: 10}, True, None)})]],
    ),
    "a null is a replacement by nothing": (
        [update(4, tags=None)],
        [[(0, UPDATE, FOUR, None, {"tags": (None, True, None)})]],
    ),
    "a deleted column shows a microsecond later": (
        [update(4, sizes=sizes(clear="delete"))],
        [[(1, UPDATE, FOUR, None, {"sizes": (None, True, None)})]],
    ),
    "a delete at T-1 and an addition at T are one row": (
        [update(4, at=-1, sizes=sizes(clear="delete")), update(4, at=0, sizes=sizes({1: 1}))],
        [[(0, UPDATE, FOUR, None, {"sizes": ({1: 1}, True, None)})]],
    ),
    "a delete at T covers what is added at T": (
        [update(4, sizes=sizes({1: 1})), update(4, sizes=sizes(clear="delete"))],
        [[(1, UPDATE, FOUR, None, {"sizes": (None, True, None)})]],
    ),
    "a list shows its keys": (
        [update(4, notes=notes({3: 30, 1: 10}, remove=(2,)))],
        [[(0, UPDATE, FOUR, None, {"notes": ({1: 10, 3: 30}, False, [2])})]],
    ),
    "a UDT's unset fields are null": (
        [update(4, home=home({0: 7, 2: 9}))],
        [[(0, UPDATE, FOUR, None, {"home": ((7, None, 9), False, None)})]],
    ),
    "a UDT that only loses fields is shown all the same": (
        [update(4, home=home(remove=(2, 0)))],
        [[(0, UPDATE, FOUR, None, {"home": ((None, None, None), False, [0, 2])})]],
    ),
    "and one that is set to null": (
        [update(4, home=None)],
        [[(0, UPDATE, FOUR, None, {"home": ((None, None, None), True, None)})]],
    ),
    "an addition that adds nothing is not logged": ([update(4, tags=tags())], []),
    "an insert replaces its collections": (
        [insert(4, item=1, tags=tags(1, clear="overwrite"), sizes=sizes({2: 2}, clear="overwrite"))],
        [[(0, INSERT, FOUR, None, {"item": 1, "tags": ([1], True, None), "sizes": ({2: 2}, True, None)})]],
    ),
    "an insert can't carry what is only added": (
        [insert(4), update(4, sizes=sizes({1: 1}))],
        [[(0, INSERT, FOUR, None, {}), (0, UPDATE, FOUR, None, {"sizes": ({1: 1}, False, None)})]],
    ),
    "not even beside one that it replaces": (
        [insert(4, tags=tags(1, clear="overwrite")), update(4, sizes=sizes({1: 1}))],
        [
            [
                (0, INSERT, FOUR, None, {"tags": ([1], True, None)}),
                (0, UPDATE, FOUR, None, {"sizes": ({1: 1}, False, None)}),
            ]
        ],
    ),
    "an insert with TTL loses its collections to updates": (
        [insert(4, ttl=5, item=1, tags=tags(1, clear="overwrite"), sizes=sizes({2: 2}, clear="overwrite"))],
        [
            [
                (0, INSERT, FOUR, 5, {"item": 1}),
                (0, UPDATE, FOUR, None, {"tags": (None, True, None), "sizes": (None, True, None)}),
                (0, UPDATE, FOUR, 5, {"tags": ([1], False, None), "sizes": ({2: 2}, False, None)}),
            ]
        ],
    ),
    "TTLs split the elements of one column": (
        [
            update(4, ttl=6, sizes=sizes({0: 6, 1: 6})),
            update(4, ttl=7, sizes=sizes({2: 7}, remove=(3,))),
            update(4, sizes=sizes({4: 0})),
        ],
        [
            [
                (0, UPDATE, FOUR, None, {"sizes": ({4: 0}, False, [3])}),
                (0, UPDATE, FOUR, 6, {"sizes": ({0: 6, 1: 6}, False, None)}),
                (0, UPDATE, FOUR, 7, {"sizes": ({2: 7}, False, None)}),
            ]
        ],
    ),
    "of an element added and removed at once the removal stays": (
        [update(4, tags=tags(1, 2)), update(4, tags=tags(remove=(2,)))],
        [[(0, UPDATE, FOUR, None, {"tags": ([1], False, [2])})]],
    ),
    "static collections come first": (
        [update(4, seen=sizes({1: 1}), tags=tags(1))],
        [
            [
                (0, UPDATE, (), None, {"seen": ({1: 1}, False, None)}),
                (0, UPDATE, FOUR, None, {"tags": ([1], False, None)}),
            ]
        ],
    ),
    "a row that expires": ([RowExpiry(key(4))], [[(0, -3, FOUR, None, {})]]),
    "a partition that expires": ([PartitionExpiry()], [[(0, -4, (), None, {})]]),
    "an operation that no server knows": (
        [UnknownOperation(42, key(4), {"item": int_cell(1), "tags": tags(2)}, ttl_s=3)],
        [[(0, 42, FOUR, 3, {"item": 1, "tags": ([2], False, None)})]],
    ),
}


@pytest.mark.parametrize(("operations", "groups"), CASES.values(), ids=CASES)
def test_groups_of_a_mutation(operations: list[Operation], groups: list[list[tuple[Any, ...]]]) -> None:
    """Each case's name says what ScyllaDB logs."""
    assert logged(*operations, rules=rules()) == groups


def test_a_compact_table_has_no_inserts() -> None:
    """Its rows have no marker."""
    assert logged(insert(4, item=1, ttl=7), rules=rules(compact=True)) == [[(0, UPDATE, FOUR, 7, {"item": 1})]]


def test_a_multi_cell_column_is_not_written_whole() -> None:
    """The elements' keys would be lost."""
    with pytest.raises(ValueError, match=r"column 'tags' is stored element by element"):
        logged(WholeUpdate(key(4), {"tags": b""}), rules=rules())
    with pytest.raises(ValueError, match=r"column 'item' is atomic"):
        logged(update(4, item=tags(1)), insert(4), rules=rules())
