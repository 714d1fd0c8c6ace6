"""A captured table in the simulated cluster: its base and log tables, and the statements that write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

from bridge.adapters.scylla import UNSET, CqlSession, Prepared
from bridge.local.simulator.log_groups import LogGroup, LogRules
from bridge.local.simulator.log_table import (
    CDC_PARTITIONER,
    CdcOptions,
    base_ddl,
    deleted_flag,
    log_ddl,
    quoted,
)
from bridge.local.simulator.mutations import Insert, Operation, PartitionDelete, RowDelete, Update
from bridge.local.simulator.ordering import Key
from bridge.local.simulator.placing import Place
from bridge.model.times import UnixMicros
from schemas.table_schema import Column, TableSchema

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_TRUE: Final = b"\x01"
_OPERATIONS: Final = tuple(bytes([number]) for number in range(10))
_KEYSPACE_DDL: Final = (
    "CREATE KEYSPACE IF NOT EXISTS {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': '1'}}"
)
_MARK_LOG: Final = "INSERT INTO system_schema.scylla_tables (keyspace_name, table_name, partitioner) VALUES (?, ?, ?)"

WriteCells = list[Any]
"""Parameters of a write: serialized cells, None for null, UNSET for columns that are left alone."""


@dataclass(frozen=True, slots=True)
class SimulatedTable:
    """One captured table.

    Attributes:
        table_schema: of the base table.
        options: its cdc option.
        descending: names of the clustering columns that are ordered DESC.
    """

    table_schema: TableSchema
    options: CdcOptions = field(default_factory=CdcOptions)
    descending: frozenset[str] = frozenset()

    def create(self, session: CqlSession) -> None:
        """Make the keyspace if it is missing, the base table and its log, and mark the log as one.

        Raises:
            RetriableError, BridgeError: as `CqlSession.execute`; a table of the name exists already, for one.
            ValueError: a column's type is not simulated.
        """
        table = self.table_schema
        create_keyspace(session, table.keyspace)
        session.execute(base_ddl(table, self.options, descending=self.descending))
        session.execute(log_ddl(table, self.options))
        mark_log(session, table.keyspace, table.log_table)

    def drop(self, session: CqlSession) -> None:
        """Drop base and log, if they are there.

        Raises:
            RetriableError, BridgeError: as `CqlSession.execute`.
        """
        for name in (self.table_schema.name, self.table_schema.log_table):
            session.execute(f"DROP TABLE IF EXISTS {quoted(self.table_schema.keyspace)}.{quoted(name)}")

    def rules(self) -> LogRules:
        """How its writes are logged."""
        return LogRules.of(self.table_schema, self.descending)


def create_keyspace(session: CqlSession, keyspace: str) -> None:
    """Make a keyspace with one replica, unless it is there.

    Raises:
        RetriableError, BridgeError: as `CqlSession.execute`.
    """
    session.execute(_KEYSPACE_DDL.format(quoted(keyspace)))


def mark_log(session: CqlSession, keyspace: str, log_table: str) -> None:
    """Say in `system_schema.scylla_tables` that a table is a CDC log.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    cells = (keyspace.encode(), log_table.encode(), CDC_PARTITIONER.encode())
    session.write_raw(session.prepare(_MARK_LOG), cells).result()


class LogStatement:
    """Writes log rows of one table: cells with the group's timestamp and the log's TTL, and no row marker.

    It is an UPDATE because an INSERT would write the marker that ScyllaDB's own log writes do not.
    """

    def __init__(self, session: CqlSession, table: SimulatedTable) -> None:
        """Prepare the statement.

        Raises:
            RetriableError, BridgeError: as `CqlSession.prepare`.
        """
        base = table.table_schema
        values = base.values
        names = ["cdc$operation", "cdc$ttl", "cdc$end_of_batch"]
        names += [column.name for column in (*base.partition_key, *base.clustering)]
        names += [name for column in values for name in (column.name, deleted_flag(column.name))]
        self.prepared = session.prepare(
            f"UPDATE {quoted(base.keyspace)}.{quoted(base.log_table)} "  # noqa: S608  # names are quoted
            f"USING TIMESTAMP ? AND TTL {table.options.ttl_s} "
            f"SET {', '.join(f'{quoted(name)} = ?' for name in names)} "
            'WHERE "cdc$stream_id" = ? AND "cdc$time" = ? AND "cdc$batch_seq_no" = ?'
        )
        self._keys_only = table.options.delta == "keys"
        self._value_at = {column.name: 2 * place for place, column in enumerate(values)}
        self._blank = [UNSET] * (2 * len(values))
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
                *(row.clustering or self._no_clustering),
                *self._values(row.cells),
                place.stream_id,
                place.time,
                _INT.pack(number),
            ]
            for number, row in enumerate(group.rows)
        ]

    def _values(self, cells: Mapping[str, bytes | None]) -> WriteCells:
        values = self._blank.copy()
        if self._keys_only:  # `delta: 'keys'` leaves out values and flags, nothing else (spec section 2.3)
            return values
        for name, value in cells.items():
            at = self._value_at[name]
            if value is None:
                values[at + 1] = _TRUE
            else:
                values[at] = value
        return values


class BaseStatements:
    """Writes the base table: each operation is one statement, with the timestamp that the log has."""

    def __init__(self, session: CqlSession, table: SimulatedTable) -> None:
        """Take the table; statements are prepared when they are first needed."""
        self._session = session
        base = table.table_schema
        self._name = f"{quoted(base.keyspace)}.{quoted(base.name)}"
        self._partition_key = base.partition_key
        self._clustering = base.clustering
        self._statics = base.statics
        self._values = base.values
        self._regulars = tuple(column for column in base.values if column not in base.statics)

    def write(
        self, operation: Operation, partition_key: Key, timestamp_us: UnixMicros
    ) -> list[tuple[Prepared, WriteCells]]:
        """The statements, with their parameters, that do what an operation says.

        Raises:
            RetriableError, BridgeError: as `CqlSession.prepare`.
        """
        stamp = _LONG.pack(timestamp_us if operation.timestamp_us is None else operation.timestamp_us)
        match operation:
            case Insert():
                return [self._insert(operation, partition_key, stamp)]
            case Update():
                return self._updates(operation, partition_key, stamp)
            case RowDelete(clustering):
                return [self._delete(stamp, partition_key, clustering)]
            case PartitionDelete():
                return [self._delete(stamp, partition_key, ())]

    def _insert(self, operation: Insert, partition_key: Key, stamp: bytes) -> tuple[Prepared, WriteCells]:
        clustering = self._clustering if operation.clustering else ()
        values = self._values if operation.clustering or not self._clustering else self._statics
        names = [column.name for column in (*self._partition_key, *clustering, *values)]
        prepared = self._session.prepare(
            f"INSERT INTO {self._name} ({', '.join(map(quoted, names))}) "  # noqa: S608  # names are quoted
            f"VALUES ({', '.join('?' * len(names))}) USING TIMESTAMP ? AND TTL ?"
        )
        return prepared, [
            *partition_key,
            *operation.clustering,
            *_chosen(values, operation.cells),
            stamp,
            _INT.pack(operation.ttl_s),
        ]

    def _updates(self, operation: Update, partition_key: Key, stamp: bytes) -> list[tuple[Prepared, WriteCells]]:
        # Static columns are set without a clustering key, the others with it.
        parts = [(self._statics, (), ()), (self._regulars, self._clustering, operation.clustering)]
        found = []
        for columns, clustering, cells in parts:
            if not any(column.name in operation.cells for column in columns):
                continue
            prepared = self._session.prepare(
                f"UPDATE {self._name} USING TIMESTAMP ? AND TTL ? "  # noqa: S608  # names are quoted
                f"SET {', '.join(f'{quoted(column.name)} = ?' for column in columns)} "
                f"WHERE {_equal((*self._partition_key, *clustering))}"
            )
            found.append(
                (
                    prepared,
                    [stamp, _INT.pack(operation.ttl_s), *_chosen(columns, operation.cells), *partition_key, *cells],
                )
            )
        return found

    def _delete(self, stamp: bytes, partition_key: Key, clustering: Key) -> tuple[Prepared, WriteCells]:
        columns = (*self._partition_key, *self._clustering[: len(clustering)])
        prepared = self._session.prepare(
            f"DELETE FROM {self._name} USING TIMESTAMP ? WHERE {_equal(columns)}"  # noqa: S608  # names are quoted
        )
        return prepared, [stamp, *partition_key, *clustering]


def _chosen(columns: Sequence[Column], cells: Mapping[str, bytes | None]) -> WriteCells:
    return [cells.get(column.name, UNSET) for column in columns]


def _equal(columns: Sequence[Column]) -> str:
    return " AND ".join(f"{quoted(column.name)} = ?" for column in columns)
