from __future__ import annotations

from pathlib import Path

import pytest

from bridge.model.times import UnixMillis
from sandbox.demo import plan
from sandbox.demo.tail import LineTail
from sandbox.demo.writer import written_file
from schemas.record_schemas import key_schema, value_schema


@pytest.mark.parametrize("seconds", [10.0, 15.0, 45.0, 600.0])
def test_two_changes_of_generation_one_of_them_late(seconds: float) -> None:
    """Both begin and are published while changes are written, with writes before, between and after them."""
    first, second = plan.generation_changes(seconds)
    assert 0 <= first.published_s < first.starts_s < second.starts_s < second.published_s < seconds
    assert first.late_s < 0 < second.late_s
    assert second.starts_s - first.starts_s > 3


def test_the_tables_can_be_carried() -> None:
    """One is narrow; the other has composite keys, statics and every scalar type."""
    narrow, wide = (one.table.table_schema for one in plan.tables())
    for table in (narrow, wide):
        key_schema(table)
        value_schema(table)
    assert len(narrow.columns) == 3
    assert len(wide.partition_key) == len(wide.clustering) == len(wide.statics) == 2
    assert len({str(column.type) for column in wide.columns}) == 19
    assert sum(one.share for one in plan.tables()) == pytest.approx(1.0)


def test_recorded_times_come_before_the_simulated_cluster() -> None:
    """The last recorded row is older than the first generation that the simulator makes."""
    now_ms, last_ms = UnixMillis(1_800_000_000_000), UnixMillis(1_700_000_000_000)
    moved = last_ms + plan.recorded_shift_ms(last_ms, now_ms)
    assert moved + plan.LEEWAY_MS < plan.first_generation_ms(now_ms) < now_ms


def test_a_tail_gives_complete_lines_once(tmp_path: Path) -> None:
    """A line that is being written is left until it is whole; the file may not be there yet."""
    path = tmp_path / "lines"
    tail = LineTail(path)
    assert tail.lines() == []
    path.write_text("one\ntw", encoding="utf-8")
    assert tail.lines() == ["one"]
    assert tail.lines() == []
    with path.open("a", encoding="utf-8") as file:
        file.write("o\nthree ä\n")
    assert tail.lines() == ["two", "three ä"]


def test_a_tail_reads_in_portions(tmp_path: Path) -> None:
    """No more than so many bytes at a time, cut at the end of a line."""
    path = tmp_path / "lines"
    path.write_text("aa\nbb\ncc\n", encoding="utf-8")
    tail = LineTail(path)
    assert [tail.lines(7), tail.lines(7), tail.lines(7)] == [["aa", "bb"], ["cc"], []]


def test_each_table_has_its_own_file(tmp_path: Path) -> None:
    """Two writers never share a file."""
    assert len({written_file(tmp_path, one.table.table_schema) for one in plan.tables()}) == 2
