"""Log rows as the changes that a reader must see: ranges whole, images with the changes of their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.scylla.base.mutations import Mutation, Operation, PartitionDelete, RowDelete
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import CollectionDelta
from sandbox.scylla.oracle import ExpectedChange, Oracle, RangeEnd
from tests.unit.sandbox.scylla.base.test_ranges import wide
from tests.unit.sandbox.scylla.orders import T, key
from tests.unit.sandbox.scylla.profiles import insert, range_delete, rules, sizes, tags, update

PLACE = Place(key(1), b"s" * 16, timeuuid_of(T, b"\x80" * 8), UnixMillis(T // 1000))


def changes(table_rules: LogRules, *steps: list[Operation], keys_only: bool = False) -> list[ExpectedChange]:
    """Those of the last step."""
    base = BaseState(table_rules.columns)
    captured = CapturedTable("shop", "profiles", (None,) * table_rules.columns.clustering_count, keys_only)
    found: list[ExpectedChange] = []
    for number, step in enumerate(steps):
        mutation, stamp = Mutation(key(1), tuple(step)), UnixMicros(T + number)
        groups = log_groups(table_rules, mutation, stamp, base=base)
        base.write(mutation, stamp)
        found = [change for group in groups for change in expected_changes(captured, group, PLACE)]
    return found


def numbers(found: list[ExpectedChange]) -> list[tuple[int, int, bool]]:
    return [(change.operation, change.batch_seq_no, change.last_in_group) for change in found]


def test_a_range_delete_is_one_change() -> None:
    """At the place of its first row; the group's last change is the last that is left."""
    found = changes(wide(), [RowDelete(key(9, 9)), range_delete(">=2,1", "<3"), range_delete(">7", None)])
    assert numbers(found) == [(3, 0, False), (5, 1, False), (6, 3, True)]
    assert (found[1].clustering, found[1].range_end) == (key(2, 1), RangeEnd(8, (key(3)[0], None)))
    assert (found[2].clustering, found[2].range_end) == ((key(7)[0], None), RangeEnd(7, (None, None)))


def test_images_go_with_every_change_of_their_row() -> None:
    """Of two TTLs both; static and clustering rows each have their own."""
    first: list[Operation] = [insert(4, item=1), update(None, seen=sizes({1: 1}))]
    second: list[Operation] = [
        update(4, item=2, ttl=5),
        update(4, tags=tags(1)),
        update(None, seen=sizes({2: 2})),
        update(5, item=3),
    ]
    static, plain, timed, other = changes(rules(preimage="true", postimage=True), first, second)
    assert numbers([static, plain, timed, other]) == [(1, 2, False), (1, 3, False), (1, 4, False), (1, 5, True)]
    assert (static.before or {}).keys() == (static.after or {}).keys() == {"seen"}
    assert plain.before == timed.before == {"item": key(1)[0], "tags": None}
    assert plain.after == timed.after != other.after
    assert (other.before, other.after) == (None, {"item": key(3)[0]})


def test_a_partitions_delete_has_not_the_static_rows_images() -> None:
    """Though neither has a clustering key; without one it has those of its only row."""
    first: list[Operation] = [insert(4, item=1), update(None, seen=sizes({1: 1}))]
    found = changes(rules(preimage="full"), first, [update(None, seen=sizes({2: 2})), PartitionDelete()])
    assert [(change.operation, change.before is None) for change in found] == [(1, False), (4, True)]
    single = changes(rules(preimage="true", clustering=False), [insert(None, item=1)], [PartitionDelete()])
    assert [(change.operation, (change.before or {})["item"]) for change in single] == [(4, key(1)[0])]


def test_keys_only_hides_deltas_and_not_images() -> None:
    """As the log does."""
    (change,) = changes(rules(postimage=True), [update(4, item=1)], keys_only=True)
    assert (change.columns, change.after) == ({}, {"item": key(1)[0]})


def test_every_form_survives_a_file(tmp_path: Path) -> None:
    """Collections, ranges and images; absent, null and empty stay three things."""
    steps: list[list[Operation]] = [
        [insert(4, item=1)],
        [update(4, tags=tags(1, remove=(2,)), sizes=None, item=None), range_delete(">4", None)],
    ]
    found = changes(rules(preimage="full", postimage=True), *steps)
    cells: dict[str, Any] = dict(found[0].columns)
    assert cells["sizes"] == CollectionDelta(None, deleted=True, deleted_elements=None)
    oracle = Oracle()
    oracle.extend(found)
    oracle.dump(tmp_path / "oracle.jsonl")
    assert list(Oracle.load(tmp_path / "oracle.jsonl")) == found
