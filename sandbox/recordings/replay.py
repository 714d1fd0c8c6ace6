"""Applies a recording's statements with the simulator's rules, and returns the resulting logs and tables. Pure.

Where ScyllaDB releases differ, the rules follow the recorded server, ScyllaDB 5.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandbox.cql.catalog import Table
from sandbox.cql.interpret import Request
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.statements import AlterTable
from sandbox.cql.server import Logged, StatementServer
from sandbox.recordings.recording import RecordedStep, Recording, parameter
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.nested import UserTypes, needed_types


@dataclass(slots=True)
class Replay:
    """What a recording's statements do.

    Attributes:
        logged: for each step what it leaves in logs.
        tables: every table as it is at the end, or was just before it was dropped.
        user_types: the user-defined types at the end.
        forgotten: for each step and table the columns that were dropped or renamed later: their names are gone.
    """

    logged: list[list[Logged]] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    user_types: UserTypes = ()
    forgotten: list[Mapping[str, frozenset[str]]] = field(default_factory=list)

    @classmethod
    def of(cls, recording: Recording) -> Replay:
        """Carry out all steps.

        Raises:
            CqlError: a step is not understood.
        """
        server = StatementServer(recording.keyspace, is_current=False)
        replay = cls()
        changes: list[tuple[str, frozenset[str]]] = []
        for step in recording.steps:
            replay.logged.append(carry_out(server, step))
            replay.tables.update((table.name.name, table) for table in server.catalog.tables)
            changes.append(_forgetting(step))
        replay.user_types = server.catalog.user_types(recording.keyspace)
        later: dict[str, frozenset[str]] = {}
        for table, names in reversed(changes):
            replay.forgotten.append(dict(later))
            later[table] = later.get(table, frozenset()) | names
        replay.forgotten.reverse()
        return replay

    def simulated_table(self, name: str, keyspace: str) -> SimulatedTable:
        """A table in a keyspace of one's own, as the simulator makes tables."""
        table = self.tables[name]
        named = (column.type for column in table.table_schema.columns)
        return SimulatedTable(
            replace(table.table_schema, keyspace=keyspace),
            table.options,
            needed_types(named, self.user_types),
            table.is_compact,
        )


def carry_out(server: StatementServer, step: RecordedStep) -> list[Logged]:
    """Let a server carry out one step.

    Raises:
        CqlError: it is not understood; the message names the statement.
    """
    request = Request(step.at_us, step.now_us, step.list_keys)
    entries = [(text, [parameter(value) for value in parameters]) for text, parameters in step.statements]
    try:
        if step.is_batch:
            return server.execute_batch(entries, request)
        ((text, parameters),) = entries
        return server.execute(text, request, parameters)
    except CqlError as error:
        raise CqlError(f"{entries[0][0][:200]!r}: {error}") from error


def _forgetting(step: RecordedStep) -> tuple[str, frozenset[str]]:
    """The table and the column names that a step takes away."""
    if step.is_batch or not step.statements[0][0].startswith("ALTER TABLE"):
        return "", frozenset()
    statement = statement_of(step.statements[0][0])
    if not isinstance(statement, AlterTable):
        return "", frozenset()
    return statement.table.name, frozenset(statement.drop) | {old for old, _new in statement.rename}
