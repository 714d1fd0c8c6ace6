"""Log rows, groups and changes (spec section 2), as raw cells.

A log row is the tuple of its cells' bytes in the order of the columns that were read; `LogLayout` says which cell is
where. Nothing is decoded here that does not decide how rows belong together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from bridge.errors import BridgeError, PoisonError
from schemas.cql.types import CqlType
from schemas.log.columns import BATCH_SEQ_NO, END_OF_BATCH, OPERATION, STREAM_ID, TIME

Cells = tuple[bytes | None, ...]
"""One row as the wire has it: a cell's bytes, or None for null."""

_EVERYWHERE: Final = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a result.

    Attributes:
        columns: names in the order of the cells.
        rows: raw cells, in the server's order.
        paging_state: what to ask the next page with; None after the last page.
        types: of the columns, as the page itself says: nothing is frozen in them, and user-defined types have their
            fields.
    """

    columns: tuple[str, ...]
    rows: Sequence[Cells]
    paging_state: bytes | None
    types: tuple[CqlType, ...] = ()


@dataclass(frozen=True, slots=True)
class LogLayout:
    """Where the CDC columns and the base table's primary key lie among the cells of a log row.

    Attributes:
        columns: the columns in the order of the cells.
        end_of_batch: None for logs from before 4.3, which do not have the column.
        partition_key: key columns of the base table.
        clustering: its clustering columns; with the partition key they say which delta an image belongs to.
        types: of the columns, as `Page.types`: with `columns` what a page must match.
        table: the base table, as in `keyspace.table`; for messages alone.
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
        """The layout of a result's columns, given the names of the base table's key columns by position.

        Raises:
            BridgeError: a column that every log has is missing, or one of the key.
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
    """What a consumer gets one record for: a delta row with what belongs to it.

    Attributes:
        operation: the number in `cdc$operation`.
        row: the delta's cells; of a range delete its start.
        last_in_group: whether no change of the same group follows.
        range_end: the end of a range delete.
        more: further deltas of the same row in the group, where they are joined.
        before: the row's pre-image in the group, if there is one.
        after: its post-image.
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
    """All changes of one (stream, `cdc$time`), in `cdc$batch_seq_no` order; delivered whole or not at all.

    Attributes:
        rows: the log rows that it was made of.
        poison: why it can't be carried; it has no changes then.
    """

    stream_id: bytes
    timeuuid: bytes
    changes: tuple[Change, ...]
    rows: Sequence[Cells]
    poison: PoisonError | None = None
