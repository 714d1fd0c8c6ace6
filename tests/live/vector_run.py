"""Runs one vector on a server and in the simulator, and compares what both log and what the bridge makes of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from typing import Final, NamedTuple

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.cql.catalog import Table
from sandbox.cql.interpret import Request
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.server import Logged, StatementServer
from sandbox.recordings.recording import LogRow
from sandbox.recordings.request_times import RequestTimes
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.log.log_rows import LogGroup
from sandbox.scylla.refusals import SchemaRefusal
from sandbox.scylla.tables import resolved
from sandbox.scylla.values.nested import unpack_pairs
from sandbox.scylla.values.ordering import Key
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import TableSchema
from schemas.cql.types import ListType
from tests.live.vector_server import Refusal, VectorServer
from tests.unit.sandbox.scylla.log_records import Group, order_of, recorded_groups, records_of
from tests.unit.sandbox.scylla.read_back import BridgeReader
from tests.unit.sandbox.scylla.vectors import Filling, LoggedGroup, Vector, expire, problems

_WRITES: Final = ("INSERT", "UPDATE", "DELETE", "BEGIN")
_EXPIRED_AGO_S: Final = 60
_POLL_S: Final = 0.2
_SETTING_NEEDED: Final = "config option to 'true'"
"""In a server's refusal of a feature that one of its settings allows."""


class Stopped(Exception):  # noqa: N818  # it ends a vector, it is no failure of the program
    """The server refuses a statement, or does not do what a statement waits for.

    Attributes:
        is_last: whether it is the vector's last statement.
        is_setting: whether the server could do it, but a setting of it is against that.
    """

    def __init__(self, refusal: Refusal, *, is_last: bool, is_setting: bool = False) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.is_last = is_last
        self.is_setting = is_setting or _SETTING_NEEDED in refusal.message


class VectorRun:
    """One vector in an empty keyspace.

    Attributes:
        vector: filled.
        differences: where server, simulator and bridge disagree.
        facts: where the server's log is not what the vector says.
        row_count: the log rows that the server wrote.
    """

    def __init__(self, server: VectorServer, vector: Vector, *, is_current: bool, patience_s: float) -> None:
        """Take the server, whose keyspace is empty.

        Args:
            server: where to run the vector.
            vector: with its placeholders.
            is_current: whether the server is ScyllaDB 2026.1 or later.
            patience_s: how long to wait for the server's delete of an expired row.
        """
        self._server = server
        self._log = ChangeLog(server.session)
        now_us = self._log.node_time().time_us
        past_s = now_us // 1_000_000 - _EXPIRED_AGO_S
        self.vector = Filling(server.keyspace, now_us, past_s, earliest_us=now_us).fill(vector)
        self._simulator = StatementServer(server.keyspace, is_current=is_current)
        self._patience_s = patience_s
        self._seen: set[tuple[bytes | None, bytes | None]] = set()
        self._groups: list[LoggedGroup] = []
        self.differences: list[str] = []
        self.facts: list[str] = []
        self.row_count = 0

    def carry_out(self) -> None:
        """Run all statements, then compare the log with the vector.

        Raises:
            Stopped: the server refuses a statement.
            RetriableError, BridgeError: the server does not answer.
        """
        statements = [*self.vector.get("tables", ()), *self.vector["statements"]]
        for number, statement in enumerate(statements):
            is_last = number == len(statements) - 1
            if isinstance(statement, dict):
                self._await_expiry(statement["expires"], is_last=is_last)
                continue
            refusal = self._server.execute(statement)
            if refusal is not None:
                raise Stopped(refusal, is_last=is_last)
            if statement.startswith(_WRITES):
                self._compare(statement)
            elif statement.startswith("SELECT"):
                self._read_nothing(statement)
            else:
                self._change_schema(statement)
        if "log" in self.vector:
            self._groups.sort(key=lambda group: group[1])
            self.facts += problems(self._simulator, self._groups, self.vector)

    def simulated_refusal(self) -> Refusal | None:
        """What the simulator answers to the last statement, which the server has refused."""
        now_us = self._log.node_time().time_us
        try:
            self._simulator.execute(self.vector["statements"][-1], Request(now_us, now_us))
        except CqlError as error:
            return Refusal(None, str(error))
        except SchemaRefusal as error:
            return Refusal(error.code, str(error))
        return None

    def _read_nothing(self, statement: str) -> None:
        """Every query of a vector has an empty result."""
        count = sum(1 for _row in self._server.session.cells(statement))
        if count:
            self.facts.append(f"{statement!r} returns {count} rows, expected none")

    def _change_schema(self, statement: str) -> None:
        now_us = self._log.node_time().time_us
        try:
            self._simulator.execute(statement, Request(now_us, now_us))
        except (CqlError, SchemaRefusal) as error:
            self.differences.append(f"the server carries out {statement!r}, the simulator refuses it: {error}")
            return
        for table in self._simulator.catalog.tables:
            simulated = self._resolved(table)
            stored = self._log.table_schema(*table.name)
            if simulated != stored:
                self.differences.append(f"after {statement!r} the server has {stored}, the simulator {simulated}")

    def _await_expiry(self, text: str, *, is_last: bool) -> None:
        """Wait until the server itself deletes what a DELETE names."""
        period_s = self._server.expiry_period_s()
        if period_s is not None and period_s > self._patience_s:
            message = f"the server looks for expired rows every {period_s:g} s (alternator_ttl_period_in_seconds)"
            raise Stopped(Refusal(None, message), is_last=is_last, is_setting=True)
        give_up_s = time.monotonic() + self._patience_s
        while not (found := self._new_rows()):
            if time.monotonic() > give_up_s:
                message = f"no row was deleted within {self._patience_s:.0f} s of its time"
                raise Stopped(Refusal(None, message), is_last=is_last)
            time.sleep(_POLL_S)
        at_us = min(_stamps(found))
        self._hold(text, [expire(self._simulator, text, Request(at_us, at_us))], found)

    def _compare(self, statement: str) -> None:
        found = self._new_rows()
        now_us, stamps = self._log.node_time().time_us, _stamps(found)
        try:
            at_us = RequestTimes([(statement, ())], self._simulator.catalog).of_request(stamps)
            request = Request(at_us or min(stamps, default=now_us), now_us, tuple(_list_keys(found)))
            logged = self._simulator.execute(statement, request)
        except CqlError as error:
            self.differences.append(f"the server carries out {statement!r}, the simulator refuses it: {error}")
            return
        self._hold(statement, logged, found)

    def _hold(self, statement: str, logged: list[Logged], found: list[ServerGroup]) -> None:
        """Hold what a statement left on the server against what it leaves in the simulator."""
        found = sorted(found, key=lambda one: order_of(one.group))
        simulated = sorted(_simulated(logged), key=lambda one: order_of(one.group))
        self.row_count += sum(len(one.rows) for one in found)
        self._groups += [(one.table, one.group[0], list(one.group[1])) for one in found]
        if [one.group for one in found] != [one.group for one in simulated]:
            theirs, ours = ([one.group for one in part] for part in (found, simulated))
            self.differences.append(f"{statement!r}: the server logs {theirs}, the simulator {ours}")
            return
        for server, mine in zip(found, simulated, strict=True):
            first = server.rows[0]
            place = Place(mine.key, first["cdc$stream_id"] or b"", first["cdc$time"] or b"", UnixMillis(1))
            schema = self._log.table_schema(*server.table.name)
            bridge = BridgeReader(schema, tuple(first), server.table.options)
            read, wanted = bridge.found([tuple(row.values()) for row in server.rows]), bridge.wanted(mine.logged, place)
            if read != wanted:
                self.differences.append(f"{statement!r}: the bridge reads {read}, the changes are {wanted}")

    def _resolved(self, table: Table) -> TableSchema:
        return resolved(table.table_schema, self._simulator.catalog.user_types(table.name.keyspace))

    def _new_rows(self) -> list[ServerGroup]:
        """The groups of all logs that were not there before."""
        found = []
        for table in self._simulator.catalog.tables:
            if not table.has_log:
                continue
            rows = log_rows(self._server.session, table)
            for place, members in groupby(rows, key=lambda row: (row["cdc$stream_id"], row["cdc$time"])):
                if place not in self._seen:
                    self._seen.add(place)
                    found.append(ServerGroup.of(table, list(members)))
        return found


class ServerGroup(NamedTuple):
    """A group as the server has it."""

    table: Table
    group: Group
    rows: list[LogRow]

    @classmethod
    def of(cls, table: Table, rows: list[LogRow]) -> ServerGroup:
        (group,) = recorded_groups(rows)
        return cls(table, group, rows)


class SimulatedGroup(NamedTuple):
    """A group as the simulator logs it."""

    group: Group
    logged: LogGroup
    key: Key


def log_rows(session: WritingSession, table: Table) -> list[LogRow]:
    """Every row of a table's log: partitions in the server's order, rows in clustering order."""
    schema = table.table_schema
    select = session.prepare(f"SELECT * FROM {quoted(schema.keyspace)}.{quoted(schema.log_table)}", again=True)
    found: list[LogRow] = []
    state: bytes | None = None
    while True:
        page = session.page(select, (), page_rows=5000, paging_state=state).result()
        found += [dict(zip(page.columns, row, strict=True)) for row in page.rows]
        state = page.paging_state
        if state is None:
            return found


def _simulated(logged: list[Logged]) -> Iterator[SimulatedGroup]:
    for entry in logged:
        for group, records in zip(entry.groups, records_of(entry), strict=True):
            yield SimulatedGroup((group.timestamp_us, tuple(records)), group, entry.partition_key)


def _stamps(groups: list[ServerGroup]) -> set[UnixMicros]:
    return {one.group[0] for one in groups}


def _list_keys(groups: list[ServerGroup]) -> Iterator[bytes]:
    """Keys of the list cells that rows show."""
    for table, _group, rows in groups:
        lists = [column.name for column in table.table_schema.values if isinstance(column.type, ListType)]
        for row in rows:
            cells = (row[name] for name in lists)
            yield from {key for cell in cells if cell is not None for key, _value in unpack_pairs(cell)}
