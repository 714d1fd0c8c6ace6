"""A real server's log, put into the local one, comes back byte for byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import pack

import pytest

from bridge.adapters.scylla import CqlSession
from bridge.config import ScyllaSettings
from bridge.local.recorded.loader import lasting_rows, load, shifted
from bridge.local.recorded.recording import Recording, scenarios
from bridge.local.recorded.replay import Replay
from bridge.local.stack import LocalStack
from tests.integration.reading import raw_rows

pytestmark = pytest.mark.integration

SHIFT_MS = 12_345


@pytest.fixture(scope="module")
def session(local_stack: LocalStack) -> Iterator[CqlSession]:
    made = CqlSession.connect(ScyllaSettings(contact_points=local_stack.cql, consistency="ONE"))
    yield made
    made.close()


def by_name(row: Mapping[str, bytes | None]) -> str:
    return repr(sorted(row.items()))


@pytest.mark.parametrize("scenario", scenarios())
def test_a_recording_comes_back_with_its_very_bytes(session: CqlSession, scenario: str) -> None:
    """Every cell of every log row is what ScyllaDB sent, but for the shift of its time."""
    recording = Recording.load(scenario)
    keyspace = f"rec_{scenario}"
    load(session, recording, keyspace=keyspace, shift_ms=SHIFT_MS)
    replay = Replay.of(recording)
    for table in recording.tables:
        found = raw_rows(session, keyspace, f"{table.name}_scylla_cdc_log")
        names = {name for name, _type in table.log_columns} & found[0].keys()
        wanted = []
        for row in lasting_rows(recording, table, replay):
            time = row["cdc$time"]
            assert time is not None
            wanted.append({name: row.get(name) for name in names} | {"cdc$time": shifted(time, SHIFT_MS)})
        assert sorted(map(by_name, found)) == sorted(map(by_name, wanted))


def test_generations_are_published_as_recorded(session: CqlSession) -> None:
    """Both generations of a switch stand in the tables that readers see, shifted."""
    recording = Recording.load("z_generation_change")
    load(session, recording, keyspace="rec_generations", shift_ms=SHIFT_MS)
    starts = [generation.start_ms + SHIFT_MS for generation in recording.generations]
    timestamps = raw_rows(session, "system_distributed", "cdc_generation_timestamps")
    assert {row["time"] for row in timestamps} == {pack(">q", start) for start in starts}
    streams = raw_rows(session, "system_distributed", "cdc_streams_descriptions_v2")
    assert len(streams) == sum(len(generation.streams) for generation in recording.generations)
