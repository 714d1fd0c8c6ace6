"""The servers that vectors run on: a ScyllaDB, or the local stack with its simulator."""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from bridge.errors import BridgeError
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.source import statements_of
from sandbox.errors import LocalStackError
from sandbox.scylla.refusals import SchemaRefusal
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from tests.unit.sandbox.scylla.vectors import Vector

_REFUSAL = re.compile(r'code=(\w{4}) \[[^]]*\] message="(.*)"', re.DOTALL)
_VERSION = "SELECT version FROM system.versions WHERE key = 'local'"
_SETTING = "SELECT value FROM system.config WHERE name = ?"
_KEYSPACE = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
_COLUMN = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?"


class Refusal(NamedTuple):
    """A statement that a server refuses.

    Attributes:
        code: the error's code in CQL's protocol; None if the local stack refuses without one.
        message: the server's text.
    """

    code: int | None
    message: str


class VectorServer(Protocol):
    """A server, and the keyspace that is the vectors' own."""

    session: WritingSession
    keyspace: str
    release: str | None
    """ScyllaDB's release, such as 5.2.18; None for the local stack, which simulates the newest one."""

    def execute(self, text: str) -> Refusal | None:
        """Run a statement; return the refusal if there is one.

        Raises:
            RetriableError, BridgeError: the server did not answer.
        """

    def limit(self, vector: Vector) -> str | None:
        """Why the server cannot show what a vector is about, if that is known without running it."""

    def expiry_period_s(self) -> float | None:
        """How often the server looks for rows that have expired; None if it does not say."""

    def clear(self) -> None:
        """Drop the keyspace and everything in it, and create it again."""

    def drop(self) -> None:
        """Drop the keyspace."""


class ScyllaServer:
    """A ScyllaDB."""

    def __init__(self, session: WritingSession, keyspace: str, *, tablets: bool = False) -> None:
        """Take the session.

        Args:
            session: to the server.
            keyspace: its name; it must not exist.
            tablets: whether the keyspace has tablets.

        Raises:
            ValueError: the keyspace exists, or the server has no tablets.
            RetriableError, BridgeError: the server does not answer, or is no ScyllaDB.
        """
        self.session = session
        self.keyspace = keyspace
        (row,) = session.rows(_VERSION)
        self.release: str | None = row["version"]
        if session.rows(_KEYSPACE, (keyspace,)):
            raise ValueError(f"keyspace {keyspace} exists already")
        columns = {row["column_name"] for row in session.rows(_COLUMN, ("system_schema", "scylla_keyspaces"))}
        knows_tablets = "initial_tablets" in columns
        if tablets and not knows_tablets:
            raise ValueError(f"ScyllaDB {self.release} has no tablets")
        self._options = f" AND tablets = {{'enabled': {str(tablets).lower()}}}" if knows_tablets else ""

    def execute(self, text: str) -> Refusal | None:
        """See `VectorServer`."""
        try:
            self.session.execute(text)
        except BridgeError as error:
            found = _REFUSAL.search(str(error.__cause__))
            if found is None:
                raise
            return Refusal(int(found[1], 16), found[2])
        return None

    def limit(self, vector: Vector) -> str | None:
        """See `VectorServer`: the statements themselves ask the server."""
        return None

    def expiry_period_s(self) -> float | None:
        """See `VectorServer`."""
        rows = self.session.rows(_SETTING, ("alternator_ttl_period_in_seconds",))
        return float(rows[0]["value"]) if rows else None

    def clear(self) -> None:
        """See `VectorServer`."""
        self.drop()
        self.session.execute(
            f"CREATE KEYSPACE {quoted(self.keyspace)} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': 1}}{self._options}"
        )

    def drop(self) -> None:
        """See `VectorServer`."""
        self.session.execute(f"DROP KEYSPACE IF EXISTS {quoted(self.keyspace)}")


class StackServer:
    """The local stack: statements go through the simulator, which writes the log to the stack's CQL server."""

    release: str | None = None

    def __init__(self, session: WritingSession, keyspace: str) -> None:
        """Take the session, and a keyspace that does not exist."""
        self.session = session
        self.keyspace = keyspace
        self._cql = LocalCql(session, lambda _line: None)

    def execute(self, text: str) -> Refusal | None:
        """See `VectorServer`."""
        try:
            self._cql.run(statements_of(text, "vector"), "vector")
        except LocalStackError as error:
            cause = error.__cause__
            return Refusal(cause.code, str(cause)) if isinstance(cause, SchemaRefusal) else Refusal(None, str(error))
        return None

    def limit(self, vector: Vector) -> str | None:
        """See `VectorServer`."""
        ddl = " ".join(vector.get("tables", ()))
        if " list<" in ddl and ("'preimage'" in ddl or "'postimage'" in ddl):
            return "images of lists need the keys of stored cells, which the stack's server does not return"
        return None

    def expiry_period_s(self) -> float | None:
        """See `VectorServer`."""
        return None

    def clear(self) -> None:
        """See `VectorServer`."""
        self.drop()
        refusal = self.execute(
            f"CREATE KEYSPACE {quoted(self.keyspace)} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        assert refusal is None, refusal

    def drop(self) -> None:
        """See `VectorServer`."""
        refusal = self.execute(f"DROP KEYSPACE IF EXISTS {quoted(self.keyspace)}")
        assert refusal is None, refusal
