"""Carries out statements on tables in memory, and says what ScyllaDB's CDC logs of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sandbox.cql.catalog import Catalog, Table, TableName
from sandbox.cql.interpret import Interpreter, Request, TableMutation
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.statements import (
    AlterTable,
    BatchStatement,
    DeleteStatement,
    DropTable,
    InsertStatement,
    SchemaStatement,
    Truncate,
    UpdateStatement,
    Using,
)
from sandbox.cql.parser.terms import UNSET, Term
from sandbox.scylla.base.mutations import Mutation
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.log.log_rows import LogGroup
from sandbox.scylla.values.ordering import Key

_MUTATING = InsertStatement | UpdateStatement | DeleteStatement


class Logged(NamedTuple):
    """What one mutation of a captured table leaves in its log.

    Attributes:
        table: the base table as it is at the time.
        partition_key: of the base partition.
        groups: ascending by timestamp; none where nothing is logged.
    """

    table: Table
    partition_key: Key
    groups: list[LogGroup]


class StatementServer:
    """A server of one keyspace's tables, for statements one after the other. Not thread-safe."""

    def __init__(self, keyspace: str, *, is_current: bool = True) -> None:
        """Start without tables.

        Args:
            keyspace: where names without a keyspace stand.
            is_current: whether it has the habits of servers since 2026.1; otherwise those of 5.2.
        """
        self.catalog = Catalog(keyspace, drop_leeway=is_current)
        self._is_current = is_current
        self._bases: dict[TableName, BaseState] = {}
        self.interpreter = Interpreter(self.catalog, self.base)

    def base(self, table: Table) -> BaseState:
        """What stands in a table; it is the live thing, not a copy."""
        found = self._bases.get(table.name)
        if found is None:
            found = self._bases[table.name] = BaseState(self.rules(table).columns)
        return found

    def rules(self, table: Table) -> LogRules:
        """How a table's writes are logged."""
        options = replace(table.options, images_of_partition_deletes=self._is_current)
        return LogRules.of(
            table.table_schema,
            user_types=self.catalog.user_types(table.table_schema.keyspace),
            compact=table.is_compact,
            images=options.images,
        )

    def execute(self, text: str, request: Request, parameters: Sequence[Term] = ()) -> list[Logged]:
        """Carry out one statement of any kind.

        Args:
            text: the statement.
            request: its time.
            parameters: values of its markers.

        Returns:
            What it leaves in logs, by table and partition; nothing for schema statements.

        Raises:
            SchemaRefusal, CqlError: the server would refuse it, or it is not understood; nothing was changed.
            TypeTextError: a type in it is none.
        """
        statement = statement_of(text)
        match statement:
            case Truncate(table):
                self._bases.pop(self.catalog.table(table).name, None)
                return []
            case InsertStatement() | UpdateStatement() | DeleteStatement() | BatchStatement():
                return self._write(self.interpreter.mutations(statement, request, parameters), request)
            case _:
                self._alter(statement, request)
                return []

    def execute_batch(self, entries: Sequence[tuple[str, Sequence[Term]]], request: Request) -> list[Logged]:
        """Carry out a batch of the native protocol: statements with their own parameters.

        Raises:
            CqlError: as `execute`, and for what may not stand in a batch.
        """
        statements = []
        parameters: list[Term] = []
        for text, own in entries:
            statement = statement_of(text, first_marker=len(parameters))
            if not isinstance(statement, _MUTATING):
                raise CqlError(f"only INSERT, UPDATE and DELETE stand in a batch, not {text[:100]!r}")
            statements.append(statement)
            parameters += own
        batch = BatchStatement(tuple(statements), Using(UNSET, UNSET))
        return self._write(self.interpreter.mutations(batch, request, parameters), request)

    def carry_out(self, table: Table, mutation: Mutation, request: Request) -> Logged:
        """Carry out a mutation that no statement makes: a row that the server lets expire, for one."""
        rules, base = self.rules(table), self.base(table)
        groups: list[LogGroup] = []
        if table.is_captured:
            groups = log_groups(rules, mutation, request.timestamp_us, base=base, now_us=request.now_us)
        base.write(mutation, request.timestamp_us, request.now_us)
        return Logged(table, mutation.partition_key, groups)

    def _write(self, mutations: Sequence[TableMutation], request: Request) -> list[Logged]:
        by_name = {table.name: table for table in self.catalog.tables}
        logged = []
        for name, mutation in mutations:
            table = by_name[name]
            stamp_us = request.timestamp_us if mutation.timestamp_us is None else mutation.timestamp_us
            found = self.carry_out(table, mutation, replace(request, timestamp_us=stamp_us))
            if table.is_captured:
                logged.append(found)
        return logged

    def _alter(self, statement: SchemaStatement, request: Request) -> None:
        self.catalog.apply(statement, request.now_us)
        if isinstance(statement, DropTable):
            self._bases.pop(self.catalog.full_name(statement.table), None)
        for table in self.catalog.tables:
            base = self._bases.get(table.name)
            if base is None:
                continue
            columns = self.rules(table).columns
            if isinstance(statement, AlterTable) and self.catalog.full_name(statement.table) == table.name:
                base.alter(columns, dropped=statement.drop)
            else:
                base.alter(columns)  # a type that it uses may have changed
