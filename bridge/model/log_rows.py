"""Log rows, groups and changes, as raw cells. Pure.

A log row is a tuple of cells (bytes or None) in the order of the columns that were read. `LogLayout` holds the index of
each CDC and key column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from bridge.errors import BridgeError, UnpublishableError
from schemas.cql.types import CqlType
from schemas.log.columns import BATCH_SEQ_NO, END_OF_BATCH, OPERATION, STREAM_ID, TIME

Cells = tuple[bytes | None, ...]
"""A row as the CQL wire has it: the bytes of each cell, or None for null."""

_EVERYWHERE: Final = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a result.

    Attributes:
        columns: names in the order of the cells.
        rows: raw cells, in the server's order.
        paging_state: the server's token for the next page; None for the last page.
        types: types of the columns from the page's metadata. They lack `frozen`; user-defined types have their fields.
    """

    columns: tuple[str, ...]
    rows: Sequence[Cells]
    paging_state: bytes | None
    types: tuple[CqlType, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLayout:
    """The indices of the CDC columns and of the base table's primary key in a log row.

    Attributes:
        columns: the columns in the order of the cells.
        stream_id: index of `cdc$stream_id`.
        time: index of `cdc$time`.
        batch_seq_no: index of `cdc$batch_seq_no`.
        operation: index of `cdc$operation`.
        end_of_batch: index of `cdc$end_of_batch`; None for logs older than ScyllaDB 4.3, which lack the column.
        partition_key: indices of the base table's partition key columns.
        clustering: indices of its clustering columns.
        types: types of the columns, as in `Page.types`; a page that differs in columns or types needs another layout.
        table: the base table as `keyspace.table`, for messages only.
    """

    columns: tuple[str, ...]
    stream_id: int
    time: int
    batch_seq_no: int
    operation: int
    end_of_batch: int | None
    partition_key: tuple[int, ...]
    clustering: tuple[int, ...]
    types: tuple[CqlType, ...] = ()
    table: str = ""

    @classmethod
    def of(cls, columns: Sequence[str], partition_key: Sequence[str], clustering: Sequence[str] = ()) -> Self:
        """Return the layout of a result.

        Args:
            columns: names of the result's columns.
            partition_key: names of the base table's partition key columns, in key order.
            clustering: names of its clustering columns, in key order.

        Raises:
            BridgeError: a key column is missing, or a column that every log has.
        """
        at = {name: index for index, name in enumerate(columns)}
        missing = [name for name in (*_EVERYWHERE, *partition_key, *clustering) if name not in at]
        if missing:
            raise BridgeError(f"not a CDC log: it has no {', '.join(missing)} among {', '.join(columns)}")
        return cls(
            tuple(columns),
            at[STREAM_ID],
            at[TIME],
            at[BATCH_SEQ_NO],
            at[OPERATION],
            at.get(END_OF_BATCH),
            tuple(at[name] for name in partition_key),
            tuple(at[name] for name in clustering),
        )


@dataclass(frozen=True, slots=True)
class Change:
    """A change, for which a consumer gets one record: a delta row, its images and the rows joined to it.

    Attributes:
        operation: the value of `cdc$operation`.
        row: the cells of the delta; for a range delete, of its start.
        last_in_group: whether this is the last change of its group.
        range_end: for a range delete, the cells of its end.
        more: further deltas of the same base row in the group, if the grouping joins them.
        before: cells of the pre-image, if the group has one for the row.
        after: cells of the post-image, likewise.
    """

    operation: int
    row: Cells
    last_in_group: bool
    range_end: Cells | None = None
    more: tuple[Cells, ...] = ()
    before: Cells | None = None
    after: Cells | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """All changes of one stream and `cdc$time`, in `cdc$batch_seq_no` order, published whole or not at all.

    Attributes:
        stream_id: 16 bytes.
        timeuuid: `cdc$time`, 16 bytes.
        changes: the changes; none if `failure` is given.
        rows: the log rows of the group.
        failure: why the group can't be published.
    """

    stream_id: bytes
    timeuuid: bytes
    changes: tuple[Change, ...]
    rows: Sequence[Cells]
    failure: UnpublishableError | None = None
