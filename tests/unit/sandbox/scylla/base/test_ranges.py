"""Range deletes: how they are logged, made free of overlaps, and carried out in CQL."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from bridge.model.times import UnixMicros
from sandbox.scylla.base.base_statements import slices
from sandbox.scylla.base.mutations import Bound, Operation, RangeDelete, RowDelete
from sandbox.scylla.base.ranges import RangeState, covers, normalized
from sandbox.scylla.log.log_groups import LogRules
from sandbox.scylla.values.ordering import ClusteringOrder, Key
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.sandbox.scylla.orders import key
from tests.unit.sandbox.scylla.profiles import bound, logged, range_delete

FROM, AFTER, UPTO, BEFORE = 5, 6, 7, 8
DIRECTIONS = [(False, False), (True, False), (False, True), (True, True)]


def wide(*descending: str) -> LogRules:
    """The rules of `lines(customer, line, part, item)`, clustered by line and part."""
    columns = (
        Column("customer", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("line", parse("int"), ColumnKind.CLUSTERING, 0, "line" in descending),
        Column("part", parse("int"), ColumnKind.CLUSTERING, 1, "part" in descending),
        Column("item", parse("int"), ColumnKind.REGULAR),
    )
    return LogRules.of(TableSchema("shop", "lines", columns))


def order(*descending: bool) -> ClusteringOrder:
    return ClusteringOrder([parse("int")] * len(descending), descending)


CASES: dict[str, tuple[list[Operation], list[list[tuple[Any, ...]]]]] = {
    "both sides": ([range_delete(">1", "<=5")], [[(0, AFTER, (1,)), (0, UPTO, (5,))]]),
    "the left side open": ([range_delete(None, "<3")], [[(0, FROM, ()), (0, BEFORE, (3,))]]),
    "the right side open": ([range_delete(">=3", None)], [[(0, FROM, (3,)), (0, UPTO, ())]]),
    "a prefix": ([range_delete(">=2", "<=2")], [[(0, FROM, (2,)), (0, UPTO, (2,))]]),
    "a slice within a prefix": ([range_delete(">2,1", "<=2")], [[(0, AFTER, (2, 1)), (0, UPTO, (2,))]]),
    "a single row is that row's delete": ([range_delete(">=2,1", "<=2,1")], [[(0, 3, (2, 1))]]),
    "a contradiction is nothing": ([range_delete(">2", "<1")], []),
    "nor is a single value without itself": ([range_delete(">2", "<=2")], []),
    "overlapping ranges become one": (
        [range_delete(">1", "<5"), range_delete(">3", "<8")],
        [[(0, AFTER, (1,)), (0, BEFORE, (8,))]],
    ),
    "adjacent ranges too": (
        [range_delete(">=3", "<5"), range_delete(">1", "<3")],
        [[(0, AFTER, (1,)), (0, BEFORE, (5,))]],
    ),
    "ranges apart stay apart, in order": (
        [range_delete(">5", None), range_delete(None, "<2")],
        [[(0, FROM, ()), (0, BEFORE, (2,)), (0, AFTER, (5,)), (0, UPTO, ())]],
    ),
    "of two times the later one cuts the earlier": (
        [range_delete(">1", "<5", at=0), range_delete(">3", "<8", at=1)],
        [[(0, AFTER, (1,)), (0, UPTO, (3,))], [(1, AFTER, (3,)), (1, BEFORE, (8,))]],
    ),
    "a later one inside cuts the earlier in two": (
        [range_delete(None, None, at=0), range_delete(">=2", "<=2", at=1)],
        [
            [(0, FROM, ()), (0, BEFORE, (2,)), (0, AFTER, (2,)), (0, UPTO, ())],
            [(1, FROM, (2,)), (1, UPTO, (2,))],
        ],
    ),
    "ranges come after rows": (
        [range_delete(">7", None), RowDelete(key(1, 1))],
        [[(0, 3, (1, 1)), (0, AFTER, (7,)), (0, UPTO, ())]],
    ),
}


@pytest.mark.parametrize(("operations", "groups"), CASES.values(), ids=CASES)
def test_what_is_logged(operations: list[Operation], groups: list[list[tuple[Any, ...]]]) -> None:
    """Two rows each, start and end in clustering order."""
    found = logged(*operations, rules=wide())
    assert [[row[:3] for row in group] for group in found] == groups


def test_start_and_end_are_turned_round_with_the_order() -> None:
    """`line > 1 AND line <= 5` starts at 5 where the column is DESC."""
    found = logged(RangeDelete(bound("<=5"), bound(">1")), rules=wide("line"))
    assert [row[1:3] for row in found[0]] == [(FROM, (5,)), (BEFORE, (1,))]
    assert logged(range_delete(">=1", "<=5"), rules=wide("line")) == []


def all_rows() -> list[Key]:
    return [key(line, part) for line in range(4) for part in range(4)]


def random_bound(random: Random) -> Bound | None:
    if random.random() < 0.2:
        return None
    prefix = key(*(random.randrange(4) for _ in range(random.randint(1, 2))))
    return Bound(prefix, random.random() < 0.5)


@pytest.mark.parametrize("descending", DIRECTIONS, ids=str)
def test_ranges_without_overlaps_cover_the_same_rows(descending: tuple[bool, bool]) -> None:
    """Normalized ranges cover the same rows with the latest timestamp, for any ranges."""
    directed, random = order(*descending), Random(str(descending))
    for _ in range(150):
        ranges = [
            RangeState(random_bound(random), random_bound(random), UnixMicros(random.randrange(3)))
            for _ in range(random.randint(1, 4))
        ]
        made = normalized(ranges, directed)
        for row in all_rows():
            place = directed.position(row)
            before = [entry.deleted_us for entry in ranges if covers(entry, place, directed)]
            after = [entry.deleted_us for entry in made if covers(entry, place, directed)]
            assert after == ([max(before)] if before else [])


@pytest.mark.parametrize("descending", DIRECTIONS, ids=str)
def test_slices_cover_the_same_rows_each_once(descending: tuple[bool, bool]) -> None:
    """Slices cover the rows of a range, and each slice bounds one column only, for all directions."""
    directed, random = order(*descending), Random(str(descending))
    for start, end in product([random_bound(random) for _ in range(25)], repeat=2):
        entry = RangeState(start, end, UnixMicros(0))
        parts = [part for made in normalized([entry], directed) for part in slices(made.start, made.end)]
        for row in all_rows():
            hits = 0
            for part in parts:
                count = len(part.prefix)
                low = None if part.low is None else Bound((*part.prefix, part.low[0]), part.low[1])
                high = None if part.high is None else Bound((*part.prefix, part.high[0]), part.high[1])
                bounded = covers(RangeState(low, high, UnixMicros(0)), directed.position(row), directed)
                hits += bounded and row[:count] == part.prefix
            assert hits == covers(entry, directed.position(row), directed), (entry, row)
