"""Pre- and post-images (spec section 2.6), where the known vectors leave something open."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.model.times import UnixMicros
from sandbox.scylla.base.mutations import Operation, PartitionDelete, RowDelete
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.log.log_groups import LogRules
from tests.unit.sandbox.scylla.orders import T, key
from tests.unit.sandbox.scylla.profiles import (
    home,
    insert,
    logged,
    notes,
    profiles,
    range_delete,
    rules,
    sizes,
    tags,
    update,
)

PRE, UPDATE, INSERT, ROW, PARTITION, POST = 0, 1, 2, 3, 4, 9
REGULARS = {"tags": None, "sizes": None, "notes": None, "home": None, "item": None}


def images(table_rules: LogRules, *steps: list[Operation]) -> list[tuple[Any, ...]]:
    """What the last of some mutations, a second apart, leaves: operation, key and columns of each row."""
    base = BaseState(table_rules.columns)
    for number, step in enumerate(steps):
        groups = logged(*step, base=base, rules=table_rules, at=number * 1_000_000)
    return [(row[1], row[2], row[4]) for group in groups for row in group]


def test_true_shows_the_touched_columns_and_full_shows_all() -> None:
    """A null among them has its flag raised; collections are whole."""
    steps = [[insert(4, item=1, sizes=sizes({1: 1, 2: 2}, clear="overwrite"))], [update(4, tags=tags(1))]]
    assert images(rules(preimage="true"), *steps)[0] == (PRE, (4,), {"tags": None})
    shown = {**REGULARS, "item": 1, "sizes": {1: 1, 2: 2}}
    assert images(rules(preimage="full"), *steps)[0] == (PRE, (4,), shown)


def test_a_row_that_is_not_there_has_no_pre_image() -> None:
    """A row has no pre-image before its first write or without live cells, unless it has a marker."""
    assert images(rules(preimage="full"), [update(4, item=1)]) == [(UPDATE, (4,), {"item": 1})]
    gone = [[update(4, item=1)], [update(4, item=None)], [update(4, item=2)]]
    assert [row[0] for row in images(rules(preimage="full"), *gone)] == [UPDATE]
    kept = [[insert(4, item=1)], [update(4, item=None)], [update(4, item=2)]]
    assert images(rules(preimage="true"), *kept)[0] == (PRE, (4,), {"item": None})


def test_a_static_row_has_images_of_its_own() -> None:
    """Static columns only; they come first."""
    steps = [[update(None, seen=sizes({1: 1}))], [update(4, seen=sizes({2: 2}), item=3)]]
    assert images(rules(preimage="true", postimage=True), *steps) == [
        (PRE, (), {"seen": {1: 1}}),
        (UPDATE, (), {"seen": ({2: 2}, False, None)}),
        (UPDATE, (4,), {"item": 3}),
        (POST, (), {"seen": {1: 1, 2: 2}}),
        (POST, (4,), {"item": 3}),
    ]


def test_an_emptied_collection_is_empty_and_a_deleted_one_absent() -> None:
    """In the post-image of the very write; the next pre-image knows only null."""
    steps: list[list[Operation]] = [[insert(4, tags=tags(1, clear="overwrite"))], [update(4, tags=tags(remove=(1,)))]]
    assert images(rules(postimage=True), *steps)[-1] == (POST, (4,), {"tags": []})
    assert images(rules(postimage=True), steps[0], [update(4, tags=None)])[-1] == (POST, (4,), {})
    assert images(rules(preimage="true"), *steps, [update(4, tags=tags(2))])[0] == (PRE, (4,), {"tags": None})
    nothing = [[insert(4)], [update(4, tags=tags(remove=(1,)))]]
    assert images(rules(postimage=True), *nothing)[-1] == (POST, (4,), {})


def test_a_udt_that_was_touched_is_shown_with_null_fields() -> None:
    """As a real server was seen to do."""
    steps = [[insert(4, home=home({0: 1}, clear="overwrite"))], [update(4, home=None)]]
    assert images(rules(postimage=True), *steps)[-1] == (POST, (4,), {"home": (None, None, None)})
    assert images(rules(preimage="true"), *steps, [update(4, home=home({1: 1}))])[0] == (PRE, (4,), {"home": None})


def test_a_list_is_shown_with_its_keys() -> None:
    """In their order."""
    steps = [[insert(4, notes=notes({2: 20}, clear="overwrite"))], [update(4, notes=notes({1: 10}))]]
    assert images(rules(preimage="true", postimage=True), *steps) == [
        (PRE, (4,), {"notes": {2: 20}}),
        (UPDATE, (4,), {"notes": ({1: 10}, False, None)}),
        (POST, (4,), {"notes": {1: 10, 2: 20}}),
    ]


def test_later_groups_see_the_earlier_ones() -> None:
    """Before any of them is in the table; what the first deleted has no pre-image in the second."""
    found = images(
        rules(preimage="true", postimage=True),
        [insert(4, item=1)],
        [
            RowDelete(key(4), UnixMicros(T + 1)),
            update(5, at=1, tags=tags(1)),
            update(4, at=2, item=2),
            update(5, at=2, tags=tags(2)),
        ],
    )
    assert found == [
        (PRE, (4,), {**REGULARS, "item": 1}),
        (UPDATE, (5,), {"tags": ([1], False, None)}),
        (ROW, (4,), {}),
        (POST, (5,), {"tags": [1]}),
        (PRE, (5,), {"tags": [1]}),
        (UPDATE, (4,), {"item": 2}),
        (UPDATE, (5,), {"tags": ([2], False, None)}),
        (POST, (4,), {"item": 2}),
        (POST, (5,), {"tags": [1, 2]}),
    ]


def test_a_write_that_loses_still_shows_in_its_post_image() -> None:
    """Changes are applied to the image for any timestamps; the table keeps the newer value."""
    base = BaseState(rules(postimage=True).columns)
    logged(update(4, item=1, at=100), base=base, rules=rules(postimage=True))
    (group,) = logged(update(4, item=77, at=50), base=base, rules=rules(postimage=True))
    assert group[-1][1:] == (POST, (4,), None, {"item": 77})
    row = base.row(key(1), key(4), now_us=group[0][0])
    assert row is not None
    assert dict(row.cells) == {"item": key(1)[0]}


@pytest.mark.parametrize("deleting", [range_delete(">=4", "<=9"), RowDelete(key(4)), PartitionDelete()], ids=str)
def test_a_row_that_is_deleted_in_the_same_group_has_no_post_image(deleting: Operation) -> None:
    """Another row has; a partition's delete takes them all."""
    found = images(rules(postimage=True), [update(4, item=1), update(3, item=2), deleting])
    posts = [row[1] for row in found if row[0] == POST]
    assert posts == ([] if isinstance(deleting, PartitionDelete) else [(3,)])


def test_true_forgets_the_columns_of_later_rows() -> None:
    """The known weakness: one read for all rows fetches what the first one touches."""
    steps = [[insert(4, item=1), insert(5, item=2)], [update(4, tags=tags(1)), update(5, item=3)]]
    weak = [row for row in images(rules(preimage="true"), *steps) if row[0] == PRE]
    assert weak == [(PRE, (4,), {"tags": None}), (PRE, (5,), {"item": None})]
    for options in ({"preimage": "full"}, {"preimage": "true", "postimage": True}):
        found = [row for row in images(rules(**options), *steps) if row[0] == PRE]
        assert found[1][2]["item"] == 2


def test_range_and_partition_deletes_have_no_images() -> None:
    """But for the delete of a partition that is one row, since 2026.1."""
    both = {"preimage": "full", "postimage": True}
    for deleting in (range_delete(None, None), PartitionDelete()):
        assert {row[0] for row in images(rules(**both), [insert(4, item=1)], [deleting])} <= {PARTITION, 5, 7}
    single = [[insert(None, item=1)], [PartitionDelete()]]
    shown = (PRE, (), {**REGULARS, "item": 1})
    assert images(rules(clustering=False, **both), *single) == [shown, (PARTITION, (), {})]
    old = rules(clustering=False, of_partition_deletes=False, **both)
    assert images(old, *single) == [(PARTITION, (), {})]


def test_images_need_the_base_table() -> None:
    """There is nothing to read them from."""
    with pytest.raises(ValueError, match="without the base table"):
        logged(insert(4), rules=rules(postimage=True))


def test_the_table_of_these_tests_has_every_kind() -> None:
    """So that no kind goes untested."""
    kinds = {kind.kind for kind in rules().columns.multi_cell.values()}
    assert kinds == {"set", "map", "list", "udt"}
    assert {column.name for column in profiles().regulars} == REGULARS.keys()
