"""Puts a recording into a CQL server: tables, generations and log rows, as the very bytes that ScyllaDB sent."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from struct import Struct
from typing import Any, Final

from bridge.adapters.scylla import UNSET, CqlSession
from bridge.local.recorded.recording import RecordedTable, Recording
from bridge.local.simulator.cluster import clear_generations, publish_streams
from bridge.local.simulator.log_table import CdcOptions, log_ddl_of, quoted
from bridge.local.simulator.tables import create_keyspace, mark_log
from bridge.model.times import UnixMicros, UnixMillis, micros_of, timeuuid_of
from schemas.table_schema import LOG_TABLE_SUFFIX

_LONG: Final = Struct(">q")
_LOG_KEY_COLUMNS: Final = 3


def load(session: CqlSession, recording: Recording, *, keyspace: str | None = None, shift_ms: int = 0) -> None:
    """Create a recording's tables, replace the server's generations by its own, and write its log rows.

    Rows that Cassandra can't hold are left out (`RecordedTable.loadable_log`). Cells of the log get the write
    timestamp that the server gave them, and the log's TTL counts from now: so that an old recording is no older than
    its TTL for a reader either, shift its times.

    Args:
        session: the server, which understands ScyllaDB's system tables.
        recording: what to load.
        keyspace: a name of your own instead of the recorded one; its tables of the recorded names must not exist.
        shift_ms: added to every generation's timestamp and to every `cdc$time`; nothing else changes.

    Raises:
        RetriableError, BridgeError: as `CqlSession.execute`.
    """
    keyspace = keyspace or recording.keyspace
    create_keyspace(session, keyspace)
    for table in recording.tables:
        _create(session, recording, table, keyspace)
    clear_generations(session)
    for generation in recording.generations:
        publish_streams(session, UnixMillis(generation.start_ms + shift_ms), dict(generation.streams))
    for table in recording.tables:
        _write_log(session, table, keyspace, shift_ms)


def shifted(time: bytes, shift_ms: int) -> bytes:
    """A `cdc$time` moved by so many milliseconds; its low half stays."""
    return timeuuid_of(UnixMicros(micros_of(time) + shift_ms * 1000), time[8:])


def _create(session: CqlSession, recording: Recording, table: RecordedTable, keyspace: str) -> None:
    recorded = rf"^CREATE TABLE {re.escape(recording.keyspace)}\."
    # The name is replaced by a function, which takes a backslash in it for what it is.
    session.execute(re.sub(recorded, lambda _match: f"CREATE TABLE {quoted(keyspace)}.", table.ddl))
    log_table = table.name + LOG_TABLE_SUFFIX
    regulars = table.log_columns[_LOG_KEY_COLUMNS:]
    session.execute(log_ddl_of(keyspace, table.name, regulars, CdcOptions(ttl_s=table.ttl_s)))
    mark_log(session, keyspace, log_table)


def _write_log(session: CqlSession, table: RecordedTable, keyspace: str, shift_ms: int) -> None:
    regulars = [name for name, _type in table.log_columns[_LOG_KEY_COLUMNS:]]
    prepared = session.prepare(
        f"UPDATE {quoted(keyspace)}.{quoted(table.name + LOG_TABLE_SUFFIX)} "  # noqa: S608  # names are quoted
        f"USING TIMESTAMP ? AND TTL {table.ttl_s} SET {', '.join(f'{quoted(name)} = ?' for name in regulars)} "
        'WHERE "cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = ?'
    )

    def groups() -> Iterator[list[list[Any]]]:
        # Rows of one group stand together in a recording, and must become visible together.
        for (stream, time), rows in groupby(table.loadable_log, key=lambda row: (row[0], row[1])):
            assert time is not None
            moved = shifted(time, shift_ms)
            stamp = _LONG.pack(micros_of(moved))
            yield [
                [stamp, *(UNSET if cell is None else cell for cell in row[_LOG_KEY_COLUMNS:]), stream, moved, row[2]]
                for row in rows
            ]

    session.write_all(lambda rows=rows: session.write_batch(prepared, rows) for rows in groups())  # type: ignore[misc]
