"""What ``cdc$operation`` means (spec section 2.1), and which changes carry columns."""

from __future__ import annotations

from typing import Final

from schemas.avro_schema import UNKNOWN_OPERATION
from schemas.errors import OperationError

OPERATION_SYMBOLS: Final[dict[int, str]] = {
    1: "update",
    2: "insert",
    3: "row_delete",
    4: "partition_delete",
    5: "range_delete",
    6: "range_delete",
    7: "range_delete",
    8: "range_delete",
    -3: "row_expiry",
    -4: "partition_expiry",
}
"""``cdc$operation`` -> symbol of ``op``; the server's set is open, any other number is "unknown"."""

IMAGES: Final = frozenset({0, 9})
"""Pre- and post-image."""

WITH_COLUMNS: Final = frozenset({"insert", "update", UNKNOWN_OPERATION})
"""Symbols of changes whose ``columns`` is not null."""


def symbol_of(operation: int) -> str:
    """Return the symbol of ``op``.

    Raises:
        OperationError: the number of a pre- or post-image.
    """
    if operation in IMAGES:
        raise OperationError(f"cdc$operation {operation} is an image of a row, not a change")
    return OPERATION_SYMBOLS.get(operation, UNKNOWN_OPERATION)
