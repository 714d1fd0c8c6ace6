"""The simulator logs for a statement what a real ScyllaDB logged for the same one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest

from bridge.local.recorded.expected import expected_changes
from bridge.local.recorded.recording import Recording
from bridge.local.simulator.log_groups import LogRules, log_groups
from bridge.local.simulator.mutations import Insert, Mutation, Operation, PartitionDelete, RowDelete, Update
from bridge.local.simulator.oracle import ExpectedChange
from bridge.model.times import UnixMicros

ROW_0, ROW_1, ROW_2, ROW_3 = ((number.to_bytes(4, "big"),) for number in range(4))


def i(number: int) -> bytes:
    return number.to_bytes(4, "big")


def rows(*numbers: int) -> tuple[tuple[bytes], ...]:
    return tuple((i(number),) for number in numbers)


# The recorded rows' numbers, and the statements that made them (of batches, those on one partition).
BATCHES: list[tuple[range, list[Operation]]] = [
    (range(3), [Insert(key, {"v": i(number)}) for number, key in enumerate(rows(1, 2, 3), 1)]),
    (
        range(10, 12),
        [Insert(ROW_1, {"v": i(1)}), Update(ROW_1, {"w": b"x"}), RowDelete(ROW_2)],
    ),
    (
        range(12, 15),
        [
            Insert(ROW_1, {"v": i(1)}, timestamp_us=UnixMicros(1_795_249_183_015_455)),
            Insert(ROW_2, {"v": i(1)}, timestamp_us=UnixMicros(1_795_249_183_016_455)),
            Update(ROW_1, {"w": b"z"}, timestamp_us=UnixMicros(1_795_249_183_017_455)),
        ],
    ),
    (range(20, 21), [Update(ROW_1, {"v": i(1)}), Update(ROW_1, {"v": i(2)})]),
    (range(21, 22), [Insert(ROW_1, {"v": i(1)}), Update(ROW_1, {"w": b"u"})]),
    (
        range(22, 25),
        [Insert(ROW_1, {"v": i(1)}), Update(ROW_1, {"w": None}), Update((), {"s": i(5)}), Insert(ROW_2)],
    ),
    (range(25, 30), [Insert(key, {"v": i(number)}) for number, key in enumerate(rows(0, 1, 2, 3, 4))]),
    (
        range(38, 41),
        [
            Update(ROW_1, {"v": i(1)}, ttl_s=10),
            Update(ROW_2, {"v": i(2)}, ttl_s=20),
            Update(ROW_3, {"w": b"k"}, ttl_s=10),
        ],
    ),
]
TTL: list[tuple[range, list[Operation]]] = [
    (range(1), [Insert(ROW_1, {"a": i(1)}, ttl_s=100)]),
    (range(1, 2), [Insert(ROW_1, {"a": i(1), "b": i(2)}, ttl_s=100)]),
    (range(2, 3), [Update(ROW_1, {"a": i(2)}, ttl_s=200)]),
    (range(3, 4), [Update(ROW_1, {"a": i(3)})]),
    (range(4, 6), [Update(ROW_2, {"a": i(1)}, ttl_s=10), Update(ROW_2, {"b": i(1)}, ttl_s=20)]),
    (range(6, 8), [Insert(ROW_3, {"a": i(1)}, ttl_s=10), Update(ROW_3, {"b": i(1)})]),
    (
        range(8, 11),
        [Insert(key, {"a": i(1)}, ttl_s=ttl_s) for key, ttl_s in zip(rows(4, 5, 6), (10, 20, 0), strict=True)],
    ),
    (range(12, 14), [Update(rows(8)[0], {"a": None, "b": i(4)}, ttl_s=1)]),
]
DELETES: list[tuple[range, list[Operation]]] = [
    (range(7, 8), [Update((i(1), i(1)), {"v": None, "w": None})]),
    (range(8, 9), [RowDelete((i(1), i(1)))]),
    (range(52, 54), [RowDelete((i(1), i(2))), RowDelete((i(1), i(1)))]),
    (range(56, 57), [PartitionDelete()]),
    (range(68, 70), [PartitionDelete(), Insert((i(4), i(4)), {"v": i(4)})]),
    (range(76, 78), [RowDelete((i(4), i(4))), Insert((i(4), i(4)), {"v": i(5)})]),
]
NO_CLUSTERING: list[tuple[range, list[Operation]]] = [
    (range(1), [Insert((), {"v": i(10)})]),
    (range(1, 2), [Update((), {"v": i(11)})]),
    (range(2, 3), [Update((), {"v": None})]),
    (range(4, 5), [RowDelete(())]),
]


def cases() -> Iterator[Any]:
    recorded = {
        ("batches", "ba"): BATCHES,
        ("ttl", "tt"): TTL,
        ("deletes", "de"): DELETES,
        ("composite_keys", "ck2"): NO_CLUSTERING,
    }
    for (scenario, table), entries in recorded.items():
        for numbers, operations in entries:
            yield pytest.param(scenario, table, numbers, operations, id=f"{table}-{numbers.start}")


def terms(change: ExpectedChange) -> tuple[Any, ...]:
    return (change.operation, change.clustering, dict(change.columns), change.ttl_s, change.batch_seq_no)


@pytest.mark.parametrize(("scenario", "table", "numbers", "operations"), list(cases()))
def test_a_statement_is_logged_as_recorded(
    scenario: str, table: str, numbers: range, operations: list[Operation]
) -> None:
    """Rows, their order, their groups, TTLs and flags."""
    recording = Recording.load(scenario)
    recorded_table = recording.table(table)
    changes = expected_changes(recording, recorded_table)
    recorded = [changes[number] for number in numbers]
    groups = [list(group) for _time, group in groupby(recorded, key=lambda change: change.time)]
    schema = recorded_table.table_schema("rec")
    no_clustering = (None,) * len(schema.clustering)
    stamp = recorded[0].timestamp_us
    logged = log_groups(LogRules.of(schema), Mutation((i(1),), tuple(operations)), stamp)
    assert [group.timestamp_us for group in logged] == [group[0].timestamp_us for group in groups]
    assert [
        [
            (int(row.operation), row.clustering or no_clustering, dict(row.cells), row.ttl_s, number)
            for number, row in enumerate(group.rows)
        ]
        for group in logged
    ] == [[terms(change) for change in group] for group in groups]
    assert all(group[-1].last_in_group for group in groups)
