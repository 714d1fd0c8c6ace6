"""Recordings of scenarios in which the table changed, as a reader finds their logs afterwards."""

from __future__ import annotations

import pytest

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.server import StatementServer
from sandbox.recordings.expected import expected_changes
from sandbox.recordings.loader import lasting_rows
from sandbox.recordings.recording import Recording
from sandbox.recordings.replay import Replay, carry_out


def test_a_renamed_key_is_lost_from_older_rows() -> None:
    """The log drops the old name, and the new one is null in rows that were there."""
    recording = Recording.load("alter_rename_and_type")
    (table,) = recording.tables
    replay = Replay.of(recording)
    keys = [row.get("ck_new") for row in lasting_rows(recording, table, replay)]
    assert keys == [None] * 8 + [row["ck_new"] for row in table.rows[8:]]
    changes = expected_changes(recording, table, replay=replay)
    assert [change.clustering for change in changes[:3]] == [(None,)] * 3
    assert all(change.clustering == (b"\0\0\0\1",) for change in changes[3:4])


def test_a_dropped_column_is_lost_even_if_it_comes_back() -> None:
    """`b` was dropped and added again: what it held before is gone, from images too."""
    recording = Recording.load("alter_table")
    (table,) = recording.tables
    first, *_others, last = expected_changes(recording, table)
    assert "b" not in first.columns
    assert first.after is not None
    assert "b" not in first.after
    again = [change for change in expected_changes(recording, table) if change.columns.get("b") == b"again"]
    assert len(again) == 1
    assert last.columns == {}  # by then the log holds keys alone


def test_times_and_generations_move_together() -> None:
    recording = Recording.load("z_generation_edge")
    (table,) = recording.tables
    for change, moved in zip(
        expected_changes(recording, table), expected_changes(recording, table, keyspace="x", shift_ms=-7), strict=True
    ):
        assert moved.keyspace == "x"
        assert moved.timestamp_us == change.timestamp_us - 7000
        assert moved.generation_ms == change.generation_ms - 7
        assert moved.time[8:] == change.time[8:]


def test_groups_that_cassandra_can_not_hold_are_left_out_whole() -> None:
    recording = Recording.load("native_types")
    (table,) = recording.tables
    assert len(table.unloadable_times) == 4
    assert len(table.loadable_log) == len(table.log) - 4
    assert not table.unloadable_times & {change.time for change in expected_changes(recording, table)}


def test_a_step_that_is_not_understood_is_named() -> None:
    recording = Recording.load("ttl")
    with pytest.raises(CqlError, match=r"'DELETE FROM rec\.tt3 .*unconfigured table rec\.tt3"):
        carry_out(StatementServer("rec", is_current=False), recording.steps[-1])


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match="a recording of format 1; this code reads 2"):
        Recording.from_form({"v": 1})
