"""Runs CQL statements on the local stack and writes the CDC logs of captured tables, as ScyllaDB would.

The stack's server has no streams and no CDC logs. The simulator creates and writes them here. It reads generations,
tables and rows back from the server, so that several programs may take turns. If another program has enabled CDC for a
table, the table gets its log the first time that this client sees it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bridge.errors import BridgeError
from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql import keyspaces
from sandbox.cql.catalog import Table, TableName
from sandbox.cql.interpret import Request
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.source import SourceStatement
from sandbox.cql.parser.statements import (
    AlterTable,
    AlterType,
    BatchStatement,
    CreateType,
    CreateView,
    DeleteStatement,
    DropIndex,
    DropTable,
    Element,
    InsertStatement,
    ListCell,
    Name,
    Selector,
    Statement,
    Truncate,
    UpdateStatement,
)
from sandbox.cql.parser.terms import Term, holds_tuple
from sandbox.cql.server import Logged, StatementServer
from sandbox.cql.stored import StoredBase, stored_log_columns, stored_partition, stored_tables, stored_types
from sandbox.errors import LocalStackError
from sandbox.scylla.base.base_statements import BaseStatements
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.local_streams import LocalStreams, initial_tablets
from sandbox.scylla.log.log_table import log_ddl
from sandbox.scylla.refusals import base_of, captured_tablets
from sandbox.scylla.schema_changes import log_alters
from sandbox.scylla.shown_version import shown_version
from sandbox.scylla.tables import LogStatement, SimulatedTable, mark_log
from sandbox.scylla.write_times import system_clock_us
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from schemas.cql.types import ListType, user_types
from schemas.errors import SchemaError

Say = Callable[[str], None]

_VERBS: Final = ("create", "alter", "drop")
_KEYSPACE: Final = (("keyspace",), ("schema",))
_UNMARK: Final = "DELETE FROM system_schema.scylla_tables WHERE keyspace_name = ? AND table_name = ?"


class _Server(StatementServer):
    """A simulated server that reads table contents from a real one."""

    def __init__(self, session: WritingSession, keyspace: str) -> None:
        super().__init__(keyspace)
        self._session = session

    def base(self, table: Table) -> StoredBase:
        """The present content of a table."""
        schema = table.table_schema
        return StoredBase(self.rules(table).columns, lambda key: stored_partition(self._session, schema, key))


@dataclass(frozen=True, slots=True)
class _LogWrite:
    """The log rows of one group of a statement, as parameters of an INSERT."""

    statement: LogStatement
    rows: list[list[Any]]


class LocalCql:
    """Runs statements, one after the other. Not thread-safe."""

    def __init__(self, session: WritingSession, say: Say, clock: Callable[[], UnixMicros] = system_clock_us) -> None:
        """Attach to a server. If its cluster has no generation yet, create the first one.

        Args:
            session: session to the stack's server.
            say: receives a line for each statement.
            clock: returns the current time in Unix us.

        Raises:
            RetriableError, BridgeError: the server does not answer, or refuses the request.
        """
        self._session = session
        self._say = say
        self._clock = clock
        self._keyspace: str | None = None
        self._last_us = 0
        self._known: set[str] = set()
        self._server = _Server(session, "")
        self._streams = LocalStreams(session, clock)
        made_ms = self._streams.begin()
        if made_ms is not None:
            say(f"created the first stream generation, {made_ms}")

    def run(self, statements: list[SourceStatement], name: str) -> None:
        """Run statements in order, up to the first that fails.

        Args:
            statements: the statements.
            name: name of their source, for messages.

        Raises:
            LocalStackError: a statement could not be parsed or run. The message has its line and column.
        """
        for number, statement in enumerate(statements):
            try:
                self._say(f"{name}:{statement.place()}: {self._run_statement(statement)}")
            except (CqlError, SchemaError, BridgeError, ValueError) as error:
                at = error.at if isinstance(error, CqlError) else None
                before = f" ({number} before it {'was' if number == 1 else 'were'} run)" if number else ""
                message = f"{name}:{statement.place(at)}: {error}{before}"
                raise LocalStackError(message) from error

    def _run_statement(self, statement: SourceStatement) -> str:
        words = statement.words
        what = " ".join(words[:2]).upper()
        if words[:1] == ("use",):
            return self._use_keyspace(statement)
        if words[:1] == ("select",):
            return self._print_rows(statement)
        if words[1:2] in _KEYSPACE and words[0] in _VERBS:
            self._forget_tables()
            return f"{what}: {keyspaces.execute(self._session, statement, self._streams)}"
        if words[:2] == ("drop", "type"):
            self._session.execute(statement.text)
            self._forget_tables()
            return f"{what}: done"
        parsed = statement_of(statement.text)
        named = [self._full_name(one) for one in _named_tables(parsed)]
        for keyspace in {one.keyspace for one in named}:
            self._load_keyspace(keyspace)
        target = ".".join(named[0])
        if isinstance(parsed, InsertStatement | UpdateStatement | DeleteStatement | BatchStatement):
            verb = "BATCH" if isinstance(parsed, BatchStatement) else words[0].upper()
            return f"{verb} {target}: {self._write(parsed, statement.text, named)}"
        if isinstance(parsed, Truncate):
            self._session.execute(statement.text)
            return f"TRUNCATE {target}: done; ScyllaDB logs no truncation"
        return f"{what} {target}: {self._alter(parsed, statement.text, named[0])}"

    def _use_keyspace(self, statement: SourceStatement) -> str:
        self._session.execute(statement.text)
        word = statement.text.split(None, 1)[1].strip()
        self._keyspace = word[1:-1].replace('""', '"') if word.startswith('"') else word.lower()
        self._forget_tables()
        return f"USE {self._keyspace}: done"

    def _print_rows(self, statement: SourceStatement) -> str:
        rows = self._session.rows(statement.text)
        for row in rows:
            self._say("  " + ", ".join(f"{name}={_format_value(value)}" for name, value in row.items()))
        return f"SELECT: {_counted(len(rows), 'row')}"

    def _full_name(self, name: Name) -> TableName:
        keyspace = name.keyspace or self._keyspace
        if keyspace is None:
            raise CqlError(f"no keyspace is given for {name.name}: write keyspace.{name.name}, or USE one before")
        return TableName(keyspace, name.name)

    def _forget_tables(self) -> None:
        """Drop the cached definitions. They are read again when they are needed."""
        self._known.clear()
        self._server = _Server(self._session, self._keyspace or "")

    def _load_keyspace(self, keyspace: str) -> None:
        if keyspace in self._known:
            return
        user_types = stored_types(self._session, keyspace)
        tables = list(stored_tables(self._session, keyspace))
        self._server.catalog.learn(tables, keyspace, user_types)
        self._known.add(keyspace)
        captured = [table for table in tables if table.is_captured]
        for table in captured:
            self._bring_log_up_to_date(table)
        self._server.catalog.learn([replace(table, has_log=True) for table in captured], keyspace, ())

    def _bring_log_up_to_date(self, table: Table) -> None:
        schema = table.table_schema
        if not table.has_log:
            self._session.execute(log_ddl(schema, table.options))
            mark_log(self._session, schema.keyspace, schema.log_table)
            tablets = self._streams.log_made(schema.keyspace, schema.name)
            of = "" if tablets is None else f", with {_counted(tablets, 'tablet')}"
            self._say(f"created the log {schema.keyspace}.{schema.log_table}{of}")
            return
        for alter in log_alters(schema, stored_log_columns(self._session, schema)):
            self._session.execute(alter)

    def _alter(self, statement: Any, text: str, name: TableName) -> str:
        had_log = any(table.name == name and table.has_log for table in self._server.catalog.tables)
        # First in the catalog: if it refuses the statement, nothing has changed.
        self._server.catalog.apply(statement, self._clock())
        self._check_tablets(name)
        options = _tablet_options(statement)
        if options is None:
            self._session.execute(text)
        if isinstance(statement, DropTable):
            log = f"{name.name}_scylla_cdc_log" if had_log else name.name
            if had_log:
                self._session.execute(f"DROP TABLE IF EXISTS {quoted(name.keyspace)}.{quoted(log)}")
            cells = (name.keyspace.encode(), log.encode())
            self._session.write_raw(self._session.prepare(_UNMARK), cells).result()
            base = base_of(log)
            if base is not None:
                self._streams.log_dropped(name.keyspace, base)
        self._forget_tables()
        self._load_keyspace(name.keyspace)
        if options is not None:
            count = options.get("min_tablet_count", "")
            steps = self._streams.tablets_altered(*name, int(count)) if count.isdecimal() else ()
            return f"done; its tablets become {', then '.join(map(str, steps))}" if steps else "done"
        return "done, its log too" if had_log and isinstance(statement, DropTable) else "done"

    def _check_tablets(self, name: TableName) -> None:
        """Refuse CDC for a table with tablets in a version that does not support it.

        Raises:
            SchemaRefusal: the table has tablets and is captured now.
        """
        captured = any(table.name == name and table.is_captured for table in self._server.catalog.tables)
        if not captured or shown_version(self._session).captures_tablets:
            return
        if initial_tablets(self._session, name.keyspace) is not None:
            self._forget_tables()
            raise captured_tablets(*name)

    def _write(self, statement: Any, text: str, named: list[TableName]) -> str:
        for name in named:
            self._check_no_log(name)
        tables = [self._server.catalog.table(Name(*name)) for name in named]
        now_us = self._next_us()
        request = Request(now_us, now_us)
        if not any(table.is_captured for table in tables):
            self._write_base(statement, text, tables, request)
            return "done; the table is not captured"
        for one, table in zip(_single(statement), tables, strict=True):
            _check_lists(one, table)
        logged = self._server.execute(text, request)
        if not logged and _is_conditional(statement):
            return "not applied: its conditions do not hold"
        writes = [write for entry in logged for write in self._log_writes(entry, now_us)]
        # First the statement: if the server refuses it, the log must stay unchanged.
        self._write_base(statement, text, tables, request)
        for write in writes:
            self._session.write_batch(write.statement.prepared, write.rows).result()
        return f"done; {_counted(sum(len(write.rows) for write in writes), 'log row')}"

    def _write_base(self, statement: Any, text: str, tables: Sequence[Table], request: Request) -> None:
        """Run a statement on the base tables, except for what only the simulator understands of it."""
        if not any(
            _may_give_fields_by_place(one, table) for one, table in zip(_single(statement), tables, strict=True)
        ):
            self._session.execute(text)
            return
        by_name = {table.name: table for table in tables}
        for name, mutation in self._server.interpreter.mutations(statement, request):
            types = self._server.catalog.user_types(name.keyspace)
            base = BaseStatements(self._session, by_name[name].table_schema, user_types=types)
            stamp_us = request.timestamp_us if mutation.timestamp_us is None else mutation.timestamp_us
            for operation in mutation.operations:
                for prepared, cells in base.write(operation, mutation.partition_key, stamp_us):
                    self._session.write_raw(prepared, cells).result()

    def _check_no_log(self, name: TableName) -> None:
        """Refuse writes to a log table.

        Raises:
            CqlError: the name is a log table's.
        """
        base = base_of(name.name)
        if base is not None and any(one.name == (name.keyspace, base) for one in self._server.catalog.tables):
            raise CqlError(
                f"{name.keyspace}.{name.name} is a log, which only the server writes. Write to {name.keyspace}.{base}, "
                "and read its changes from the log"
            )

    def _log_writes(self, logged: Logged, now_us: UnixMicros) -> Iterator[_LogWrite]:
        table = logged.table
        user_types = self._server.catalog.user_types(table.table_schema.keyspace)
        statement = LogStatement(self._session, SimulatedTable(table.table_schema, table.options, user_types))
        token = murmur3_token(partition_key_bytes(logged.partition_key))
        for group in logged.groups:
            stream, generation_ms = self._streams.stream_for(
                table.table_schema.keyspace, table.table_schema.name, token, group.timestamp_us, now_us
            )
            # The variant bits, which ScyllaDB sets since 2026.1.
            low = (secrets.randbits(62) | 1 << 63).to_bytes(8, "big")
            place = Place(logged.partition_key, stream.raw, timeuuid_of(group.timestamp_us, low), generation_ms)
            yield _LogWrite(statement, statement.cells(group, place))

    def _next_us(self) -> UnixMicros:
        self._last_us = max(self._clock(), self._last_us + 1)
        return UnixMicros(self._last_us)


def _single(statement: Any) -> tuple[Any, ...]:
    return statement.statements if isinstance(statement, BatchStatement) else (statement,)


def _named_tables(statement: Statement) -> list[Name]:
    """The table or type that a statement names; for a batch, the table of each of its statements."""
    match statement:
        case BatchStatement(statements):
            if not statements:
                raise CqlError("a batch without statements does nothing")
            return [one.table for one in statements]
        case CreateType() | AlterType():
            return [statement.type]
        case CreateView():
            return [statement.base]
        case DropIndex():
            return [statement.index]
        case _:
            return [statement.table]


def _tablet_options(statement: Any) -> dict[str, str] | None:
    """The option `tablets` of an ALTER TABLE that has no other; the stack's server would refuse the statement."""
    options = statement.options if isinstance(statement, AlterTable) else None
    if options is None or set(options.values) != {"tablets"}:
        return None
    found = options.values["tablets"]
    return found if isinstance(found, dict) else {}


def _is_conditional(statement: Any) -> bool:
    return any(one.conditions is not None for one in _single(statement))


def _check_lists(statement: Any, table: Table) -> None:
    """Refuse writes that need the keys of a list's cells.

    Raises:
        CqlError: the statement writes or removes single elements of a list.
    """
    lists = {column.name for column in table.table_schema.values if isinstance(column.type, ListType)}
    parts: list[tuple[str, Selector, str]] = []
    if isinstance(statement, UpdateStatement):
        parts = [(one.column, one.selector, one.kind) for one in statement.assignments]
    elif isinstance(statement, DeleteStatement):
        parts = [(column, selector, "delete") for column, selector in statement.targets]
    for column, selector, kind in parts:
        if column in lists and (isinstance(selector, Element | ListCell) or kind == "subtract"):
            raise CqlError(
                f"table {table.table_schema.full_name}: the local stack cannot write single elements of the list "
                f"{column!r}, because its server does not return their keys. Set the whole list, append or prepend"
            )


def _may_give_fields_by_place(statement: Any, table: Table) -> bool:
    """Whether a tuple literal may stand for a user-defined type, which the stack's server does not understand."""
    values: tuple[Term, ...] = ()
    if isinstance(statement, InsertStatement):
        values = statement.values
    elif isinstance(statement, UpdateStatement):
        values = tuple(one.value for one in statement.assignments)
    has_types = any(True for column in table.table_schema.columns for _type in user_types(column.type))
    return has_types and any(map(holds_tuple, values))


def _format_value(value: object) -> str:
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return "null" if value is None else str(value)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
