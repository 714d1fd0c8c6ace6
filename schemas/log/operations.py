"""What ``cdc$operation`` means (spec section 2.1), and which cells a row of it may have.

A row whose operation and cells contradict each other is refused: what it did would be a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schemas.avro.records import UNKNOWN_OPERATION
from schemas.errors import LostKeyError, OperationError

UPDATE: Final = 1
INSERT: Final = 2
STATIC_UPDATE: Final = "static_update"
RANGE_DELETE: Final = "range_delete"

OPERATION_SYMBOLS: Final[dict[int, str]] = {
    UPDATE: "update",
    INSERT: "insert",
    3: "row_delete",
    4: "partition_delete",
    5: RANGE_DELETE,
    6: RANGE_DELETE,
    -3: "row_expiry",
    -4: "partition_expiry",
}
"""``cdc$operation`` -> symbol of ``op`` (an update without clustering key is a `STATIC_UPDATE`; see also `kind_of`).

The server's set is open: any other number is "unknown", but for images and range ends, which are no changes.
"""

IMAGES: Final = frozenset({0, 9})
"""Pre- and post-image."""

RANGE_STARTS: Final[dict[int, bool]] = {5: True, 6: False}
"""Start of a range -> whether the bound is inside the range."""

RANGE_ENDS: Final[dict[int, bool]] = {7: True, 8: False}
"""End of a range -> whether the bound is inside the range."""

NO_CHANGES: Final = IMAGES | RANGE_ENDS.keys()
"""Operations of rows that only belong to a change."""

WITH_COLUMNS: Final = frozenset({"insert", "update", STATIC_UPDATE, UNKNOWN_OPERATION})
"""Symbols of changes that may touch columns."""

WITH_ROW: Final = frozenset({"insert", "update", "row_delete", "row_expiry"})
"""Symbols of changes of one row, which need the whole clustering key."""

WITHOUT_ROW: Final = frozenset({"partition_delete", "partition_expiry"})
"""Symbols of changes of a partition, which have no clustering key."""

_OF_ONLY_ROW: Final = {"partition_delete": "row_delete", "partition_expiry": "row_expiry"}


def kind_of(operation: int, *, has_clustering: bool) -> str:
    """Return the symbol of a number, before a row's cells are looked at.

    In a table without clustering columns a partition is one row, whose delete ScyllaDB logs as the partition's.
    """
    symbol = OPERATION_SYMBOLS.get(operation, UNKNOWN_OPERATION)
    return symbol if has_clustering else _OF_ONLY_ROW.get(symbol, symbol)


def symbol_of(operation: int, clustering: Sequence[bytes | None], *, has_statics: bool) -> str:
    """Return the symbol of ``op`` for a row.

    Args:
        operation: the row's ``cdc$operation``.
        clustering: the row's cells of the table's clustering columns, in order.
        has_statics: whether the table has static columns.

    Raises:
        OperationError: no change (an image, the end of a range), or the clustering key does not fit the operation;
            where columns of it are missing, a LostKeyError.
    """
    if operation in IMAGES:
        raise OperationError(f"cdc$operation {operation} is an image of a row, not a change")
    if operation in RANGE_ENDS:
        raise OperationError(f"cdc$operation {operation} is the end of a range without its start")
    symbol = kind_of(operation, has_clustering=bool(clustering))
    given = sum(cell is not None for cell in clustering)
    if operation == UPDATE and clustering and not given:
        if not has_statics:
            raise LostKeyError(
                "cdc$operation 1 (update) without a clustering key, in a table that has no static columns"
            )
        return STATIC_UPDATE
    if symbol in WITH_ROW and given != len(clustering):
        raise LostKeyError(
            f"cdc$operation {operation} ({symbol}) needs the whole clustering key; "
            f"the log row has {given} of its {len(clustering)} columns"
        )
    if symbol in WITHOUT_ROW and given:
        raise OperationError(f"cdc$operation {operation} ({symbol}) with a clustering key")
    if symbol == RANGE_DELETE and not clustering:
        raise OperationError(f"cdc$operation {operation} ({symbol}) in a table without clustering columns")
    return symbol
