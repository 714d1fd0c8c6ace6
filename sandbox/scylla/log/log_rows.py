"""Log rows and groups before they have a position in the log. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from bridge.model.times import UnixMicros
from sandbox.scylla.base.merging import Cell, CollectionState
from sandbox.scylla.base.ranges import RangeState
from sandbox.scylla.values.ordering import Key


class LogOperation(IntEnum):
    """Values of `cdc$operation` (spec section 2.1)."""

    PRE_IMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_DELETE_START_INCLUSIVE = 5
    RANGE_DELETE_START_EXCLUSIVE = 6
    RANGE_DELETE_END_INCLUSIVE = 7
    RANGE_DELETE_END_EXCLUSIVE = 8
    POST_IMAGE = 9
    ROW_EXPIRY = -3
    PARTITION_EXPIRY = -4


RANGE_STARTS = frozenset({LogOperation.RANGE_DELETE_START_INCLUSIVE, LogOperation.RANGE_DELETE_START_EXCLUSIVE})
"""Operations of the first row of a range delete; the row of its end follows."""


class CollectionDelta(NamedTuple):
    """The log columns of a multi-cell column in a delta row.

    Attributes:
        value: the column itself: the written elements; null if there are none.
        deleted: `cdc$deleted_`: whether the earlier content was deleted.
        deleted_elements: `cdc$deleted_elements_`: keys of the deleted elements; null if there are none.
    """

    value: bytes | None
    deleted: bool
    deleted_elements: bytes | None


LogCell = bytes | CollectionDelta | None
"""A cell of an atomic column or of an image (None sets `cdc$deleted_`), or a multi-cell column of a delta row."""

LogCells = Mapping[str, LogCell]


@dataclass(frozen=True, slots=True)
class LogRow:
    """One row of the log, without the columns that its group decides (stream, time, batch_seq_no, end_of_batch).

    Attributes:
        operation: `cdc$operation`.
        clustering: cells of all clustering columns, or of the first ones; the others are null.
        cells: base columns; an absent one was not changed.
        ttl_s: `cdc$ttl`; None for null.
    """

    operation: int
    clustering: Key = ()
    cells: LogCells = field(default_factory=dict)
    ttl_s: int | None = None


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Log rows of one stream and one `cdc$time`, in the order of `cdc$batch_seq_no`."""

    timestamp_us: UnixMicros
    rows: tuple[LogRow, ...]


Written = dict[str, Cell | CollectionState]
"""The writes of columns, by name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A delta row before its cells are serialized as the log shows them.

    Attributes:
        operation, clustering, ttl_s: as for `LogRow`, but a `ttl_s` of 0 for none.
        is_static: whether it belongs to the static row.
        cells: the writes.
        deleted_range: the range, in the first row of a range delete.
    """

    operation: int
    clustering: Key
    is_static: bool
    cells: Written = field(default_factory=dict)
    ttl_s: int = 0
    deleted_range: RangeState | None = None
