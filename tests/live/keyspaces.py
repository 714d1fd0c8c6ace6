"""The keyspaces and tables of a run: created at its beginning, removed at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.live.server import RefusedError, Server, UnsettledError, now_us
from tests.live.tables import Table, counter_table, create_type, table_of, user_types

KINDS: Final = ("vnodes", "tablets")
_STREAMS_WITHIN_S: Final = 180.0
"""A cluster's first streams begin about a minute after they were made."""
_REPLICATION: Final = {
    "vnodes": "{{'class': 'SimpleStrategy', 'replication_factor': {factor}}}",
    "tablets": "{{'class': 'NetworkTopologyStrategy', '{datacenter}': {factor}}}",
}


@dataclass(slots=True)
class Keyspaces:
    """Keyspaces with tables of the given shapes.

    Attributes:
        tables: every table.
        transactions: full names of the tables that take lightweight transactions.
        names: the keyspaces.
    """

    server: Server
    say: Callable[[str], None]
    tables: list[Table] = field(default_factory=list)
    transactions: set[str] = field(default_factory=set)
    names: list[str] = field(default_factory=list)

    def create(self, prefix: str, kinds: Sequence[str] | None, shapes: Sequence[str], factor: int) -> None:
        """Create a keyspace of each kind with its types and tables.

        Args:
            prefix: begin of the keyspaces' names.
            kinds: `vnodes` and `tablets`; None for those that the server has.
            shapes: names of the tables.
            factor: number of replicas.

        Raises:
            RefusedError: the server refuses a statement.
            AssertionError: it does not refuse one that it must.
        """
        for kind in kinds or KINDS:
            name = f"{prefix}_{kind}"
            try:
                self._create_keyspace(kind, name, factor)
                self._execute(f"CREATE TABLE {name}.probe (pk int PRIMARY KEY, v int) WITH cdc = {{'enabled': 'true'}}")
            except RefusedError as error:
                if kinds is not None:
                    raise
                self.say(f"no keyspace with {kind} here: {error}")
                self._execute(f"DROP KEYSPACE IF EXISTS {name}")
                continue
            self._fill(kind, name, shapes)

    def drop(self) -> None:
        """Remove the keyspaces."""
        for name in self.names:
            self._execute(f"DROP KEYSPACE IF EXISTS {name}")

    def _create_keyspace(self, kind: str, name: str, factor: int) -> None:
        replication = _REPLICATION[kind].format(factor=factor, datacenter=self.server.datacenter)
        create = f"CREATE KEYSPACE {name} WITH replication = {replication}"
        option = f" AND tablets = {{'enabled': {'true' if kind == 'tablets' else 'false'}}}"
        try:
            self._execute(create + option)
        except RefusedError:
            if kind == "tablets":
                raise
            # A server from before tablets does not know the option.
            self._execute(create)
        self.names.append(name)

    def _fill(self, kind: str, name: str, shapes: Sequence[str]) -> None:
        takes_transactions = True
        try:
            self._await_streams(f"UPDATE {name}.probe SET v = 1 WHERE pk = 1")
            self._execute(f"INSERT INTO {name}.probe (pk, v) VALUES (1, 1) IF NOT EXISTS")
        except RefusedError as error:
            if kind == "vnodes":
                raise
            takes_transactions = False
            self.say(f"no lightweight transactions with {kind}: {error}")
        self._execute(f"DROP TABLE {name}.probe")
        try:
            self._execute(counter_table(name))
        except RefusedError as error:
            self.say(f"a counter table is refused, as it should be: {error}")
        else:
            raise AssertionError(f"{name}: the server captures a counter table")
        types = user_types()
        for udt in types:
            self._execute(create_type(name, udt))
        for shape in shapes:
            table = table_of(name, shape, types)
            self._execute(table.create())
            self._create_beside(kind, table)
            self.tables.append(table)
            if takes_transactions:
                self.transactions.add(table.full_name)

    def _create_beside(self, kind: str, table: Table) -> None:
        for statement in table.beside() if self.server.is_real else ():
            try:
                self._execute(statement)
            except RefusedError as error:
                # With tablets, views need options of the cluster.
                if kind == "vnodes":
                    raise
                self.say(f"not beside {table.full_name}: {error}")

    def _await_streams(self, write: str) -> None:
        """Repeat a write until the server has streams for it."""
        deadline_s = time.monotonic() + _STREAMS_WITHIN_S
        while True:
            try:
                return self._execute(write)
            except UnsettledError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.5)

    def _execute(self, cql: str) -> None:
        self.server.execute(cql, now_us())
