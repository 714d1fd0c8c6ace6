"""A captured table of the simulated cluster: its base table, its log, and the statement that writes the log."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Final

from sandbox.scylla.base.base_statements import BaseStatements, WriteCells
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.log.log_groups import LogRules
from sandbox.scylla.log.log_rows import CollectionDelta, LogGroup, LogOperation, LogRow
from sandbox.scylla.log.log_table import CDC_PARTITIONER, CdcOptions, base_ddl, columns_of, log_ddl, type_ddl
from sandbox.scylla.refusals import check_capture
from sandbox.scylla.values.nested import UserTypes
from sandbox.writing_session import UNSET, WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import resolve, user_types
from schemas.log.columns import END_OF_BATCH, OPERATION, TTL

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_TRUE: Final = b"\x01"
_OPERATIONS: Final = tuple(bytes((number,)) for number in range(256))
"""`cdc$operation` as a tinyint; negative numbers index from the end."""
_IMAGES: Final = (LogOperation.PRE_IMAGE, LogOperation.POST_IMAGE)
_KEYSPACE_DDL: Final = (
    "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}}"
)
_MARK_LOG: Final = "INSERT INTO system_schema.scylla_tables (keyspace_name, table_name, partitioner) VALUES (?, ?, ?)"


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """One captured table.

    Attributes:
        table_schema: of the base table.
        options: its cdc option.
        user_types: every UDT that its columns name, those that others name first. The schema's columns get their
            fields.
        compact: whether its writes are logged as those of a table WITH COMPACT STORAGE (Cassandra itself has none).
        detached: of a table whose CDC was switched off, the columns that its log still has.
    """

    table_schema: TableSchema
    options: CdcOptions = field(default_factory=CdcOptions)
    user_types: UserTypes = ()
    compact: bool = False
    detached: TableSchema | None = None

    def __post_init__(self) -> None:
        """Resolve the columns' types."""
        object.__setattr__(self, "table_schema", resolved(self.table_schema, self.user_types))

    def create(self, session: WritingSession) -> None:
        """Create the keyspace if it is missing, the types, the base table and its log, and mark the log as a log.

        Raises:
            SimulatorRefusal: ScyllaDB refuses to capture such a table.
            RetriableError, BridgeError: as `CqlSession.execute`; a table or a type of the name exists already, for one.
        """
        table = self.table_schema
        check_capture(table)
        create_keyspace(session, table.keyspace)
        for user_type in self.user_types:
            session.execute(type_ddl(table.keyspace, user_type))
        session.execute(base_ddl(table, self.options))
        session.execute(log_ddl(table, self.options))
        mark_log(session, table.keyspace, table.log_table)

    def drop(self, session: WritingSession) -> None:
        """Drop base table, log and types if they exist.

        Raises:
            RetriableError, BridgeError: as `CqlSession.execute`.
        """
        for name in (self.table_schema.name, self.table_schema.log_table):
            session.execute(f"DROP TABLE IF EXISTS {quoted(self.table_schema.keyspace)}.{quoted(name)}")
        for user_type in reversed(self.user_types):
            session.execute(f"DROP TYPE IF EXISTS {quoted(self.table_schema.keyspace)}.{quoted(user_type.name)}")

    def rules(self) -> LogRules:
        """The rules for logging the table's writes."""
        return LogRules.of(
            self.table_schema,
            user_types=self.user_types,
            compact=self.compact,
            images=self.options.images,
        )

    def base_state(self) -> BaseState:
        """The table in memory, empty."""
        return BaseState(self.rules().columns)

    def base_statements(self, session: WritingSession) -> BaseStatements:
        """The statements that write the base table."""
        return BaseStatements(session, self.table_schema, user_types=self.user_types)


def resolved(table_schema: TableSchema, types: UserTypes) -> TableSchema:
    """The table with the fields of the user-defined types that are given; other types stay as they are."""
    fields = {user_type.name: user_type.fields for user_type in types}

    def known(column: Column) -> Column:
        names = {udt.name for udt in user_types(column.type)}
        return replace(column, type=resolve(column.type, fields)) if names and names <= fields.keys() else column

    columns = tuple(map(known, table_schema.columns))
    return TableSchema(table_schema.keyspace, table_schema.name, columns)


def create_keyspace(session: WritingSession, keyspace: str) -> None:
    """Create a keyspace with one replica, unless it exists.

    Raises:
        RetriableError, BridgeError: as `CqlSession.execute`.
    """
    session.execute(_KEYSPACE_DDL.format(quoted(keyspace)))


def mark_log(session: WritingSession, keyspace: str, log_table: str) -> None:
    """Mark a table as a CDC log in `system_schema.scylla_tables`.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    cells = (keyspace.encode(), log_table.encode(), CDC_PARTITIONER.encode())
    session.write_raw(session.prepare(_MARK_LOG), cells).result()


class LogStatement:
    """Writes log rows of one table: cells with the group's timestamp and the log's TTL, and no row marker.

    It is an UPDATE, because an INSERT would write a row marker, which ScyllaDB's log writes do not.
    """

    def __init__(self, session: WritingSession, table: SimulatedTable) -> None:
        """Prepare the statement.

        Raises:
            RetriableError, BridgeError: as `CqlSession.prepare`.
        """
        base = table.table_schema
        names = [OPERATION, TTL, END_OF_BATCH]
        names += [column.name for column in (*base.partition_key, *base.clustering)]
        values = [name for column in base.values for name, _type in columns_of(column)]
        self.prepared = session.prepare(
            f"UPDATE {quoted(base.keyspace)}.{quoted(base.log_table)} "  # noqa: S608  # names are quoted
            f"USING TIMESTAMP ? AND TTL {table.options.ttl_s} "
            f"SET {', '.join(f'{quoted(name)} = ?' for name in (*names, *values))} "
            'WHERE "cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = ?'
        )
        self._keys_only = table.options.delta == "keys"
        # A column's value; behind it come its deleted flag and, of a multi-cell column, its deleted elements.
        self._value_at = {column.name: values.index(column.name) for column in base.values}
        self._blank = [UNSET] * len(values)
        self._no_clustering = [UNSET] * len(base.clustering)

    def cells(self, group: LogGroup, place: Place) -> list[WriteCells]:
        """The parameters of a group's rows, numbered from 0, the last of them marked."""
        stamp = _LONG.pack(group.timestamp_us)
        last = len(group.rows) - 1
        return [
            [
                stamp,
                _OPERATIONS[row.operation],
                UNSET if row.ttl_s is None else _LONG.pack(row.ttl_s),
                _TRUE if number == last else UNSET,
                *place.partition_key,
                *row.clustering,
                *self._no_clustering[len(row.clustering) :],
                *self._values(row),
                place.stream_id,
                place.time,
                _INT.pack(number),
            ]
            for number, row in enumerate(group.rows)
        ]

    def _values(self, row: LogRow) -> WriteCells:
        values = self._blank.copy()
        # `delta: 'keys'` leaves out the deltas' values and flags, nothing else (spec section 2.3).
        if self._keys_only and row.operation not in _IMAGES:
            return values
        for name, value in row.cells.items():
            at = self._value_at[name]
            if value is None:
                values[at + 1] = _TRUE
            elif isinstance(value, CollectionDelta):
                _lay(values, at, value)
            else:
                values[at] = value
        return values


def _lay(values: WriteCells, at: int, delta: CollectionDelta) -> None:
    if delta.value is not None:
        values[at] = delta.value
    if delta.deleted:
        values[at + 1] = _TRUE
    if delta.deleted_elements is not None:
        values[at + 2] = delta.deleted_elements
