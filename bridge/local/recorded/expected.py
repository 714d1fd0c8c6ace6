"""The changes that a recording holds, worked out from its rows alone: no code of the bridge's reader is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from bridge.local.recorded.recording import RecordedGeneration, RecordedTable, Recording
from bridge.local.simulator.oracle import ExpectedChange
from bridge.model.times import UnixMicros, UnixMillis

_GREGORIAN_TICKS: Final = 0x01B21DD213814000
_TRUE: Final = b"\x01"

Row = Mapping[str, bytes | None]


def expected_changes(
    recording: Recording, table: RecordedTable, *, keyspace: str | None = None, shift_ms: int = 0
) -> list[ExpectedChange]:
    """Every loadable log row as a change, images and range deletes included, in the order in which they appeared.

    Args:
        recording: the scenario.
        table: one of its tables.
        keyspace: as given to `loader.load`.
        shift_ms: as given to `loader.load`.

    Raises:
        ValueError: the table has collections, whose log columns this form can't hold.
    """
    if table.has_collections:
        raise ValueError(f"{recording.scenario}: table {table.name} has collections")
    names = [name for name, _type in table.log_columns]
    rows = [dict(zip(names, cells, strict=True)) for cells in table.loadable_log]
    return [_change(table, row, keyspace or recording.keyspace, recording.generations, shift_ms * 1000) for row in rows]


def _change(
    table: RecordedTable, row: Row, keyspace: str, generations: Sequence[RecordedGeneration], shift_us: int
) -> ExpectedChange:
    recorded = UUID(bytes=_bytes(row, "cdc$time"))
    recorded_us = (recorded.time - _GREGORIAN_TICKS) // 10
    ttl = row["cdc$ttl"]
    generation = [entry for entry in generations if entry.start_ms * 1000 <= recorded_us][-1]
    return ExpectedChange(
        keyspace,
        table.name,
        tuple(_bytes(row, name) for name in _names(table, "partition_key")),
        tuple(row[name] for name in _names(table, "clustering")),
        int.from_bytes(_bytes(row, "cdc$operation"), "big", signed=True),
        _values(table, row),
        None if ttl is None else int.from_bytes(ttl, "big"),
        _bytes(row, "cdc$stream_id"),
        _moved(recorded, shift_us),
        UnixMicros(recorded_us + shift_us),
        int.from_bytes(_bytes(row, "cdc$batch_seq_no"), "big"),
        row["cdc$end_of_batch"] == _TRUE,
        UnixMillis(generation.start_ms + shift_us // 1000),
    )


def _values(table: RecordedTable, row: Row) -> dict[str, bytes | None]:
    values: dict[str, bytes | None] = {}
    for name, _type, kind, _position in table.columns:
        if kind not in ("static", "regular"):
            continue
        if row[name] is not None:
            values[name] = row[name]
        elif row[f"cdc$deleted_{name}"] == _TRUE:
            values[name] = None
    return values


def _names(table: RecordedTable, kind: str) -> list[str]:
    columns = (column for column in table.columns if column[2] == kind)
    return [column[0] for column in sorted(columns, key=lambda column: column[3])]


def _bytes(row: Row, name: str) -> bytes:
    cell = row[name]
    if cell is None:
        raise ValueError(f"a log row without {name}")
    return cell


def _moved(recorded: UUID, shift_us: int) -> bytes:
    ticks = recorded.time + shift_us * 10
    fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000)
    low, middle, high = fields
    return UUID(int=low << 96 | middle << 80 | high << 64 | recorded.int & ((1 << 64) - 1)).bytes
