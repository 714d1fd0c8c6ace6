"""A group of log rows with its place in the log, as the changes that a reader must see. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from bridge.local.simulator.log_groups import LogGroup
from bridge.local.simulator.oracle import ExpectedChange
from bridge.local.simulator.ordering import Key
from bridge.model.times import UnixMillis
from schemas.table_schema import TableSchema


class Place(NamedTuple):
    """Where a group stands.

    Attributes:
        partition_key: of the base partition.
        stream_id: 16 bytes.
        time: `cdc$time`, 16 bytes.
        generation_ms: the generation of the stream.
    """

    partition_key: Key
    stream_id: bytes
    time: bytes
    generation_ms: UnixMillis


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """What of a table stands in every change.

    Attributes:
        keyspace, name: of the base table.
        no_clustering: a null for each clustering column.
        keys_only: whether the log leaves out values and flags (`delta: 'keys'`).
    """

    keyspace: str
    name: str
    no_clustering: tuple[None, ...]
    keys_only: bool

    @classmethod
    def of(cls, table_schema: TableSchema, *, keys_only: bool) -> CapturedTable:
        """The same of a table's schema."""
        no_clustering = (None,) * len(table_schema.clustering)
        return cls(table_schema.keyspace, table_schema.name, no_clustering, keys_only)


def expected_changes(table: CapturedTable, group: LogGroup, place: Place) -> list[ExpectedChange]:
    """The group's rows as a reader must see them."""
    last = len(group.rows) - 1
    return [
        ExpectedChange(
            table.keyspace,
            table.name,
            place.partition_key,
            row.clustering or table.no_clustering,
            int(row.operation),
            {} if table.keys_only else row.cells,
            row.ttl_s,
            place.stream_id,
            place.time,
            group.timestamp_us,
            number,
            number == last,
            place.generation_ms,
        )
        for number, row in enumerate(group.rows)
    ]
