"""Writes to the base table as values: the changes of one CQL request to one partition. Pure.

All values are serialized cells: the simulator needs no Python values. Columns of a
multi-cell type (a non-frozen list, set, map or UDT) are written element by element, as `CollectionWrite` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bridge.model.times import UnixMicros
from sandbox.scylla.values.ordering import Key

Clearing = Literal["no", "overwrite", "delete"]


@dataclass(frozen=True, slots=True)
class CollectionWrite:
    """What a statement does to a multi-cell column.

    Attributes:
        clear: whether the present content is deleted: "overwrite" for `= value` (also `= null` and INSERT), whose
            tombstone is stored at T-1; "delete" for `DELETE column`, whose tombstone is stored at T (spec section 2.4).
        put: element keys with their values: (element, b"") of a set, (key, value) of a map, (timeuuid, value) of a
            list, (index as smallint, value) of a UDT.
        remove: keys of the elements to delete; they need not exist.
    """

    clear: Clearing = "no"
    put: tuple[tuple[bytes, bytes], ...] = ()
    remove: tuple[bytes, ...] = ()


ColumnWrite = bytes | CollectionWrite | None
"""A column's new value. None sets null; for a multi-cell column this is an overwrite without elements."""

Cells = Mapping[str, ColumnWrite]
"""The written values by column name; an absent column is not changed."""


@dataclass(frozen=True, slots=True)
class Insert:
    """`INSERT`: writes cells and, where a clustering key is given (or none exists), the row's marker.

    Attributes:
        clustering: the clustering key; () in a table without one, and for an insert of static columns only.
        cells: regular and static columns.
        ttl_s: `USING TTL`; 0 for none.
        timestamp_us: `USING TIMESTAMP` of this statement; None for the mutation's timestamp.
    """

    clustering: Key
    cells: Cells = field(default_factory=dict)
    ttl_s: int = 0
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """`UPDATE`, or a `DELETE` of single columns: writes cells and no marker. Attributes as for `Insert`."""

    clustering: Key
    cells: Cells
    ttl_s: int = 0
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class RowDelete:
    """`DELETE` with the full clustering key; in a table without one, of the partition (spec section 2.2)."""

    clustering: Key
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class PartitionDelete:
    """`DELETE` of a whole partition."""

    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of clustering keys.

    Attributes:
        prefix: cells of the first clustering columns, at least one.
        inclusive: whether the rows with this prefix belong to the range.
    """

    prefix: tuple[bytes, ...]
    inclusive: bool


@dataclass(frozen=True, slots=True)
class RangeDelete:
    """`DELETE` of a clustering slice or prefix.

    When the mutation is merged, a range of one full key becomes the delete of that row, and an empty range is dropped
    (spec section 2.2).

    Attributes:
        start: the end that comes first in clustering order (the greater value if DESC); None for unbounded.
        end: the other one.
        timestamp_us: as for `Insert`.
    """

    start: Bound | None
    end: Bound | None
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class RowExpiry:
    """ScyllaDB's own delete of an expired row (operation -3); without a clustering key, of its partition."""

    clustering: Key
    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class PartitionExpiry:
    """ScyllaDB's own delete of a partition (operation -4)."""

    timestamp_us: UnixMicros | None = None


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """A log row with an unknown operation number. The base table does not change.

    It is the only operation of its mutation.

    Attributes:
        number: `cdc$operation`, -128 to 127.
        clustering: the clustering key, or a prefix of it.
        cells: as of an Update.
        ttl_s, timestamp_us: as for `Insert`.
    """

    number: int
    clustering: Key = ()
    cells: Cells = field(default_factory=dict)
    ttl_s: int = 0
    timestamp_us: UnixMicros | None = None


Operation = Insert | Update | RowDelete | PartitionDelete | RangeDelete | RowExpiry | PartitionExpiry | UnknownOperation


@dataclass(frozen=True, slots=True)
class Mutation:
    """The changes of one CQL request to one partition: a statement, or a batch's statements on that partition.

    Attributes:
        partition_key: cells of the partition key, by position.
        operations: the statements, in the order of the request (of equal timestamps the greater cell wins).
        timestamp_us: the request's timestamp; None for the coordinator's clock.
    """

    partition_key: Key
    operations: tuple[Operation, ...]
    timestamp_us: UnixMicros | None = None

    def __post_init__(self) -> None:
        """Refuse a request without a statement."""
        if not self.operations:
            raise ValueError("a mutation has at least one operation")
        if len(self.operations) > 1 and any(isinstance(operation, UnknownOperation) for operation in self.operations):
            raise ValueError("an unknown operation must be the only one of its mutation")
