"""What ``cdc$operation`` means (spec section 2.1), and which cells a row of each operation may have.

A row whose operation and cells contradict each other is refused, because what it did would be a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from schemas.avro.records import UNKNOWN_OPERATION
from schemas.errors import LostKeyError, OperationError


class Operation(IntEnum):
    """``cdc$operation`` as ScyllaDB numbers it (spec section 2.1); a newer server may use other numbers."""

    PREIMAGE = 0
    UPDATE = 1
    INSERT = 2
    ROW_DELETE = 3
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POSTIMAGE = 9
    ROW_EXPIRY = -3
    PARTITION_EXPIRY = -4


STATIC_UPDATE: Final = "static_update"
RANGE_DELETE: Final = "range_delete"

OPERATION_SYMBOLS: Final[dict[int, str]] = {
    Operation.UPDATE: "update",
    Operation.INSERT: "insert",
    Operation.ROW_DELETE: "row_delete",
    Operation.PARTITION_DELETE: "partition_delete",
    Operation.RANGE_START_INCLUSIVE: RANGE_DELETE,
    Operation.RANGE_START_EXCLUSIVE: RANGE_DELETE,
    Operation.ROW_EXPIRY: "row_expiry",
    Operation.PARTITION_EXPIRY: "partition_expiry",
}
"""``cdc$operation`` -> symbol of ``op``, before a row's cells are read (`kind_of` and `symbol_of` refine it).

Any other number is "unknown", except those of images and range ends, which are not changes.
"""

IMAGES: Final = frozenset({Operation.PREIMAGE, Operation.POSTIMAGE})

RANGE_STARTS: Final[dict[int, bool]] = {Operation.RANGE_START_INCLUSIVE: True, Operation.RANGE_START_EXCLUSIVE: False}
"""Start of a range -> whether the bound is inside the range."""

RANGE_ENDS: Final[dict[int, bool]] = {Operation.RANGE_END_INCLUSIVE: True, Operation.RANGE_END_EXCLUSIVE: False}
"""End of a range -> whether the bound is inside the range."""

NO_CHANGES: Final = IMAGES | RANGE_ENDS.keys()
"""Operations of rows that are only a part of a change."""

WITH_COLUMNS: Final = frozenset({"insert", "update", STATIC_UPDATE, UNKNOWN_OPERATION})
"""Symbols of changes that may touch columns."""

WITH_ROW: Final = frozenset({"insert", "update", "row_delete", "row_expiry"})
"""Symbols of changes of one row, which need the whole clustering key."""

WITHOUT_ROW: Final = frozenset({"partition_delete", "partition_expiry"})
"""Symbols of changes of a partition, which have no clustering key."""

_SYMBOLS_WITHOUT_CLUSTERING: Final = {"partition_delete": "row_delete", "partition_expiry": "row_expiry"}


def operation_of(cell: bytes) -> int:
    """Return the number in a cell of ``cdc$operation``, which is one byte, signed."""
    return cell[0] - 256 if cell[0] > 127 else cell[0]


def kind_of(operation: int, *, has_clustering: bool) -> str:
    """Return the symbol of an operation, before a row's cells are read.

    In a table without clustering columns a partition is one row, and ScyllaDB logs that row's delete as the
    partition's.

    Args:
        operation: a ``cdc$operation``.
        has_clustering: whether the table has clustering columns.
    """
    symbol = OPERATION_SYMBOLS.get(operation, UNKNOWN_OPERATION)
    return symbol if has_clustering else _SYMBOLS_WITHOUT_CLUSTERING.get(symbol, symbol)


def symbol_of(
    operation: int, clustering: Sequence[bytes | None], *, has_statics: bool, partial_clustering: bool = False
) -> str:
    """Return the symbol of ``op`` for a row.

    An update without a clustering key is a `STATIC_UPDATE`.

    Args:
        operation: the row's ``cdc$operation``.
        clustering: the row's cells of the table's clustering columns, in order.
        has_statics: whether the table has static columns.
        partial_clustering: whether rows of the table may lack trailing clustering columns.

    Raises:
        LostKeyError: the operation needs clustering columns that the row lacks.
        OperationError: the row is an image or the end of a range, or it has a clustering key that does not fit its
            operation.
    """
    if operation in IMAGES:
        raise OperationError(f"cdc$operation {operation} is an image of a row, not a change")
    if operation in RANGE_ENDS:
        raise OperationError(f"cdc$operation {operation} is the end of a range without its start")
    symbol = kind_of(operation, has_clustering=bool(clustering))
    given = sum(cell is not None for cell in clustering)
    if operation == Operation.UPDATE and clustering and not given:
        if not has_statics:
            raise LostKeyError(
                "cdc$operation 1 (update) without a clustering key, in a table that has no static columns"
            )
        return STATIC_UPDATE
    is_prefix = partial_clustering and given > 0 and None not in clustering[:given]
    if symbol in WITH_ROW and given != len(clustering) and not is_prefix:
        raise LostKeyError(
            f"cdc$operation {operation} ({symbol}) needs the whole clustering key; "
            f"the log row has {given} of its {len(clustering)} columns"
        )
    if symbol in WITHOUT_ROW and given:
        raise OperationError(f"cdc$operation {operation} ({symbol}) with a clustering key")
    if symbol == RANGE_DELETE and not clustering:
        raise OperationError(f"cdc$operation {operation} ({symbol}) in a table without clustering columns")
    return symbol
