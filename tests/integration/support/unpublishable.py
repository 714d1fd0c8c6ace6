"""Log rows that ScyllaDB never writes."""

from __future__ import annotations

from collections.abc import Mapping

from sandbox.writing_session import WritingSession


def contradiction(
    session: WritingSession, table: str, stream_id: bytes, time: bytes, key: Mapping[str, bytes], column: str
) -> None:
    """Write a group of one row: an update with a value for a column that it says was deleted.

    Args:
        session: where to write.
        table: keyspace and name of the base table.
        stream_id: its stream.
        time: its `cdc$time`.
        key: cells of the primary key.
        column: one of type text.
    """
    cells = {
        "cdc$stream_id": stream_id,
        "cdc$time": time,
        "cdc$batch_seq_no": bytes(4),
        "cdc$operation": b"\x01",
        "cdc$end_of_batch": b"\x01",
        **key,
        column: b"x",
        f"cdc$deleted_{column}": b"\x01",
    }
    log_row(session, table, cells)


def log_row(session: WritingSession, table: str, cells: Mapping[str, bytes]) -> None:
    """Write one row of a table's log as it is."""
    names, marks = ", ".join(f'"{name}"' for name in cells), ", ".join("?" * len(cells))
    insert = session.prepare(f"INSERT INTO {table}_scylla_cdc_log ({names}) VALUES ({marks})")
    session.write_raw(insert, list(cells.values())).result(60)
