"""Each comparison finds the fault that it is for, and none in records that are right."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.live.compare import Finding, Rows, compare_copy, compare_order, compare_positions, copied, rows_of
from tests.live.log import LogChange, changes_of
from tests.live.native_types import DECIMAL, INET, UUID_
from tests.live.tables import Column
from tests.live.topics import Record
from tests.tools.live.sample import START_US, TABLE, logged, position, record

NOW_US = START_US + 60_000_000


def set_to(value: int | None) -> dict[str, Any]:
    return {"value": value}


RIGHT = [
    record("insert", 1, (1, 1), v=set_to(5)),
    record("update", 2, (1, 1), v=set_to(6)),
    record("insert", 3, (2, 1), v=set_to(7)),
    record("static_update", 4, (1, None), s=set_to(8)),
    record("row_delete", 5, (2, 1)),
    record("insert", 6, (2, 2)),
]
BASE: Rows = {(1,): {"s": 8}, (1, 1): {"v": 6}, (2, 2): {}}


def finding_of(records: list[Record], unsettled: tuple[tuple[int, int], ...] = ()) -> Finding:
    """All three comparisons of records with the log and the table of `RIGHT`."""
    finding = Finding("ks.t")
    compare_positions(finding, TABLE, logged(RIGHT), records, unsettled)
    compare_order(finding, records)
    compare_copy(finding, TABLE, records, BASE, NOW_US)
    return finding


def changed(place: int, **fields: Any) -> list[Record]:
    """The right records, one of them with other fields."""
    return [replace(one, **fields) if number == place else one for number, one in enumerate(RIGHT)]


def test_right_records_pass() -> None:
    """Records that are right show no fault."""
    finding = finding_of(RIGHT)
    assert (finding.faults, finding.examples) == (0, [])
    assert (finding.changes, finding.records, finding.rows, finding.generations) == (6, 6, 3, {1})


def test_a_dropped_record_is_missing() -> None:
    """A change without a record is counted, and the copy lacks it."""
    finding = finding_of(RIGHT[:1] + RIGHT[2:])
    assert (finding.missing, finding.doubled, finding.unexpected, finding.out_of_order) == (1, 0, 0, 0)
    assert finding.differing_rows == 1
    assert any("v: 5 in the copy, not 6" in one for one in finding.examples)


def test_a_record_of_an_unsettled_write_may_be_missing() -> None:
    """A change at a time when a write was not confirmed is late, not missing; others are."""
    at_us = START_US + 2
    finding = finding_of(RIGHT[:1] + RIGHT[2:4], unsettled=((at_us - 1, at_us + 1),))
    assert (finding.late, finding.missing) == (1, 2)


def test_a_doubled_record_is_found() -> None:
    """A second record of a change is counted, although the copy is the same."""
    finding = finding_of([*RIGHT[:2], RIGHT[1], *RIGHT[2:]])
    assert (finding.missing, finding.doubled, finding.differing_rows) == (0, 1, 0)


def test_a_swapped_record_is_out_of_order() -> None:
    """Two changes of a key in the wrong order are found, although last-write-wins hides it from the copy."""
    finding = finding_of([RIGHT[1], RIGHT[0], *RIGHT[2:]])
    assert (finding.missing, finding.out_of_order, finding.differing_rows) == (0, 1, 0)


def test_order_at_one_time_is_that_of_signed_bytes() -> None:
    """Of two groups of one microsecond the one with the lower signed byte comes first."""
    first, second = (replace(RIGHT[0], position=position(1, low=byte << 56)) for byte in (0x80, 0x01))
    for records, faults in (([first, second], 0), ([second, first], 1)):
        finding = Finding("ks.t")
        compare_order(finding, records)
        assert finding.out_of_order == faults


def test_a_key_in_two_partitions_is_out_of_order() -> None:
    """A key's records must be in one Kafka partition."""
    assert finding_of(changed(1, partition=3)).out_of_order == 1


@pytest.mark.parametrize(
    "fields",
    [{"key": {"pk": 9}}, {"position": position(7)}, {"value": RIGHT[2].value}],
    ids=["key", "position", "source"],
)
def test_an_altered_record_is_unexpected(fields: dict[str, Any]) -> None:
    """A record with another key, an unknown position, or the source of another change is found."""
    assert finding_of(changed(1, **fields)).unexpected >= 1


def test_keys_of_every_type_are_compared() -> None:
    """A record's key is compared in the log's form, whatever fastavro and the driver make of its type."""
    key = UUID("123e4567-e89b-12d3-a456-426614174000")
    table = replace(TABLE, partition=[Column("p1", UUID_), Column("p2", INET), Column("p3", DECIMAL)])
    told = {"p1": key, "p2": "2001:db8:0:0:0:0:0:1", "p3": {"scale": 1, "value": b"\x0f"}}
    selected = {"p1": key, "p2": "2001:db8::1", "p3": Decimal("1.5")}
    wanted = LogChange(tuple(one.type.of_driver(selected[one.name]) for one in table.partition), 2)
    for right, faults in ((told, 0), (told | {"p3": {"scale": 2, "value": b"\x0f"}}, 1)):
        finding = Finding("ks.t")
        compare_positions(finding, table, {RIGHT[0].position: wanted}, [replace(RIGHT[0], key=right)])
        assert finding.faults == faults


def test_an_altered_value_differs() -> None:
    """A wrong value under a right position is found by the copy."""
    wrong = record("update", 2, (1, 1), v=set_to(66))
    finding = finding_of(changed(1, value=wrong.value))
    assert (finding.unexpected, finding.missing, finding.differing_rows) == (0, 0, 1)


def test_a_row_that_only_one_side_has_differs() -> None:
    """A row that exists by its marker alone is compared, too."""
    assert finding_of(RIGHT[:-1]).differing_rows == 1
    assert finding_of([*RIGHT, record("insert", 9, (5, 5))]).differing_rows == 1


# -- the copy ---------------------------------------------------------------------------------------------------------


def rows(*records: Record, now_us: int = NOW_US) -> Rows:
    return copied(TABLE, records, now_us)


def test_expired_cells_and_rows_are_gone() -> None:
    """A cell is there until its TTL ends, and so is a marker."""
    written = (
        record("insert", 0, (1, 1), ttl=10, v=set_to(5)),
        record("update", 1, (1, 1), st={**ADDED, "added": ["x"]}),
    )
    assert rows(*written, now_us=START_US + 9_000_000) == {(1, 1): {"v": 5, "st": frozenset({"x"})}}
    assert rows(*written) == {(1, 1): {"st": frozenset({"x"})}}
    assert rows(written[0]) == {}


ADDED: dict[str, Any] = {"cleared": False, "added": [], "removed": []}


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        ((None, 5), (None, 4), 5),
        ((None, -1), (None, 4), -1),
        ((None, None), (None, 4), None),
        ((3600, 1), (None, 4), 1),
        ((7200, 1), (3600, 4), 1),
    ],
)
def test_ties(one: tuple[int | None, int | None], other: tuple[int | None, int | None], wins: int | None) -> None:
    """At one timestamp the dead win, then what expires, then what expires later, then the greater bytes."""
    written = [record("update", 1, (1, 1), ttl=ttl, v=set_to(value)) for ttl, value in (one, other)]
    for records in (written, written[::-1]):
        assert rows(*records).get((1, 1), {}).get("v") == wins


def test_collections_are_changed_by_element() -> None:
    """Elements are cleared, added and removed; a list has the order of its keys."""
    keys = [str(UUID(bytes=position(at).time)) for at in (1, 2)]
    added = [{"key": keys[1], "value": 20}, {"key": keys[0], "value": 10}]
    written = (
        record("update", 1, (1, 1), l={**ADDED, "added": added}, m={**ADDED, "added": [{"key": 1, "value": "a"}]}),
        record("update", 2, (1, 1), m={"cleared": True, "added": [{"key": 2, "value": "b"}], "removed": []}),
    )
    assert rows(*written) == {(1, 1): {"l": (10, 20), "m": frozenset({(2, "b")})}}
    gone = record("update", 3, (1, 1), l={**ADDED, "removed": keys}, m={**ADDED, "removed": [2]})
    assert rows(*written, gone) == {}


def test_a_range_follows_the_clustering_order() -> None:
    """In a descending column a range starts at its greatest value."""
    bounds = {
        "start": {"inclusive": True, "key": {"ck": 3}, "empty_columns": []},
        "end": {"inclusive": False, "key": {"ck": 1}, "empty_columns": []},
    }
    written = [record("insert", number, (1, number)) for number in range(5)]
    assert list(rows(*written, record("range_delete", 9, (1, None), range=bounds))) == [(1, 0), (1, 1), (1, 4)]


def test_a_dropped_column_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written to a column before its drop is gone, also after it was added again."""
    monkeypatch.setitem(TABLE.dropped_us, "v", START_US + 5)
    written = [record("update", at, (at, 1), v=set_to(at)) for at in (4, 6)]
    assert rows(*written) == {(6, 1): {"v": 6}}


# -- the log and the table --------------------------------------------------------------------------------------------


def test_log_rows_become_changes() -> None:
    """Images are no changes, and the end of a range belongs to its start."""
    operations = [0, 2, 9, 5, 8, 4, -3]
    log = [
        {
            "cdc$stream_id": b"stream of 16 byt",
            "cdc$time": UUID(bytes=position(1).time),
            "cdc$batch_seq_no": number,
            "cdc$operation": operation,
            "pk": 7,
        }
        for number, operation in enumerate(operations)
    ]
    found = changes_of(TABLE, log)
    assert {place.batch_seq_no: one.operation for place, one in found.items()} == {1: 2, 3: 5, 5: 4, 6: -3}
    assert {one.key for one in found.values()} == {(7,)}
    assert {place.written_us for place in found} == {START_US + 1}


def test_selected_rows() -> None:
    """Static cells are one row of their own, a partition may have nothing else, and nulls are left out."""
    empty = dict.fromkeys(("v", "m", "st", "l"))
    selected = [
        {"pk": 1, "ck": 2, "s": 3, **empty, "v": 4, "l": [1, 2]},
        {"pk": 1, "ck": 1, "s": 3, **empty, "m": {}},
        {"pk": 2, "ck": None, "s": 5, **empty},
    ]
    assert rows_of(TABLE, selected) == {(1,): {"s": 3}, (1, 2): {"v": 4, "l": (1, 2)}, (1, 1): {}, (2,): {"s": 5}}
