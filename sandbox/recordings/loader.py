"""Loads a recording into a CQL server: tables, generations and log rows, with the bytes that ScyllaDB sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from struct import Struct
from typing import Any, Final

from bridge.model.times import UnixMicros, UnixMillis, micros_of, timeuuid_of
from sandbox.recordings.recording import LogRow, RecordedTable, Recording
from sandbox.recordings.replay import Replay
from sandbox.scylla.cluster.simulated_cluster import clear_generations, publish_streams
from sandbox.scylla.log.log_table import log_columns
from sandbox.scylla.tables import SimulatedTable
from sandbox.writing_session import UNSET, WritingSession
from schemas.cql.names import quoted
from schemas.log.columns import deleted_elements, deleted_flag

_LONG: Final = Struct(">q")


def load(
    session: WritingSession,
    recording: Recording,
    *,
    keyspace: str | None = None,
    shift_ms: int = 0,
    ttl_s: int | None = None,
) -> None:
    """Create a recording's tables, replace the server's generations, and write the recorded log rows.

    Tables have their last schema, so dropped columns are missing, as on the real server. Rows that Cassandra cannot
    hold are left out (`RecordedTable.loadable_log`). Log cells have their recorded write timestamps, and the log's TTL
    counts from now. Shift the times of an old recording, so that a reader does not take it for expired.

    Args:
        session: the server, which understands ScyllaDB's system tables.
        recording: what to load.
        keyspace: a name of your own instead of the recorded one; its tables of the recorded names must not exist.
        shift_ms: added to every generation's timestamp and to every `cdc$time`; nothing else changes.
        ttl_s: another TTL for the logs; some were recorded with one of seconds.

    Raises:
        RetriableError, BridgeError: as `CqlSession.execute`.
    """
    keyspace = keyspace or recording.keyspace
    replay = Replay.of(recording)
    tables = {table.name: replay.simulated_table(table.name, keyspace) for table in recording.tables}
    if ttl_s is not None:
        tables = {name: replace(table, options=replace(table.options, ttl_s=ttl_s)) for name, table in tables.items()}
    for simulated in tables.values():
        simulated.create(session)
    clear_generations(session)
    for generation in recording.generations:
        publish_streams(session, UnixMillis(generation.start_ms + shift_ms), dict(generation.streams))
    for table in recording.tables:
        _write_log(session, tables[table.name], lasting_rows(recording, table, replay), shift_ms)


def lasting_rows(recording: Recording, table: RecordedTable, replay: Replay) -> list[LogRow]:
    """The loadable log rows of a table without the cells of columns that were dropped or renamed after them."""
    odd = table.unloadable_times
    rows = table.rows
    found: list[LogRow] = []
    for step, forgotten in zip(recording.steps, replay.forgotten, strict=True):
        gone = forgotten.get(table.name, frozenset())
        gone |= {log_name(name) for log_name in (deleted_flag, deleted_elements) for name in gone}
        for number in step.rows.get(table.name, ()):
            row = rows[number]
            if row["cdc$time"] not in odd:
                found.append({name: cell for name, cell in row.items() if name not in gone})
    return found


def shifted(time: bytes, shift_ms: int) -> bytes:
    """A `cdc$time` moved by so many milliseconds; its low half stays."""
    return timeuuid_of(UnixMicros(micros_of(time) + shift_ms * 1000), time[8:])


def _write_log(session: WritingSession, table: SimulatedTable, rows: list[LogRow], shift_ms: int) -> None:
    schema = table.table_schema
    names = [name for name, _type in log_columns(schema)]
    prepared = session.prepare(
        f"UPDATE {quoted(schema.keyspace)}.{quoted(schema.log_table)} "  # noqa: S608  # names are quoted
        f"USING TIMESTAMP ? AND TTL {table.options.ttl_s} SET {', '.join(f'{quoted(name)} = ?' for name in names)} "
        'WHERE "cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = ?'
    )

    def groups() -> Iterator[list[list[Any]]]:
        # Rows of one group stand together in a recording, and must become visible together.
        for (stream, time), group in groupby(rows, key=lambda row: (row["cdc$stream_id"], row["cdc$time"])):
            assert time is not None
            moved = shifted(time, shift_ms)
            stamp = _LONG.pack(micros_of(moved))
            yield [
                [stamp, *(_cell(row, name) for name in names), stream, moved, row["cdc$batch_seq_no"]] for row in group
            ]

    session.write_all(lambda rows=rows: session.write_batch(prepared, rows) for rows in groups())  # type: ignore[misc]


def _cell(row: LogRow, name: str) -> Any:
    cell = row.get(name)
    return UNSET if cell is None else cell
