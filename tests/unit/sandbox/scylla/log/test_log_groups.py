"""What is logged of a base write: operations, splitting, order and TTLs (spec sections 2.2 to 2.5)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sandbox.scylla.base.mutations import Operation
from sandbox.scylla.log.log_groups import LogRules, log_groups, split_groups
from sandbox.scylla.workload import Mix, Workload
from tests.unit.sandbox.scylla.orders import T, delete, delete_partition, insert, logged, readable, table, update

INSERT, UPDATE, ROW, PARTITION = 2, 1, 3, 4

CASES: dict[str, tuple[list[Operation], list[list[tuple[Any, ...]]]]] = {
    "an update sets a column": ([update(4, item=7)], [[(0, UPDATE, 4, None, {"item": 7})]]),
    "an update to null raises the flag": ([update(4, note=None)], [[(0, UPDATE, 4, None, {"note": None})]]),
    "an insert sets and nulls": (
        [insert(4, item=7, note=None)],
        [[(0, INSERT, 4, None, {"item": 7, "note": None})]],
    ),
    "an insert of the key alone is an insert": ([insert(4)], [[(0, INSERT, 4, None, {})]]),
    "an insert of static columns alone is an update": (
        [insert(None, tier=2)],
        [[(0, UPDATE, None, None, {"tier": 2})]],
    ),
    "static and clustering row: two rows, static first": (
        [update(4, tier=2, item=7)],
        [[(0, UPDATE, None, None, {"tier": 2}), (0, UPDATE, 4, None, {"item": 7})]],
    ),
    "an insert into both": (
        [insert(4, tier=2, item=7)],
        [[(0, UPDATE, None, None, {"tier": 2}), (0, INSERT, 4, None, {"item": 7})]],
    ),
    "an insert of the key and a static column": (
        [insert(4, tier=2)],
        [[(0, UPDATE, None, None, {"tier": 2}), (0, INSERT, 4, None, {})]],
    ),
    "a TTL is logged": ([update(4, ttl=60, item=7)], [[(0, UPDATE, 4, 60, {"item": 7})]]),
    "a null has no TTL": ([update(4, ttl=60, note=None)], [[(0, UPDATE, 4, None, {"note": None})]]),
    "an update with TTL splits dead from live, dead first": (
        [update(4, ttl=60, item=0, note=None)],
        [[(0, UPDATE, 4, None, {"note": None}), (0, UPDATE, 4, 60, {"item": 0})]],
    ),
    "an insert with TTL splits dead from live, the insert first": (
        [insert(4, ttl=60, item=1, note=None)],
        [[(0, INSERT, 4, 60, {"item": 1}), (0, UPDATE, 4, None, {"note": None})]],
    ),
    "a static column's TTL counts too": (
        [insert(4, ttl=60, tier=1, item=2)],
        [[(0, UPDATE, None, 60, {"tier": 1}), (0, INSERT, 4, 60, {"item": 2})]],
    ),
    "two TTLs on one row ascend": (
        [update(4, ttl=20, note=1), update(4, ttl=10, item=1)],
        [[(0, UPDATE, 4, 10, {"item": 1}), (0, UPDATE, 4, 20, {"note": 1})]],
    ),
    "an insert with TTL and an update without": (
        [insert(4, ttl=10, item=1), update(4, note=1)],
        [[(0, INSERT, 4, 10, {"item": 1}), (0, UPDATE, 4, None, {"note": 1})]],
    ),
    "inserts come before updates, each in clustering order": (
        [update(1, ttl=9, note=1), insert(3, item=3), insert(2, ttl=5, item=2)],
        [[(0, INSERT, 2, 5, {"item": 2}), (0, INSERT, 3, None, {"item": 3}), (0, UPDATE, 1, 9, {"note": 1})]],
    ),
    "rows of one timestamp share a group": (
        [update(5, item=1), update(-4, item=2)],
        [[(0, UPDATE, -4, None, {"item": 2}), (0, UPDATE, 5, None, {"item": 1})]],
    ),
    "of two writes of a cell only the later is logged": (
        [update(4, at=1, item=1), update(4, item=0, at=0)],
        [[(1, UPDATE, 4, None, {"item": 1})]],
    ),
    "a batch of three timestamps": (
        [update(None, at=0, tier=9), update(4, at=1, item=1), update(4, at=2, note=2)],
        [
            [(0, UPDATE, None, None, {"tier": 9})],
            [(1, UPDATE, 4, None, {"item": 1})],
            [(2, UPDATE, 4, None, {"note": 2})],
        ],
    ),
    "of two inserts of a row the later marker counts": (
        [insert(4, at=3, item=1), update(4, at=3, note=2), insert(4, at=4)],
        [[(3, UPDATE, 4, None, {"item": 1, "note": 2})], [(4, INSERT, 4, None, {})]],
    ),
    "an update is merged into its insert": (
        [insert(4, item=1), update(4, note=2)],
        [[(0, INSERT, 4, None, {"item": 1, "note": 2})]],
    ),
    "of equal timestamps the greater value wins": (
        [update(4, item=2), update(4, item=1)],
        [[(0, UPDATE, 4, None, {"item": 2})]],
    ),
    "and null wins over any value": (
        [update(4, item=2), update(4, item=None)],
        [[(0, UPDATE, 4, None, {"item": None})]],
    ),
    "and the longer TTL over the shorter": (
        [update(4, ttl=9, item=1), update(4, ttl=8, item=2)],
        [[(0, UPDATE, 4, 9, {"item": 1})]],
    ),
    "a row delete": ([delete(4)], [[(0, ROW, 4, None, {})]]),
    "row deletes come in clustering order": (
        [delete(5), delete(4)],
        [[(0, ROW, 4, None, {}), (0, ROW, 5, None, {})]],
    ),
    "of two deletes of a row the later counts": ([delete(4, at=2), delete(4, at=5)], [[(5, ROW, 4, None, {})]]),
    "a delete before an update is not split": (
        [update(5, item=1), delete(4)],
        [[(0, ROW, 4, None, {}), (0, UPDATE, 5, None, {"item": 1})]],
    ),
    "a delete after an update is": (
        [delete(5), update(4, item=1)],
        [[(0, UPDATE, 4, None, {"item": 1}), (0, ROW, 5, None, {})]],
    ),
    "a delete beside a TTL is split": (
        [delete(3), update(4, ttl=7, item=1)],
        [[(0, UPDATE, 4, 7, {"item": 1}), (0, ROW, 3, None, {})]],
    ),
    "delete and insert of one row: the delete comes last": (
        [delete(4), insert(4, item=5)],
        [[(0, INSERT, 4, None, {"item": 5}), (0, ROW, 4, None, {})]],
    ),
    "a partition delete": ([delete_partition()], [[(0, PARTITION, None, None, {})]]),
    "a partition delete comes last of its timestamp": (
        [delete_partition(), insert(4, item=4), delete(3)],
        [[(0, INSERT, 4, None, {"item": 4}), (0, ROW, 3, None, {}), (0, PARTITION, None, None, {})]],
    ),
    "every kind at its own time": (
        [delete_partition(at=0), delete(4, at=2), insert(4, at=3, item=1), update(None, at=1, tier=5)],
        [
            [(0, PARTITION, None, None, {})],
            [(1, UPDATE, None, None, {"tier": 5})],
            [(2, ROW, 4, None, {})],
            [(3, INSERT, 4, None, {"item": 1})],
        ],
    ),
    "nothing at all": ([update(4)], []),
}


@pytest.mark.parametrize(("operations", "groups"), CASES.values(), ids=CASES)
def test_groups_of_a_mutation(operations: list[Operation], groups: list[list[tuple[Any, ...]]]) -> None:
    """Each case's name says what ScyllaDB logs."""
    assert logged(*operations) == groups


def test_without_a_clustering_key_every_delete_is_a_partitions() -> None:
    """Operation 3 never occurs there."""
    assert logged(delete(4), clustering=False) == [[(0, PARTITION, None, None, {})]]
    assert logged(delete_partition(), delete(4), clustering=False) == [[(0, PARTITION, None, None, {})]]


def test_without_a_clustering_key_the_row_is_still_inserted_or_updated() -> None:
    """It just has no key cells of its own."""
    assert logged(insert(None, item=1), clustering=False) == [[(0, INSERT, None, None, {"item": 1})]]
    assert logged(update(None, ttl=5, item=1, note=None), clustering=False) == [
        [(0, UPDATE, None, None, {"note": None}), (0, UPDATE, None, 5, {"item": 1})]
    ]


def test_clustering_order_is_the_tables() -> None:
    """A DESC column turns the rows of a group round."""
    assert [row[2] for row in logged(update(1, item=0), update(-1, item=0), update(2, item=0), descending=True)[0]] == [
        2,
        1,
        -1,
    ]


def test_a_regular_column_needs_a_clustering_key() -> None:
    """As the server says of such a statement."""
    with pytest.raises(ValueError, match="without a clustering key"):
        logged(insert(None, tier=1, item=1))


@pytest.mark.parametrize("clustering", [True, False])
def test_the_shortcut_for_plain_statements_gives_the_same(clustering: bool) -> None:
    """Thousands of mixed single statements, logged both ways."""
    rules = LogRules.of(table(clustering=clustering))
    mix = Mix(partition_deletes=1, batches=0.2, nulls=0.3, ttls=0.3)
    workload = Workload(table(clustering=clustering), seed=Random(4).getrandbits(32), keys=5, mix=mix)
    for _ in range(3000):
        mutation = workload.next()
        shortcut, whole = (how(rules, mutation, T) for how in (log_groups, split_groups))
        assert [readable(group) for group in shortcut] == [readable(group) for group in whole]
