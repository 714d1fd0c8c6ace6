"""Alters captured tables together with their logs, as ScyllaDB does (spec section 7). Pure except `apply`.

Two things differ from ScyllaDB, because Cassandra runs the statements. Base table and log change one after the other;
a log never lacks a column of its base table. After a DROP, a column can be added again without a wait of 5 s, but only
with a type that serializes like the old one (text and blob, timestamp and bigint).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sandbox.scylla.log.log_table import CdcOptions, log_columns, log_ddl
from sandbox.scylla.tables import SimulatedTable, mark_log
from sandbox.scylla.values.nested import UserType
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import CqlType


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The effect of one ALTER.

    Attributes:
        before, after: the table.
        statements: CQL, in order.
        dropped: names of the columns whose values are lost.
        makes_log: whether it creates the log, which must then be marked as a log.
    """

    before: SimulatedTable
    after: SimulatedTable
    statements: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    makes_log: bool = False

    def apply(self, session: WritingSession) -> SimulatedTable:
        """Run the statements and return the altered table. A `Simulator` that writes the table must `follow` it.

        Raises:
            RetriableError, BridgeError: as `CqlSession.execute`; what came before the failed statement is done.
        """
        for statement in self.statements:
            session.execute(statement)
        if self.makes_log:
            mark_log(session, self.after.table_schema.keyspace, self.after.table_schema.log_table)
        return self.after


def add_column(table: SimulatedTable, column: Column) -> SchemaChange:
    """`ALTER TABLE ADD`; the log gains the column's log columns first.

    Raises:
        ValueError: the column is one of a key, or its UDT is not among the table's.
        TableSchemaError: the table has a column of the name.
    """
    if column.position >= 0:
        raise ValueError(f"{table.table_schema.full_name}: key column {column.name!r} can't be added")
    after = _with_columns(table, (*table.table_schema.columns, column))
    after.rules()
    static = " STATIC" if column.kind is ColumnKind.STATIC else ""
    base = f"ALTER TABLE {_base(table)} ADD {quoted(column.name)} {column.type}{static}"
    return SchemaChange(table, after, (*_log_alters(table, after), base))


def drop_column(table: SimulatedTable, name: str) -> SchemaChange:
    """`ALTER TABLE DROP`; the log loses the column's log columns, and with them its history.

    Raises:
        ValueError: there is no such column outside of the key.
    """
    _value_column(table, name)
    after = _with_columns(table, (column for column in table.table_schema.columns if column.name != name))
    base = f"ALTER TABLE {_base(table)} DROP {quoted(name)}"
    return SchemaChange(table, after, (base, *_log_alters(table, after)), dropped=(name,))


def replace_column(table: SimulatedTable, name: str, cql_type: CqlType) -> SchemaChange:
    """Drop a column and add it again with another type, in two steps that nothing is written between.

    Raises:
        ValueError: there is no such column outside of the key.
    """
    column = _value_column(table, name)
    dropped = drop_column(table, name)
    added = add_column(dropped.after, replace(column, type=cql_type))
    return SchemaChange(table, added.after, dropped.statements + added.statements, dropped=(name,))


def rename_key(table: SimulatedTable, old: str, new: str) -> SchemaChange:
    """`ALTER TABLE RENAME` of a key column: the log drops the old name and adds the new one, and keeps no value.

    Raises:
        ValueError: there is no such column in the key.
        TableSchemaError: the table has a column of the new name.
    """
    columns = table.table_schema.columns
    if not any(column.name == old and column.position >= 0 for column in columns):
        raise ValueError(f"{table.table_schema.full_name} has no key column {old!r}")
    after = _with_columns(table, (replace(column, name=new) if column.name == old else column for column in columns))
    base = f"ALTER TABLE {_base(table)} RENAME {quoted(old)} TO {quoted(new)}"
    return SchemaChange(table, after, (base, *_log_alters(table, after)))


def add_field(table: SimulatedTable, type_name: str, field: str, cql_type: CqlType) -> SchemaChange:
    """`ALTER TYPE ADD` of a field behind the others; every column of the type follows, the log's too.

    Raises:
        ValueError: the type is none of the table's, or has such a field.
    """
    known = {user_type.name: user_type for user_type in table.user_types}
    if type_name not in known:
        raise ValueError(f"{table.table_schema.full_name} has no type {type_name!r}, only {sorted(known)}")
    if any(name == field for name, _type in known[type_name].fields):
        raise ValueError(f"type {type_name!r} has a field {field!r} already")
    known[type_name] = UserType(type_name, (*known[type_name].fields, (field, cql_type)))
    keyspace = quoted(table.table_schema.keyspace)
    statement = f"ALTER TYPE {keyspace}.{quoted(type_name)} ADD {quoted(field)} {cql_type}"
    return SchemaChange(table, replace(table, user_types=tuple(known.values())), (statement,))


def disable(table: SimulatedTable) -> SchemaChange:
    """Switch CDC off: the log stays as it is and is no longer written; see `enable`."""
    after = replace(table, options=replace(table.options, enabled=False), detached=table.detached or table.table_schema)
    return SchemaChange(table, after, (_option(after),))


def enable(table: SimulatedTable, options: CdcOptions | None = None) -> SchemaChange:
    """Switch CDC on: the log that is there is brought up to date and written again, or one is made.

    Args:
        table: one that is not captured.
        options: None takes the table's, enabled.
    """
    wanted = replace(table.options if options is None else options, enabled=True)
    after = replace(table, options=wanted, detached=None)
    if table.detached is None:
        return SchemaChange(table, after, (_option(after), log_ddl(after.table_schema, wanted)), makes_log=True)
    return SchemaChange(table, after, (*_differences(table.detached, after.table_schema), _option(after)))


def set_options(table: SimulatedTable, options: CdcOptions) -> SchemaChange:
    """Change the cdc option of a table that is captured and stays so; `disable` and `enable` do the rest.

    Raises:
        ValueError: the options are not enabled, or the table's were not.
    """
    if not (options.enabled and table.options.enabled):
        raise ValueError(f"{table.table_schema.full_name}: CDC is switched by `enable` and `disable`")
    after = replace(table, options=options)
    return SchemaChange(table, after, (_option(after),))


def _with_columns(table: SimulatedTable, columns: Iterable[Column]) -> SimulatedTable:
    schema = table.table_schema
    return replace(table, table_schema=TableSchema(schema.keyspace, schema.name, tuple(columns)))


def _value_column(table: SimulatedTable, name: str) -> Column:
    for column in table.table_schema.values:
        if column.name == name:
            return column
    raise ValueError(f"{table.table_schema.full_name} has no column {name!r} outside of its key")


def _base(table: SimulatedTable) -> str:
    return f"{quoted(table.table_schema.keyspace)}.{quoted(table.table_schema.name)}"


def _option(table: SimulatedTable) -> str:
    return f"ALTER TABLE {_base(table)} WITH cdc = {table.options}"


def _log_alters(table: SimulatedTable, after: SimulatedTable) -> tuple[str, ...]:
    """What the log needs; nothing while it is detached."""
    return _differences(table.table_schema, after.table_schema) if table.options.enabled else ()


def _differences(old: TableSchema, new: TableSchema) -> tuple[str, ...]:
    """What makes the log of one schema the log of another."""
    return log_alters(new, log_columns(old))


def log_alters(table_schema: TableSchema, had: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """What makes a log with these regular columns, names and types, the log of a table.

    Of a changed type the old column goes first.
    """
    log = f"{quoted(table_schema.keyspace)}.{quoted(table_schema.log_table)}"
    wanted = log_columns(table_schema)
    gone = [name for name, cql_type in had if (name, cql_type) not in wanted]
    come = [f"{quoted(name)} {cql_type}" for name, cql_type in wanted if (name, cql_type) not in had]
    statements = []
    if gone:
        statements.append(f"ALTER TABLE {log} DROP ({', '.join(map(quoted, gone))})")
    if come:
        statements.append(f"ALTER TABLE {log} ADD ({', '.join(come)})")
    return tuple(statements)
