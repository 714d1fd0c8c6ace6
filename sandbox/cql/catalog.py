"""The tables and types of a simulated server, and its captured tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from bridge.model.times import UnixMicros
from sandbox.cql.column_types import as_stored
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import (
    AlterTable,
    AlterType,
    ColumnDefinition,
    CreateIndex,
    CreateTable,
    CreateType,
    CreateView,
    DropIndex,
    DropTable,
    Name,
    SchemaStatement,
    TableOptions,
)
from sandbox.scylla import refusals
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.values.nested import UserType, UserTypes
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import CqlType, NativeType, user_types

_NOT_CAPTURED: Final = CdcOptions(enabled=False)
_HIDDEN_COLUMN: Final = "value"
_VECTOR_INDEX: Final = "vector_index"


class TableName(NamedTuple):
    """A table's full name."""

    keyspace: str
    name: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        table_schema: the table's columns.
        options: the table's cdc option; disabled if the table has none.
        default_ttl_s: `default_time_to_live` in s; 0 means no TTL.
        is_compact: whether the table has COMPACT STORAGE.
        has_log: whether the log table exists, in use or not.
        vector_indexes: names of the vector indexes. A vector index enables CDC.
        dropped_us: times of dropped columns in Unix us, by column name.
    """

    table_schema: TableSchema
    options: CdcOptions = _NOT_CAPTURED
    default_ttl_s: int = 0
    is_compact: bool = False
    has_log: bool = False
    vector_indexes: frozenset[str] = frozenset()
    dropped_us: Mapping[str, UnixMicros] = field(default_factory=dict)

    @property
    def is_captured(self) -> bool:
        """Whether writes are logged."""
        return self.options.enabled or bool(self.vector_indexes)

    @property
    def name(self) -> TableName:
        """The table's full name."""
        return TableName(self.table_schema.keyspace, self.table_schema.name)


class Catalog:
    """The tables and types that statements have created. Not thread-safe."""

    def __init__(self, keyspace: str, *, drop_leeway: bool = True) -> None:
        """Create an empty catalog.

        Args:
            keyspace: keyspace of names that have none.
            drop_leeway: whether to refuse adding a column to a captured table right after dropping it, as ScyllaDB
                does since 2025.4.
        """
        self._keyspace = keyspace
        self._drop_leeway = drop_leeway
        self._tables: dict[TableName, Table] = {}
        self._types: dict[TableName, UserType] = {}

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables in the order of their creation, without logs."""
        return tuple(self._tables.values())

    def learn(self, tables: Iterable[Table], keyspace: str, user_types: UserTypes) -> None:
        """Add tables and types that a keyspace holds already, and replace those of the same names."""
        self._tables.update((table.name, table) for table in tables)
        self._types.update((TableName(keyspace, user_type.name), user_type) for user_type in user_types)

    def full_name(self, name: Name) -> TableName:
        """The name with its keyspace."""
        return TableName(name.keyspace or self._keyspace, name.name)

    def table(self, name: Name) -> Table:
        """Return the table with a name.

        Raises:
            CqlError: there is no such table.
        """
        found = self._tables.get(self.full_name(name))
        if found is None:
            raise CqlError(f"unconfigured table {name}: no earlier statement created it")
        return found

    def user_types(self, keyspace: str) -> UserTypes:
        """The user-defined types of a keyspace."""
        return tuple(found for name, found in self._types.items() if name.keyspace == keyspace)

    def apply(self, statement: SchemaStatement, now_us: UnixMicros) -> None:
        """Apply a schema statement. A refused statement changes nothing.

        Args:
            statement: the statement.
            now_us: the server's clock in Unix us; the time of a dropped column.

        Raises:
            SchemaRefusal: ScyllaDB would refuse the statement because of CDC, or because of an unknown type.
            CqlError: the statement contradicts the existing tables and types.
        """
        match statement:
            case CreateTable():
                self._create_table(statement)
            case CreateType():
                self._create_type(statement)
            case AlterTable():
                self._alter_table(statement, now_us)
            case AlterType():
                self._alter_type(statement)
            case DropTable():
                self._drop_table(statement)
            case CreateView():
                self._create_view(statement)
            case CreateIndex():
                self._create_index(statement)
            case DropIndex():
                self._drop_index(statement)

    def _create_table(self, statement: CreateTable) -> None:
        name = self.full_name(statement.table)
        if name in self._tables or self._log_base(name) is not None:
            if statement.if_not_exists:
                return
            raise CqlError(f"table {statement.table} exists already")
        names = {column.name for column in statement.columns}
        unknown = [key for key in (*statement.partition_key, *statement.clustering) if key not in names]
        if unknown:
            raise CqlError(f"table {statement.table} has no column {unknown[0]!r} for its primary key")
        places = {key: at for keys in (statement.partition_key, statement.clustering) for at, key in enumerate(keys)}
        columns = [
            Column(
                column.name,
                self._stored_type(name.keyspace, column.type),
                _kind(statement, column),
                places.get(column.name, -1),
                column.name in statement.options.descending,
            )
            for column in statement.columns
        ]
        if statement.options.is_compact and not any(column.kind is ColumnKind.REGULAR for column in columns):
            columns.append(Column(_HIDDEN_COLUMN, NativeType("empty"), ColumnKind.REGULAR))
        table = Table(
            TableSchema(*name, tuple(columns), statement.options.is_compact and len(statement.clustering) > 1),
            is_compact=statement.options.is_compact,
        )
        self._tables[name] = self._with_options(table, statement.options)

    def _with_options(self, table: Table, options: TableOptions) -> Table:
        default_ttl = options.values.get("default_time_to_live", table.default_ttl_s)
        if not isinstance(default_ttl, int):
            raise CqlError(f"table {table.table_schema.full_name}: default_time_to_live is no number: {default_ttl!r}")
        table = replace(table, default_ttl_s=default_ttl)
        cdc = options.values.get("cdc")
        if cdc is None:
            return table
        if not isinstance(cdc, dict):
            raise CqlError(f"table {table.table_schema.full_name}: the option cdc is no map: {cdc!r}")
        return self._captured(replace(table, options=refusals.cdc_options_of(cdc)))

    def _captured(self, table: Table) -> Table:
        """Return the table, with its log if it is captured."""
        if not table.is_captured:
            return table
        name = table.name
        taken = TableName(name.keyspace, table.table_schema.log_table) in self._tables
        refusals.check_capture(table.table_schema, name_is_taken=taken)
        return replace(table, has_log=True)

    def _log_base(self, name: TableName) -> Table | None:
        """Return the table whose log has this name."""
        base = refusals.base_of(name.name)
        table = None if base is None else self._tables.get(TableName(name.keyspace, base))
        return table if table is not None and table.has_log else None

    def _stored_type(self, keyspace: str, cql_type: CqlType) -> CqlType:
        """Return a declared type as the server keeps it.

        Raises:
            SchemaRefusal: it names a user-defined type that the keyspace does not have.
        """
        for udt in user_types(cql_type):
            if TableName(keyspace, udt.name) not in self._types:
                raise refusals.unknown_type(keyspace, str(udt))
        return as_stored(cql_type)

    def _create_type(self, statement: CreateType) -> None:
        name = self.full_name(statement.type)
        if name in self._types:
            if statement.if_not_exists:
                return
            raise CqlError(f"type {statement.type} exists already")
        fields = ((field, self._stored_type(name.keyspace, kind)) for field, kind in statement.fields)
        self._types[name] = UserType(name.name, tuple(fields))

    def _alter_type(self, statement: AlterType) -> None:
        name = self.full_name(statement.type)
        known = self._types.get(name)
        if known is None:
            raise CqlError(f"unknown type {statement.type}: no earlier statement created it")
        renames = dict(statement.rename)
        types = {field: self._stored_type(name.keyspace, kind) for field, kind in statement.alter}
        added = [(field, self._stored_type(name.keyspace, kind)) for field, kind in statement.add]
        fields = ((renames.get(old, old), types.get(old, kind)) for old, kind in (*known.fields, *added))
        self._types[name] = UserType(name.name, tuple(fields))

    def _alter_table(self, statement: AlterTable, now_us: UnixMicros) -> None:
        name = self.full_name(statement.table)
        log_base = self._log_base(name)
        if log_base is not None:
            self._alter_log(statement, log_base, name)
            return
        table = self.table(statement.table)
        columns = list(table.table_schema.columns)
        for added in statement.add:
            self._check_new(table, added.name, now_us)
            kind = ColumnKind.STATIC if added.is_static else ColumnKind.REGULAR
            columns.append(Column(added.name, self._stored_type(name.keyspace, added.type), kind))
        gone = set(statement.drop)
        renames = dict(statement.rename)
        types = {column: self._stored_type(name.keyspace, kind) for column, kind in statement.alter}
        missing = [old for old in (*gone, *renames, *types) if old not in {column.name for column in columns}]
        if missing:
            raise CqlError(f"table {statement.table} has no column {missing[0]!r}")
        columns = [
            replace(
                column,
                name=renames.get(column.name, column.name),
                type=types.get(column.name, column.type),
            )
            for column in columns
            if column.name not in gone
        ]
        table = replace(
            table,
            table_schema=TableSchema(*name, tuple(columns)),
            dropped_us={**table.dropped_us, **dict.fromkeys(gone, now_us)},
        )
        self._tables[name] = self._with_options(table, statement.options) if statement.options else table

    def _alter_log(self, statement: AlterTable, base: Table, name: TableName) -> None:
        if statement.options is None:
            raise refusals.altered_log()
        if "cdc" in statement.options.values:
            nested = TableSchema(*name, base.table_schema.columns)
            refusals.check_capture(nested, is_active_log=base.is_captured)
            raise CqlError(f"{name.keyspace}.{name.name}: the simulator cannot capture a log that is not in use")

    def _check_new(self, table: Table, column: str, now_us: UnixMicros) -> None:
        if any(known.name == column for known in table.table_schema.columns):
            raise CqlError(f"Invalid column name {column} because it conflicts with an existing column")
        dropped_us = table.dropped_us.get(column)
        if dropped_us is None or not (self._drop_leeway and table.is_captured):
            return
        wait_us = dropped_us + refusals.DROP_LEEWAY_S * 1_000_000 - now_us
        if wait_us > 0:
            raise refusals.dropped_too_recently(column, -(-wait_us // 1_000_000))

    def _drop_table(self, statement: DropTable) -> None:
        name = self.full_name(statement.table)
        base = self._log_base(name)
        if base is not None:
            if base.is_captured:
                raise refusals.dropped_log(*name)
            self._tables[base.name] = replace(base, has_log=False)
        elif self._tables.pop(name, None) is None and not statement.if_exists:
            raise CqlError(f"unconfigured table {statement.table}")

    def _create_view(self, statement: CreateView) -> None:
        if self._log_base(self.full_name(statement.base)) is not None:
            raise refusals.view_on_log()
        cdc = statement.options.values.get("cdc")
        if isinstance(cdc, dict) and refusals.cdc_options_of(cdc).enabled:
            raise refusals.captured_view()

    def _create_index(self, statement: CreateIndex) -> None:
        table = self.table(statement.table)
        if statement.using == _VECTOR_INDEX:
            index = statement.index or f"{table.name.name}_{statement.column}_idx"
            indexed = replace(table, vector_indexes=table.vector_indexes | {index})
            self._tables[table.name] = self._captured(indexed)

    def _drop_index(self, statement: DropIndex) -> None:
        keyspace, index = self.full_name(statement.index)
        for table in self.tables:
            if table.name.keyspace == keyspace and index in table.vector_indexes:
                self._tables[table.name] = replace(table, vector_indexes=table.vector_indexes - {index})


def _kind(statement: CreateTable, column: ColumnDefinition) -> ColumnKind:
    if column.name in statement.partition_key:
        return ColumnKind.PARTITION_KEY
    if column.name in statement.clustering:
        return ColumnKind.CLUSTERING
    return ColumnKind.STATIC if column.is_static else ColumnKind.REGULAR
