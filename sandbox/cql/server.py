"""Runs statements on tables in memory and returns what ScyllaDB's CDC would log."""

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
    """The log groups of one mutation of a captured table.

    Attributes:
        table: the base table at the time of the mutation.
        partition_key: partition key of the mutation.
        groups: log groups, ascending by timestamp; empty if nothing is logged.
    """

    table: Table
    partition_key: Key
    groups: list[LogGroup]


class StatementServer:
    """A simulated server with tables in memory. Not thread-safe."""

    def __init__(self, keyspace: str, *, is_current: bool = True) -> None:
        """Start without tables.

        Args:
            keyspace: keyspace of names that have none.
            is_current: whether it behaves like ScyllaDB since 2026.1; otherwise like ScyllaDB 5.2.
        """
        self.catalog = Catalog(keyspace, drop_leeway=is_current)
        self._is_current = is_current
        self._bases: dict[TableName, BaseState] = {}
        self.interpreter = Interpreter(self.catalog, self.base)

    def base(self, table: Table) -> BaseState:
        """The content of a table, not a copy."""
        found = self._bases.get(table.name)
        if found is None:
            found = self._bases[table.name] = BaseState(self.rules(table).columns)
        return found

    def rules(self, table: Table) -> LogRules:
        """The rules for logging the writes of a table."""
        options = replace(table.options, images_of_partition_deletes=self._is_current)
        return LogRules.of(
            table.table_schema,
            user_types=self.catalog.user_types(table.table_schema.keyspace),
            compact=table.is_compact,
            images=options.images,
        )

    def execute(self, text: str, request: Request, parameters: Sequence[Term] = ()) -> list[Logged]:
        """Run one statement of any kind.

        Args:
            text: the statement.
            request: times of the request.
            parameters: values of the statement's markers.

        Returns:
            The log groups by table and partition; empty for schema statements.

        Raises:
            SchemaRefusal, CqlError: ScyllaDB would refuse the statement, or the simulator cannot parse it. Nothing was
                changed.
            TypeTextError: the statement has an invalid type.
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
        """Run a batch of the native protocol: statements with their own parameters.

        Raises:
            CqlError: ScyllaDB would refuse a statement, it is not allowed in a batch, or it cannot be parsed.
        """
        statements = []
        parameters: list[Term] = []
        for text, own in entries:
            statement = statement_of(text, first_marker=len(parameters))
            if not isinstance(statement, _MUTATING):
                raise CqlError(f"a batch holds only INSERT, UPDATE and DELETE, not {text[:100]!r}")
            statements.append(statement)
            parameters += own
        batch = BatchStatement(tuple(statements), Using(UNSET, UNSET))
        return self._write(self.interpreter.mutations(batch, request, parameters), request)

    def apply(self, table: Table, mutation: Mutation, request: Request) -> Logged:
        """Apply a mutation and return its log groups. The expiry of a row is a mutation without a statement."""
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
            found = self.apply(table, mutation, replace(request, timestamp_us=stamp_us))
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
                base.alter(columns)  # a type of its columns may have changed
