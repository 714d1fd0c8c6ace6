"""Which parts a Kafka record of a change has besides its value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordForm:
    """What a record has besides its value.

    Attributes:
        primary_key: whether the key holds the whole primary key; else the partition key alone.
        tombstones: whether a delete of all that a record key stands for is followed by a record without a value.
        operation, timestamp, table: which headers there are besides the position.
        dead_letters: whether what can't be carried becomes a dead letter; else it is raised.
    """

    primary_key: bool = False
    tombstones: bool = False
    operation: bool = False
    timestamp: bool = False
    table: bool = False
    dead_letters: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether records have a value, the partition key and their position, and that is all."""
        return not (self.primary_key or self.tombstones or self.operation or self.timestamp or self.table)
