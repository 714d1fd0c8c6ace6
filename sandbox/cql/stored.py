"""Reads tables, types and partitions back from the server for the simulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql.catalog import Table
from sandbox.scylla.base.merging import Cell, CollectionState, Columns, PartitionState, RowState
from sandbox.scylla.base.state import BaseRow, BaseState
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.refusals import base_of, cdc_options_of
from sandbox.scylla.values.multi_cell import field_key
from sandbox.scylla.values.nested import (
    UserType,
    UserTypes,
    is_multi_cell,
    unpack_elements,
    unpack_fields,
    unpack_pairs,
)
from sandbox.scylla.values.ordering import Key
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, ListType, SetType, UdtType, parse

_TABLES: Final = "SELECT table_name, default_time_to_live, flags FROM system_schema.tables WHERE keyspace_name = ?"
_TYPES: Final = "SELECT type_name, field_names, field_types FROM system_schema.types WHERE keyspace_name = ?"
_COLUMNS: Final = "SELECT column_name, kind, type FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"
_LONG_AGO: Final = UnixMicros(0)
"""Timestamp of stored rows: older than any write, as in ScyllaDB's read before a write."""


def stored_types(session: WritingSession, keyspace: str) -> UserTypes:
    """Return a keyspace's user-defined types.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    return tuple(
        UserType(row["type_name"], tuple(zip(row["field_names"], map(parse, row["field_types"]), strict=True)))
        for row in session.rows(_TYPES, (keyspace,))
    )


def stored_tables(session: WritingSession, keyspace: str) -> Iterator[Table]:
    """Return a keyspace's base tables with their cdc options.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
        TypeTextError: a column has an unknown type.
    """
    log = ChangeLog(session)
    found = {row["table_name"]: row for row in session.rows(_TABLES, (keyspace,))}
    for name, row in found.items():
        if base_of(name) in found:
            continue
        schema = log.table_schema(keyspace, name)
        given = log.cdc_options(keyspace, name)
        options = CdcOptions(enabled=False)
        if given is not None:
            options = cdc_options_of(
                {
                    "enabled": str(given.enabled),
                    "preimage": given.preimage,
                    "postimage": str(given.postimage),
                    "delta": given.delta,
                    "ttl": str(given.ttl_s),
                }
            )
        flags = row["flags"] or ()
        yield Table(
            schema,
            options,
            row["default_time_to_live"] or 0,
            is_compact="dense" in flags or "compound" not in flags,
            has_log=schema.log_table in found,
        )


def stored_log_columns(session: WritingSession, table_schema: TableSchema) -> list[tuple[str, str]]:
    """Return names and types of the regular columns of a table's log; empty if there is no log.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    rows = session.rows(_COLUMNS, (table_schema.keyspace, table_schema.log_table))
    return [(row["column_name"], str(parse(row["type"]))) for row in rows if row["kind"] == "regular"]


class StoredBase(BaseState):
    """The content of a table on the server. A partition is read on first use. Writes are ignored.

    The keys of list cells are invented, because the server does not return its own.
    """

    def __init__(self, columns: Columns, fetch: Callable[[Key], PartitionState]) -> None:
        """Take a function that reads a partition."""
        super().__init__(columns)
        self._fetch = fetch

    def static(self, partition_key: Key, now_us: UnixMicros) -> BaseRow:
        """See `BaseState`."""
        self._load(partition_key)
        return super().static(partition_key, now_us)

    def row(self, partition_key: Key, clustering: Key, now_us: UnixMicros) -> BaseRow | None:
        """See `BaseState`."""
        self._load(partition_key)
        return super().row(partition_key, clustering, now_us)

    def apply(self, partition_key: Key, written: PartitionState) -> None:
        """Nothing: the statement itself goes to the server."""

    def _load(self, partition_key: Key) -> None:
        if partition_key not in self._partitions:
            self._partitions[partition_key] = self._fetch(partition_key)


def stored_partition(session: WritingSession, table_schema: TableSchema, partition_key: Key) -> PartitionState:
    """Read the content of a partition.

    Raises:
        RetriableError, BridgeError: as `CqlSession.cells_of`.
    """
    columns = [column for column in table_schema.columns if not column.is_hidden]
    where = " AND ".join(f"{quoted(column.name)} = ?" for column in table_schema.partition_key)
    query = (
        f"SELECT {', '.join(quoted(column.name) for column in columns)} "  # noqa: S608  # names are quoted
        f"FROM {quoted(table_schema.keyspace)}.{quoted(table_schema.name)} WHERE {where}"
    )
    state = PartitionState()
    for cells in session.cells_of(session.prepare(query), partition_key):
        found = dict(zip((column.name for column in columns), cells, strict=True))
        for column in table_schema.statics:
            _put(state.static, column, found[column.name])
        clustering = [found[column.name] for column in table_schema.clustering]
        if None in clustering:
            continue  # the partition has only a static row
        row = state.row(tuple(cell for cell in clustering if cell is not None))
        row.mark(Cell(b"", _LONG_AGO))
        for column in table_schema.regulars:
            _put(row, column, found.get(column.name))
    return state


def _put(row: RowState, column: Column, cell: bytes | None) -> None:
    if cell is None:
        return
    if not is_multi_cell(column.type):
        row.put(column.name, Cell(cell, _LONG_AGO))
        return
    elements = {key: Cell(value, _LONG_AGO) for key, value in _elements(column.type, cell).items()}
    row.collections[column.name] = CollectionState(None, elements)


def _elements(cql_type: CqlType, cell: bytes) -> dict[bytes, bytes]:
    match cql_type:
        case ListType():
            values = unpack_elements(cell)
            return {timeuuid_of(UnixMicros(place), bytes(8)): value for place, value in enumerate(values)}
        case SetType():
            return dict.fromkeys(unpack_elements(cell), b"")
        case UdtType():
            fields = enumerate(unpack_fields(cell))
            return {field_key(place): value for place, value in fields if value is not None}
        case _:
            return dict(unpack_pairs(cell))
