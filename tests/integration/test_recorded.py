"""A real server's log, put into the local one, comes back byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack

import pytest

from bridge.adapters.scylla import CqlSession
from bridge.config import ScyllaSettings
from bridge.local.recorded.expected import expected_changes
from bridge.local.recorded.loader import load, shifted
from bridge.local.recorded.recording import Recording, scenarios
from bridge.local.simulator.oracle import ExpectedChange
from bridge.local.stack import LocalStack
from tests.integration.reading import changes_of, in_log_terms, raw_rows

pytestmark = pytest.mark.integration

SHIFT_MS = 12_345


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[CqlSession]:
    made = CqlSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    yield made
    made.close()


def by_place(change: ExpectedChange) -> tuple[bytes, bytes, int]:
    return (change.stream_id, change.time, change.batch_seq_no)


@pytest.mark.parametrize("scenario", scenarios())
def test_a_recording_comes_back_with_its_very_bytes(session: CqlSession, scenario: str) -> None:
    """Every cell of every log row is what ScyllaDB sent, but for the shift of its time."""
    recording = Recording.load(scenario)
    keyspace = f"rec_{scenario}"
    load(session, recording, keyspace=keyspace, shift_ms=SHIFT_MS)
    for table in recording.tables:
        names = [name for name, _type in table.log_columns]
        wanted = [dict(zip(names, row, strict=True)) for row in table.loadable_log]
        for row in wanted:
            time = row["cdc$time"]
            assert time is not None
            row["cdc$time"] = shifted(time, SHIFT_MS)
        found = raw_rows(session, keyspace, f"{table.name}_scylla_cdc_log")
        assert sorted(map(repr, ({name: row[name] for name in names} for row in found))) == sorted(map(repr, wanted))


@pytest.mark.parametrize("scenario", scenarios())
def test_expected_changes_are_what_the_log_holds(session: CqlSession, scenario: str) -> None:
    """The expectation, worked out from the recording, equals what plain CQL reads."""
    recording = Recording.load(scenario)
    keyspace = f"exp_{scenario}"
    load(session, recording, keyspace=keyspace, shift_ms=-SHIFT_MS)
    for table in recording.tables:
        if table.has_collections:
            continue
        schema = table.table_schema(keyspace)
        expected = expected_changes(recording, table, keyspace=keyspace, shift_ms=-SHIFT_MS)
        found = [changes_of(row, schema) for row in raw_rows(session, keyspace, schema.log_table)]
        assert sorted(map(repr, found)) == sorted(repr(in_log_terms(change)) for change in expected)


def test_generations_are_published_as_recorded(session: CqlSession) -> None:
    """Both generations of a switch stand in the tables that readers see, shifted."""
    recording = Recording.load("z_generation_change")
    load(session, recording, keyspace="rec_generations", shift_ms=SHIFT_MS)
    starts = [generation.start_ms + SHIFT_MS for generation in recording.generations]
    timestamps = raw_rows(session, "system_distributed", "cdc_generation_timestamps")
    assert {row["time"] for row in timestamps} == {pack(">q", start) for start in starts}
    streams = raw_rows(session, "system_distributed", "cdc_streams_descriptions_v2")
    assert len(streams) == sum(len(generation.streams) for generation in recording.generations)
