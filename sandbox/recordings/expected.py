"""Derives the changes of a recording's statements by the simulator's rules, not from the log rows.

Only the random low half of each `cdc$time` comes from the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.times import UnixMicros, UnixMillis, micros_of
from sandbox.cql.server import Logged
from sandbox.recordings.loader import shifted
from sandbox.recordings.recording import LogRow, RecordedGeneration, RecordedTable, Recording
from sandbox.recordings.replay import Replay
from sandbox.scylla.cluster.topology import StreamMap
from sandbox.scylla.expected_changes import CapturedTable, Place
from sandbox.scylla.expected_changes import expected_changes as placed_changes
from sandbox.scylla.log.log_rows import LogGroup
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.values.ordering import Key
from schemas.cql.table import TableSchema

_IGNORE_MSB: Final = 12
_OF_ROWS: Final = frozenset({1, 2, 3, -3})
T = TypeVar("T")


def expected_changes(
    recording: Recording,
    table: RecordedTable,
    *,
    keyspace: str | None = None,
    shift_ms: int = 0,
    replay: Replay | None = None,
) -> list[ExpectedChange]:
    """Every change of the loadable log, in the order of the statements.

    Args:
        recording: the scenario.
        table: one of its tables.
        keyspace: as given to `loader.load`.
        shift_ms: as given to `loader.load`.
        replay: of the recording, where it is at hand; else it is made.

    Raises:
        CqlError: a statement is not understood.
        ValueError: the rules log a group that the recording does not have.
    """
    replay = replay or Replay.of(recording)
    final = replace(replay.tables[table.name].table_schema, keyspace=keyspace or recording.keyspace)
    odd, rows = table.unloadable_times, table.rows
    maps = [_stream_map(generation) for generation in recording.generations]
    changes: list[ExpectedChange] = []
    for step, logged, forgotten in zip(recording.steps, replay.logged, replay.forgotten, strict=True):
        mine = [entry for entry in logged if entry.table.name.name == table.name]
        if not mine:
            continue
        times = _times(mine[0].table.table_schema, [rows[number] for number in step.rows.get(table.name, ())])
        for entry in mine:
            for group in entry.groups:
                time = times.get((entry.partition_key, group.timestamp_us))
                if time is None:
                    raise ValueError(
                        f"{recording.scenario}: the rules log a group of {table.name} at {group.timestamp_us} "
                        f"for {step.statements[0][0][:100]!r}, the server did not"
                    )
                if time not in odd:
                    gone = forgotten.get(table.name, frozenset())
                    changes += _changes(final, entry, group, time, maps, shift_ms, gone)
    return changes


def knows_its_row(change: ExpectedChange, table: TableSchema) -> bool:
    """Whether the log still says which row a change was of: a key column that is renamed is null in earlier rows."""
    is_static = change.operation == 1 and bool(table.statics) and all(cell is None for cell in change.clustering)
    return is_static or change.operation not in _OF_ROWS or None not in change.clustering


def _changes(
    final: TableSchema,
    entry: Logged,
    group: LogGroup,
    time: bytes,
    maps: Sequence[StreamMap],
    shift_ms: int,
    gone: frozenset[str],
) -> list[ExpectedChange]:
    streams = [entry for entry in maps if entry.start_ms * 1000 <= group.timestamp_us][-1]
    stream = streams.stream_for(murmur3_token(partition_key_bytes(entry.partition_key)))
    generation_ms = UnixMillis(streams.start_ms + shift_ms)
    place = Place(entry.partition_key, stream.raw, shifted(time, shift_ms), generation_ms)
    moved = LogGroup(UnixMicros(group.timestamp_us + shift_ms * 1000), group.rows)
    captured = CapturedTable.of(final, keys_only=entry.table.options.delta == "keys")
    made = placed_changes(captured, moved, place)
    return [_without(change, entry.table.table_schema, gone) for change in made] if gone else made


def _without(change: ExpectedChange, then: TableSchema, gone: frozenset[str]) -> ExpectedChange:
    """The change without what the log's columns that were dropped or renamed later said."""

    def clustering(cells: tuple[bytes | None, ...]) -> tuple[bytes | None, ...]:
        return tuple(None if column.name in gone else cell for column, cell in zip(then.clustering, cells, strict=True))

    def kept(columns: Mapping[str, T]) -> dict[str, T]:
        return {name: cell for name, cell in columns.items() if name not in gone}

    end = change.range_end
    return change._replace(
        clustering=clustering(change.clustering),
        columns=kept(change.columns),
        range_end=None if end is None else end._replace(clustering=clustering(end.clustering)),
        before=None if change.before is None else kept(change.before),
        after=None if change.after is None else kept(change.after),
    )


def _times(then: TableSchema, rows: Sequence[LogRow]) -> dict[tuple[Key, UnixMicros], bytes]:
    """`cdc$time` of each group of a step, by partition key and microsecond."""
    times = {}
    for row in rows:
        time = row["cdc$time"] or b""
        key = tuple(row[column.name] or b"" for column in then.partition_key)
        times[key, micros_of(time)] = time
    return times


def _stream_map(generation: RecordedGeneration) -> StreamMap:
    range_ends, streams = zip(*generation.streams, strict=True)
    return StreamMap(generation.start_ms, range_ends, streams, _IGNORE_MSB)
