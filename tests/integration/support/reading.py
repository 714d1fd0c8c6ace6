"""Reads whole tables as raw cells by plain CQL: what the simulator and the loader wrote, seen without their code."""

from __future__ import annotations

from sandbox.scylla.oracle import ExpectedChange
from sandbox.writing_session import WritingSession
from schemas.cql.table import TableSchema

Row = dict[str, bytes | None]


def raw_rows(session: WritingSession, keyspace: str, table: str) -> list[Row]:
    """Every row, cells as on the wire; partitions in the server's order, rows in clustering order."""
    select = session.prepare(f'SELECT * FROM "{keyspace}"."{table}"')
    found: list[Row] = []
    state: bytes | None = None
    while True:
        page = session.page(select, (), page_rows=5000, paging_state=state).result()
        found += [dict(zip(page.columns, row, strict=True)) for row in page.rows]
        state = page.paging_state
        if state is None:
            return found


def changes_of(row: Row, table: TableSchema) -> tuple[object, ...]:
    """A log row in the terms of the oracle, without the generation (which no log row names)."""

    def number(name: str) -> int | None:
        cell = row[name]
        return None if cell is None else int.from_bytes(cell, "big", signed=True)

    columns: dict[str, bytes | None] = {}
    for column in table.values:
        if row[column.name] is not None:
            columns[column.name] = row[column.name]
        elif row[f"cdc$deleted_{column.name}"] is not None:
            columns[column.name] = None
    return (
        tuple(row[column.name] for column in table.partition_key),
        tuple(row[column.name] for column in table.clustering),
        number("cdc$operation"),
        dict(sorted(columns.items())),
        number("cdc$ttl"),
        row["cdc$stream_id"],
        row["cdc$time"],
        number("cdc$batch_seq_no"),
        row["cdc$end_of_batch"] == b"\x01",
    )


def in_log_terms(change: ExpectedChange) -> tuple[object, ...]:
    """A change of the oracle in the same terms."""
    return (
        change.partition_key,
        change.clustering,
        change.operation,
        dict(sorted(change.columns.items())),
        change.ttl_s,
        change.stream_id,
        change.time,
        change.batch_seq_no,
        change.last_in_group,
    )
