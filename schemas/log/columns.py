"""Names, types and positions of the columns of a CDC log table (spec sections 1.1 and 1.2)."""

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
"""True on the last row of a group. Logs of servers before 4.3 lack the column."""

META_PREFIX: Final = "cdc$"
META_COLUMNS: Final = (STREAM_ID, TIME, BATCH_SEQ_NO, OPERATION, TTL, END_OF_BATCH)
"""The log's own columns, its primary key first; those about single base columns (`deleted_flag`) are not among them."""

_OPTIONAL_META: Final = frozenset({END_OF_BATCH})
_LIST_KEY: Final = NativeType("timeuuid")
_UDT_INDEX: Final = NativeType("smallint")


def deleted_flag(column: str) -> str:
    """Return the name of the log's boolean column that is true where a base column was set to null."""
    return f"cdc$deleted_{column}"


def deleted_elements(column: str) -> str:
    """Return the name of the log's column with the deleted elements of a multi-cell base column."""
    return f"cdc$deleted_elements_{column}"


def value_type(cql_type: CqlType) -> CqlType:
    """Return the type of the log column for a base column of this type.

    The log has the elements of a multi-cell column as one frozen value. For a list this is a map from the list cells'
    timeuuid keys to the elements.
    """
    match cql_type:
        case ListType():
            return FrozenType(MapType(_LIST_KEY, cql_type.element))
        case SetType() | MapType() | UdtType():
            return FrozenType(cql_type)
    return cql_type


def deleted_elements_type(cql_type: CqlType) -> CqlType:
    """Return the type of the log column with the deleted elements of a base column of this type.

    Raises:
        ValueError: columns of the type have one cell.
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

    Unknown columns that begin with ``cdc$`` are accepted, because newer servers may add some. A plain column that
    the table lacks is refused, because its changes would be lost silently.

    Args:
        table: the base table.
        log_columns: names of the log's columns in the order of a row's cells.

    Raises:
        TableSchemaError: the columns do not fit; names the log table and the columns at fault.
    """
    _refuse_columns(table, "columns named twice", (name for name, count in Counter(log_columns).items() if count > 1))
    base = {column.name for column in table.columns if not column.is_hidden}
    flags = {deleted_flag(column.name) for column in table.values}
    removed = {deleted_elements(column.name) for column in table.values if is_multi_cell(column.type)}
    # This happens if the table has a column elements_x beside a collection x.
    _refuse_columns(table, "one column for the flag of one column and the deleted elements of another", flags & removed)
    flags |= removed
    _refuse_columns(
        table, "columns of the base table that are named like the log's own", base & (set(META_COLUMNS) | flags)
    )
    positions = {name: index for index, name in enumerate(log_columns)}
    _refuse_columns(table, "columns missing", {*META_COLUMNS, *base, *flags} - positions.keys() - _OPTIONAL_META)
    strangers = (name for name in positions if name not in base and not name.startswith(META_PREFIX))
    _refuse_columns(table, "columns that the base table lacks", strangers)
    return positions


def _refuse_columns(table: TableSchema, reason: str, names: Iterable[str]) -> None:
    found = sorted(names)
    if found:
        raise TableSchemaError(f"log table {table.keyspace}.{table.log_table}: {reason}: {', '.join(found)}")
