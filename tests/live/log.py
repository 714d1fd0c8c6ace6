"""The log of a table as plain CQL shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests.live.server import Server
from tests.live.tables import Table

_IMAGES: Final = (0, 9)
_ENDS: Final = (7, 8)
_TICKS_AT_1970: Final = 0x01B21DD213814000


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a change."""

    stream: bytes
    time: bytes
    batch_seq_no: int

    @property
    def written_us(self) -> int:
        """The write timestamp in us since 1970."""
        return (UUID(bytes=self.time).time - _TICKS_AT_1970) // 10

    @property
    def order(self) -> tuple[int, bytes, int]:
        """What ascends for the changes of a key. The server compares the last 8 bytes as signed numbers."""
        return self.written_us, bytes(byte ^ 0x80 for byte in self.time[8:]), self.batch_seq_no

    def __str__(self) -> str:
        return f"{self.written_us} us, stream {self.stream.hex()}, time {self.time.hex()}, {self.batch_seq_no}"


@dataclass(frozen=True, slots=True)
class LogChange:
    """A change of the log: what must have one record.

    Attributes:
        key: the partition key in the form of `cql_types`.
        operation: number of the operation; of a range delete, that of its start.
    """

    key: tuple[Any, ...]
    operation: int


def changes_of(table: Table, rows: Iterable[Mapping[str, Any]]) -> dict[Position, LogChange]:
    """The changes of log rows. The two rows of a range delete are one change, with the position of the first."""
    found = {}
    for row in rows:
        operation = row["cdc$operation"]
        if operation in _IMAGES or operation in _ENDS:
            continue
        position = Position(row["cdc$stream_id"], row["cdc$time"].bytes, row["cdc$batch_seq_no"])
        key = tuple(one.type.of_driver(row[one.name]) for one in table.partition)
        found[position] = LogChange(key, operation)
    return found


def read_log(server: Server, table: Table) -> tuple[int, dict[Position, LogChange]]:
    """Read the whole log: the number of its rows, and its changes."""
    key = ", ".join(one.quoted for one in table.partition)
    rows = server.rows(
        f'SELECT "cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", {key} '
        f"FROM {table.keyspace}.{table.name}_scylla_cdc_log"
    )
    return len(rows), changes_of(table, rows)
