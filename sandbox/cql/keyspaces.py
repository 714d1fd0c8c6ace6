"""Keyspaces with and without tablets: the option `tablets`, which the local stack's server does not support."""

from __future__ import annotations

from typing import Final, NamedTuple

from sandbox.cql.parser.cursor import Cursor
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.lexer import Kind
from sandbox.cql.parser.source import SourceStatement
from sandbox.scylla.cluster.tablets import mark_tablets
from sandbox.scylla.local_streams import LocalStreams, initial_tablets
from sandbox.scylla.refusals import base_of
from sandbox.scylla.shown_version import shown_version
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted

_THERE: Final = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
_TABLES: Final = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?"
_BOOLEANS: Final = {"true": True, "false": False}


class TabletsOption(NamedTuple):
    """`tablets = {'enabled': true, 'initial': 8}`.

    Attributes:
        is_enabled: whether the keyspace has tablets.
        initial: initial number of tablets of its tables, a power of two; 0 lets the server choose.
    """

    is_enabled: bool
    initial: int = 0


class KeyspaceStatement(NamedTuple):
    """A `CREATE`, `ALTER` or `DROP KEYSPACE`; `tablets` is None if the statement does not have the option."""

    verb: str
    name: str
    tablets: TabletsOption | None


def keyspace_statement(text: str) -> KeyspaceStatement:
    """Parse a statement on a keyspace.

    Raises:
        CqlError: it names no keyspace, or ScyllaDB would refuse its option `tablets`.
    """
    cursor = Cursor(text)
    verb = cursor.take().word
    cursor.take()
    if not cursor.accept("if", "not", "exists"):
        cursor.accept("if", "exists")
    name = cursor.identifier()
    while cursor.peek().kind is not Kind.END:
        if cursor.accept("tablets", "=", "{"):
            return KeyspaceStatement(verb, name, _option(dict(cursor.listed(lambda: _entry(cursor), "}"))))
        cursor.take()
    return KeyspaceStatement(verb, name, None)


def execute(session: WritingSession, statement: SourceStatement, streams: LocalStreams) -> str:
    """Run a statement on a keyspace, record whether the keyspace has tablets, and return a text on what was done.

    Raises:
        CqlError: ScyllaDB or the local stack refuses the statement.
        RetriableError, BridgeError: the server does not answer, or refuses it.
    """
    verb, name, tablets = keyspace_statement(statement.text)
    if verb == "alter" and tablets is not None:
        raise CqlError(
            f"keyspace {name}: the option tablets can't be altered on the local stack; a keyspace keeps the kind that "
            "it was made with, on ScyllaDB too"
        )
    if tablets is not None and not shown_version(session).has_tablets:
        raise CqlError("Unknown property 'tablets'")
    there = bool(session.rows(_THERE, (name,)))
    had_tablets = there and initial_tablets(session, name) is not None
    tables = [row["table_name"] for row in session.rows(_TABLES, (name,))] if had_tablets else []
    session.execute(statement.text)
    if verb == "drop" and had_tablets:
        for base in filter(None, map(base_of, tables)):
            streams.log_dropped(name, base)
        mark_tablets(session, name, None)
    if verb != "create" or there:
        return "done"
    if tablets is None or not tablets.is_enabled:
        # Another program may have dropped a keyspace of this name.
        mark_tablets(session, name, None)
        return "done"
    mark_tablets(session, name, tablets.initial)
    return f"done, with tablets: {initial_tablets(session, name)} for each table at first"


def _entry(cursor: Cursor) -> tuple[str, str]:
    key = cursor.take().text
    cursor.expect(":")
    return key, cursor.take().text


def _option(given: dict[str, str]) -> TabletsOption:
    """Parse the option's map.

    Raises:
        CqlError: it has an unknown key or value.
    """
    unknown = [key for key in given if key not in ("enabled", "initial")]
    if unknown:
        raise CqlError(f"tablets has 'enabled' and 'initial', not {quoted(unknown[0])}")
    is_enabled = _BOOLEANS.get(given.get("enabled", "true").lower())
    if is_enabled is None:
        raise CqlError(f"tablets: 'enabled' is true or false, not {given['enabled']}")
    initial = given.get("initial", "0")
    if not initial.isdecimal():
        raise CqlError(f"tablets: 'initial' is a number of tablets, not {initial}")
    # Like ScyllaDB, round up to the next power of two.
    return TabletsOption(is_enabled, 1 << (int(initial) - 1).bit_length() if int(initial) else 0)
