"""Log rows as the server's SELECT shows them: cells by column name, null ones left out."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.model.times import UnixMicros, micros_of
from sandbox.cql.catalog import Table
from sandbox.cql.server import Logged
from sandbox.recordings.recording import LogRow as RecordedRow
from sandbox.scylla.log.log_rows import CollectionDelta, LogGroup, LogOperation, LogRow
from sandbox.scylla.values.ordering import Key

TRUE = b"\x01"
IMAGES = (LogOperation.PRE_IMAGE, LogOperation.POST_IMAGE)

Record = dict[str, bytes]
Group = tuple[UnixMicros, tuple[Record, ...]]
"""The microsecond of a group's `cdc$time`, and its rows without stream and time."""


def records_of(logged: Logged) -> list[list[Record]]:
    """Of each group the rows."""
    return [_group(logged.table, logged.partition_key, group) for group in logged.groups]


def _group(table: Table, partition_key: Key, group: LogGroup) -> list[Record]:
    last = len(group.rows) - 1
    records = [_record(table, partition_key, row) for row in group.rows]
    for number, record in enumerate(records):
        record["cdc$batch_seq_no"] = number.to_bytes(4, "big")
        if number == last:
            record["cdc$end_of_batch"] = TRUE
    return records


def _record(table: Table, partition_key: Key, row: LogRow) -> Record:
    schema = table.table_schema
    record = {"cdc$operation": int(row.operation).to_bytes(1, "big", signed=True)}
    if row.ttl_s is not None:
        record["cdc$ttl"] = row.ttl_s.to_bytes(8, "big")
    record.update(zip((column.name for column in schema.partition_key), partition_key, strict=True))
    record.update(zip((column.name for column in schema.clustering), row.clustering, strict=False))
    if table.options.delta == "keys" and row.operation not in IMAGES:
        return record
    for name, cell in row.cells.items():
        if cell is None:
            record[f"cdc$deleted_{name}"] = TRUE
        elif isinstance(cell, CollectionDelta):
            record.update(_delta(name, cell))
        else:
            record[name] = cell
    return record


def _delta(name: str, cell: CollectionDelta) -> Record:
    found = {} if cell.value is None else {name: cell.value}
    if cell.deleted:
        found[f"cdc$deleted_{name}"] = TRUE
    if cell.deleted_elements is not None:
        found[f"cdc$deleted_elements_{name}"] = cell.deleted_elements
    return found


def simulated_groups(entries: Iterable[Logged]) -> list[Group]:
    """The groups that the simulator logs."""
    return [
        (group.timestamp_us, tuple(records))
        for entry in entries
        for group, records in zip(entry.groups, records_of(entry), strict=True)
    ]


def recorded_groups(rows: Iterable[RecordedRow]) -> list[Group]:
    """The groups of a real server's rows."""
    groups: dict[bytes, list[Record]] = {}
    for one in rows:
        row = {name: cell for name, cell in one.items() if cell is not None}
        stream, time = row.pop("cdc$stream_id"), row.pop("cdc$time")
        groups.setdefault(time + stream, []).append(row)
    return [
        (micros_of(place[:16]), tuple(sorted(rows, key=lambda row: row["cdc$batch_seq_no"])))
        for place, rows in groups.items()
    ]


def in_order(groups: list[Group]) -> list[Group]:
    """Groups of one microsecond have no order of their own."""
    return groups if len(groups) < 2 else sorted(groups, key=order_of)


def order_of(group: Group) -> tuple[UnixMicros, str]:
    """Sorts groups by their time, those of one time by their content."""
    return group[0], repr(sorted(group[1][0].items()))
