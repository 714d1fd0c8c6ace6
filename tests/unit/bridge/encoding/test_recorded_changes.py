"""Logs of real servers, group by group, lead to records of what the statements did."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest

from bridge.encoding.group_encoder import GroupEncoder
from bridge.encoding.grouping import groups
from bridge.model.log_rows import LogLayout
from sandbox.recordings.expected import expected_changes, knows_its_row
from sandbox.recordings.loader import lasting_rows
from sandbox.recordings.recording import Recording, scenarios
from sandbox.recordings.replay import Replay
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.codec import compile_reader
from schemas.options import OutputOptions, RecordForm
from schemas.table_codec import TableCodec
from tests.replica import frozen


def in_order(record: dict[str, Any]) -> object:
    return frozen(dict(sorted(record.items())))


@pytest.mark.parametrize("scenario", scenarios())
def test_recorded_groups_become_the_expected_records(scenario: str) -> None:
    """Every recorded table gives the expected records; a change whose key a rename removed becomes a dead letter."""
    recording = Recording.load(scenario)
    replay = Replay.of(recording)
    for recorded in recording.tables:
        simulated = replay.simulated_table(recorded.name, recording.keyspace)
        table, full = simulated.table_schema, simulated.options.images.wanted
        names = [name for name, _type in recorded.log_columns]
        keys = ([column.name for column in part] for part in (table.partition_key, table.clustering))
        layout = LogLayout.of(names, *keys)
        codec = TableCodec(table, names, OutputOptions(shape="full" if full else "delta"))
        truth = ExpectedRecords(table, full=full)
        encoder = GroupEncoder(codec, layout, (table.keyspace, table.name), RecordForm(dead_letters=True))
        read_key, read = (compile_reader(json.loads(text)) for text in (codec.key_avro_schema, codec.value_avro_schema))
        changes = {
            one.stream_id + one.time + one.batch_seq_no.to_bytes(4, "big"): one
            for one in expected_changes(recording, recorded, replay=replay)
        }
        lost = {position for position, change in changes.items() if not knows_its_row(change, table)}
        dead = set()
        lasting = lasting_rows(recording, recorded, replay)
        rows = [tuple(row.get(name) for name in names) for row in lasting]
        # The rows of a group are adjacent and in order.
        assert len(list(groupby(rows, key=lambda row: row[:2]))) == len({row[:2] for row in rows})
        for group in groups(rows, layout):
            place = group.stream_id + group.timeuuid
            generation_ms = next(one.generation_ms for at, one in changes.items() if at.startswith(place))
            for encoded in encoder.encode(group, generation_ms):
                assert encoded.value is not None
                change = changes.pop(encoded.position)
                if encoded.is_dead_letter:
                    dead.add(encoded.position)
                    continue
                assert in_order(read_key(encoded.key)) == in_order(truth.key(change))
                assert in_order(read(encoded.value)) == in_order(truth.value(change))
        assert (dead, changes) == (lost, {})
