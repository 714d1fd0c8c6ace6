"""Real servers' logs, put into the local one: they come back byte for byte, and go to Kafka as what was done there."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from struct import pack
from uuid import UUID

import pytest

from bridge.model.times import UnixMillis
from sandbox.recordings.expected import expected_changes, knows_its_row
from sandbox.recordings.loader import lasting_rows, load, shifted
from sandbox.recordings.recording import Recording, scenarios
from sandbox.recordings.replay import Replay
from sandbox.scylla.cluster.simulated_cluster import clear_generations, publish_streams
from sandbox.scylla.oracle import ExpectedChange, TableKey
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.write_times import system_clock_us
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.integration.support.reading import raw_rows
from tests.integration.support.running import BridgeJob

pytestmark = pytest.mark.integration

LAST_CHANGE_AGO_MS = 60_000
LOG_TTL_S = 86_400
"""Of every log: some were recorded with seconds."""

MOST_TABLES = int(os.environ.get("SCYLLA_CDC_BRIDGE_RECORDED_TABLES", "2"))
"""Of one recording that the job carries, for each costs a query; unit tests hold the changes of all of them."""


@dataclass(frozen=True)
class Loaded:
    """Every recording in the local server, in a keyspace of its own, its times moved to just now."""

    recordings: dict[str, tuple[Recording, Replay]]
    shift_ms: int

    @staticmethod
    def keyspace(scenario: str) -> str:
        return f"rec_{scenario}"

    @property
    def starts_ms(self) -> set[int]:
        return {one.start_ms + self.shift_ms for each, _replay in self.recordings.values() for one in each.generations}

    def tables(self) -> Iterator[tuple[SimulatedTable, list[ExpectedChange]]]:
        """The tables that are carried, with what must arrive of them."""
        for scenario, (recording, replay) in self.recordings.items():
            keyspace = self.keyspace(scenario)
            for table in recording.tables[-MOST_TABLES:]:
                expected = expected_changes(recording, table, keyspace=keyspace, shift_ms=self.shift_ms, replay=replay)
                yield replay.simulated_table(table.name, keyspace), expected


@pytest.fixture(scope="module")
def loaded(session: WritingSession) -> Loaded:
    recordings = {scenario: Recording.load(scenario) for scenario in scenarios()}
    with_replays = {scenario: (each, Replay.of(each)) for scenario, each in recordings.items()}
    last_us = max(step.now_us for recording in recordings.values() for step in recording.steps)
    shift_ms = (system_clock_us() - last_us) // 1000 - LAST_CHANGE_AGO_MS
    for scenario, recording in recordings.items():
        load(session, recording, keyspace=Loaded.keyspace(scenario), shift_ms=shift_ms, ttl_s=LOG_TTL_S)
    # Each load replaced the generations by its own; they were recorded on one cluster, which had them all.
    clear_generations(session)
    generations = {one.start_ms: one.streams for each in recordings.values() for one in each.generations}
    for start_ms, streams in sorted(generations.items()):
        publish_streams(session, UnixMillis(start_ms + shift_ms), dict(streams))
    return Loaded(with_replays, shift_ms)


def by_name(row: Mapping[str, bytes | None]) -> str:
    return repr(sorted(row.items()))


@pytest.mark.parametrize("scenario", scenarios())
def test_a_recording_comes_back_with_its_very_bytes(session: WritingSession, loaded: Loaded, scenario: str) -> None:
    """Every cell of every log row is what ScyllaDB sent, but for the shift of its time."""
    recording, replay = loaded.recordings[scenario]
    for table in recording.tables:
        found = raw_rows(session, loaded.keyspace(scenario), f"{table.name}_scylla_cdc_log")
        names = {name for name, _type in table.log_columns} & found[0].keys()
        wanted = []
        for row in lasting_rows(recording, table, replay):
            time = row["cdc$time"]
            assert time is not None
            wanted.append({name: row.get(name) for name in names} | {"cdc$time": shifted(time, loaded.shift_ms)})
        assert sorted(map(by_name, found)) == sorted(map(by_name, wanted))


def test_generations_are_published_as_recorded(session: WritingSession, loaded: Loaded) -> None:
    """All generations stand in the tables that readers see, shifted."""
    timestamps = raw_rows(session, "system_distributed", "cdc_generation_timestamps")
    assert {row["time"] for row in timestamps} == {pack(">q", start_ms) for start_ms in loaded.starts_ms}
    streams = raw_rows(session, "system_distributed", "cdc_streams_descriptions_v2")
    vnodes = {
        one.start_ms: len(one.streams) for each, _replay in loaded.recordings.values() for one in each.generations
    }
    assert len(streams) == sum(vnodes.values())


def generations_of_keys(changes: Iterable[ExpectedChange], keyspace: str) -> dict[TableKey, set[int]]:
    """Of each partition key of a keyspace, the generations that its changes were logged in."""
    found: dict[TableKey, set[int]] = defaultdict(set)
    for change in changes:
        if change.keyspace == keyspace:
            found[change.key].add(change.generation_ms)
    return found


def test_every_recording_is_carried_to_kafka(local_stack: LocalStack, loaded: Loaded, tmp_path: Path) -> None:
    """One job carries what real servers logged as what the statements did there; what is lost, as dead letters.

    Keys whose stream changed with the server's generation, too, in their order.
    """
    tables = list(loaded.tables())
    full = {table.table_schema.full_name for table, _changes in tables if table.options.images.wanted}
    configured = [
        {
            "name": f'"{schema.keyspace}"."{schema.name}"',
            "shape": "full" if schema.full_name in full else "delta",
        }
        for schema in (table.table_schema for table, _changes in tables)
    ]
    settings = {
        "spark": {"lanes": 1, "trigger_interval_ms": 0},
        "kafka": {"partitions": 2},
        "publishing": {"topic": "recorded.{keyspace}.{table}", "dead_letter_topic": "recorded.dead"},
    }
    with BridgeJob(local_stack, tmp_path, "recorded", configured, settings) as job:
        job.run_once(timeout_s=600)
        carried: list[ExpectedChange] = []
        lost: list[ExpectedChange] = []
        for table, changes in tables:
            for change in changes:
                (carried if knows_its_row(change, table.table_schema) else lost).append(change)
        schemas = [table.table_schema for table, _changes in tables]
        verdict = job.verdict(schemas, carried, full=full)
        letters = [json.loads(record.value or b"") for record in job.records_of("recorded.dead")]
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    assert verdict.arrived == len(carried) > 1_000
    crossed = {
        scenario: sum(len(starts) > 1 for starts in generations_of_keys(carried, Loaded.keyspace(scenario)).values())
        for scenario in ("z_generation_change", "z_generation_edge", "z_second_node_joins")
    }
    assert crossed == {"z_generation_change": 24, "z_generation_edge": 1, "z_second_node_joins": 24}
    found = [(letter["stream_id"], letter["time"], letter["batch_seq_no"]) for letter in letters]
    assert sorted(found) == sorted((one.stream_id.hex(), str(UUID(bytes=one.time)), one.batch_seq_no) for one in lost)
