"""The simulator, given the statements of a recorded ScyllaDB node, logs what that node logged."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from sandbox.recordings.expected import expected_changes
from sandbox.recordings.loader import lasting_rows
from sandbox.recordings.recording import Recording, scenarios
from sandbox.recordings.replay import Replay
from sandbox.scylla.log.log_table import log_columns
from tests.unit.sandbox.scylla.log_records import in_order, recorded_groups, simulated_groups

SCENARIOS = scenarios()


@cache
def recorded(scenario: str) -> tuple[Recording, Replay]:
    recording = Recording.load(scenario)
    return recording, Replay.of(recording)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_statements_are_logged_as_recorded(scenario: str) -> None:
    """Groups, their times, operations, keys, cells, flags, deleted elements, TTLs, numbers and marks."""
    recording, replay = recorded(scenario)
    differing = []
    for table in recording.tables:
        rows = table.rows
        for step, logged in zip(recording.steps, replay.logged, strict=True):
            mine = [entry for entry in logged if entry.table.name.name == table.name]
            found, wanted = (
                in_order(simulated_groups(mine)),
                in_order(recorded_groups([rows[number] for number in step.rows.get(table.name, ())])),
            )
            if found != wanted:
                differing.append((step.statements[0][0][:300], found, wanted))
    assert differing == []


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tables_become_what_was_recorded(scenario: str) -> None:
    """Columns of base and log after all schema statements."""
    recording, replay = recorded(scenario)
    for table in recording.tables:
        made = replay.tables[table.name].table_schema
        # The recordings don't say which clustering columns are descending.
        columns = tuple(replace(column, descending=False) for column in made.columns)
        assert replace(made, columns=columns) == table.table_schema(recording.keyspace)
        assert log_columns(made) == table.log_columns[3:]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_expected_changes_stand_where_the_rows_stood(scenario: str) -> None:
    """Streams, worked out from the generations, and times are those of the log's delta rows."""
    recording, replay = recorded(scenario)
    for table in recording.tables:
        places = {
            (row["cdc$stream_id"], row["cdc$time"], row["cdc$batch_seq_no"])
            for row in lasting_rows(recording, table, replay)
        }
        changes = expected_changes(recording, table, replay=replay)
        assert changes
        for change in changes:
            assert (change.stream_id, change.time, change.batch_seq_no.to_bytes(4, "big")) in places
