"""What the Kafka record of a change holds besides its value. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What the record of a change holds besides its value.

    Attributes:
        primary_key: whether the record key is the whole primary key; otherwise it is the partition key.
        tombstones: whether a tombstone follows a delete that leaves nothing under the record key.
        operation: whether records have the header `cdc.operation`.
        timestamp: whether records have the header `cdc.timestamp`.
        table: whether records have the header `cdc.table`.
        dead_letters: whether a change that can't be encoded becomes a dead letter; otherwise the encoder raises.
    """

    primary_key: bool = False
    tombstones: bool = False
    operation: bool = False
    timestamp: bool = False
    table: bool = False
    dead_letters: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether records hold only the value, the partition key and the position."""
        return not (self.primary_key or self.tombstones or self.operation or self.timestamp or self.table)
