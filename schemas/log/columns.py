"""Names, types and places of the columns of a CDC log table (spec sections 1.1 and 1.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from schemas.cql.table import TableSchema
from schemas.cql.types import CqlType, FrozenType, ListType, MapType, NativeType, SetType, UdtType, is_multi_cell
from schemas.errors import TableSchemaError

STREAM_ID: Final = "cdc$stream_id"
TIME: Final = "cdc$time"
BATCH_SEQ_NO: Final = "cdc$batch_seq_no"
OPERATION: Final = "cdc$operation"
TTL: Final = "cdc$ttl"
END_OF_BATCH: Final = "cdc$end_of_batch"
"""True on the last row of a group; logs older than 4.3 lack it."""

META_PREFIX: Final = "cdc$"
_META: Final = frozenset({STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION, TTL, END_OF_BATCH})
_NEEDED_META: Final = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION, TTL)
_LIST_KEY: Final = NativeType("timeuuid")
_UDT_INDEX: Final = NativeType("smallint")


def deleted_flag(column: str) -> str:
    """Return the name of the log's boolean "this column was set to null"."""
    return f"cdc$deleted_{column}"


def deleted_elements(column: str) -> str:
    """Return the name of the log's set of the elements that were deleted; multi-cell columns only have it."""
    return f"cdc$deleted_elements_{column}"


def value_type(cql_type: CqlType) -> CqlType:
    """Return the type that the log has for a base column of this type.

    A multi-cell column's elements come as one frozen value, a list's with the keys of its cells.
    """
    match cql_type:
        case ListType():
            return FrozenType(MapType(_LIST_KEY, cql_type.element))
        case SetType() | MapType() | UdtType():
            return FrozenType(cql_type)
    return cql_type


def deleted_elements_type(cql_type: CqlType) -> CqlType:
    """Return the type of the set of deleted elements of a base column of this multi-cell type.

    Raises:
        ValueError: the type has one cell.
    """
    match cql_type:
        case ListType():
            element: CqlType = _LIST_KEY
        case SetType():
            element = cql_type.element
        case MapType():
            element = cql_type.key
        case UdtType():
            element = _UDT_INDEX
        case _:
            raise ValueError(f"a column of type {cql_type} has one cell and no deleted elements")
    return FrozenType(SetType(element))


def log_positions(table: TableSchema, log_columns: Sequence[str]) -> dict[str, int]:
    """Return name -> index of the log's columns, after checking that they fit the table.

    Columns that begin with ``cdc$`` and mean nothing to us are tolerated: newer servers may
    add some. A plain column that the table lacks is not: its changes would be lost unseen.

    Raises:
        TableSchemaError: names the log table and the columns at fault.
    """
    _refuse(table, "columns named twice", (name for name, count in Counter(log_columns).items() if count > 1))
    base = {column.name for column in table.columns if not column.is_hidden}
    flags = {deleted_flag(column.name) for column in table.values}
    removed = {deleted_elements(column.name) for column in table.values if is_multi_cell(column.type)}
    # A column elements_x beside a collection x.
    _refuse(table, "one column for the flag of one column and the deleted elements of another", flags & removed)
    flags |= removed
    _refuse(table, "columns of the base table that are named like the log's own", base & (_META | flags))
    positions = {name: index for index, name in enumerate(log_columns)}
    _refuse(table, "columns missing", {*_NEEDED_META, *base, *flags} - positions.keys())
    strangers = (name for name in positions if name not in base and not name.startswith(META_PREFIX))
    _refuse(table, "columns that the base table lacks", strangers)
    return positions


def _refuse(table: TableSchema, what: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        raise TableSchemaError(f"log table {table.keyspace}.{table.log_table}: {what}: {', '.join(found)}")
