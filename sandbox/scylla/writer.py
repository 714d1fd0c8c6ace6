"""Writes base tables and their CDC logs as ScyllaDB does, and records the acknowledged changes in the oracle."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from bridge.adapters.scylla.session import Prepared
from bridge.errors import RetriableError
from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.streams import Token
from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.scylla.base.base_statements import BaseStatements, WriteCells
from sandbox.scylla.base.mutations import Mutation
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.oracle import ExpectedChange, Oracle
from sandbox.scylla.schema_changes import SchemaChange
from sandbox.scylla.tables import LogStatement, SimulatedTable
from sandbox.scylla.values.ordering import Key
from sandbox.writing_session import WritingSession

_ATTEMPTS: Final = 5
_IN_FLIGHT: Final = 64

TimedMutation = tuple[UnixMicros, Mutation]
"""The coordinator's clock when a mutation arrives, and the mutation."""


@dataclass(slots=True)
class _Part:
    """One request of a write: a statement, or a batch of them on one partition."""

    prepared: Prepared
    rows: list[WriteCells]
    future: Future[None] | None = None

    @property
    def is_done(self) -> bool:
        return self.future is not None and self.future.done()

    def start(self, session: WritingSession) -> None:
        # One row needs no batch; several must become visible at once.
        if len(self.rows) == 1:
            self.future = session.write_raw(self.prepared, self.rows[0])
        else:
            self.future = session.write_batch(self.prepared, self.rows)


@dataclass(slots=True)
class _Write:
    """A mutation in progress: its requests, and the changes that it adds to the oracle when all have succeeded."""

    parts: list[_Part]
    changes: list[ExpectedChange]

    @property
    def is_done(self) -> bool:
        return all(part.is_done for part in self.parts)


@dataclass(slots=True)
class _PlacedGroup:
    """A group with its stream: the log rows as parameters, and the changes that a reader must see."""

    prepared: Prepared
    stream_id: bytes
    rows: list[WriteCells]
    changes: list[ExpectedChange]


@dataclass(slots=True)
class _Target:
    """A table with everything prepared."""

    captured: CapturedTable
    rules: LogRules
    log: LogStatement | None
    base: BaseStatements
    state: BaseState | None
    tokens: dict[Key, Token] = field(default_factory=dict)

    @classmethod
    def of(cls, session: WritingSession, table: SimulatedTable, *, keep_base: bool) -> _Target:
        captured = CapturedTable.of(table.table_schema, keys_only=table.options.delta == "keys")
        # A table that is not captured has a base only.
        log = LogStatement(session, table) if table.options.enabled else None
        state = table.base_state() if keep_base or table.options.images.wanted else None
        return cls(captured, table.rules(), log, table.base_statements(session), state)

    def token(self, partition_key: Key) -> Token:
        token = self.tokens.get(partition_key)
        if token is None:
            token = self.tokens[partition_key] = murmur3_token(partition_key_bytes(partition_key))
        return token


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Disable the cyclic garbage collector: its walks through the growing oracle take half of a load's time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Simulator:
    """Writes to captured tables of a simulated cluster. Not thread-safe; one writer for each set of tables.

    A mutation is acknowledged, and enters the oracle, when all its base and log writes have succeeded. A request with
    a retriable failure is repeated unchanged, with the same `cdc$time`.
    """

    def __init__(
        self,
        session: WritingSession,
        cluster: SimulatedCluster,
        tables: Sequence[SimulatedTable],
        *,
        seed: int,
        oracle: Oracle | None = None,
        rfc_variant: bool = False,
        keep_base: bool = False,
    ) -> None:
        """Prepare the tables' statements; the tables must exist.

        Args:
            session: where to write.
            cluster: decides the streams; needs a generation before the first write.
            tables: the tables that will be written.
            seed: decides the random half of each `cdc$time`.
            oracle: what was acknowledged goes here; None makes one in memory.
            rfc_variant: set the variant bits of `cdc$time`, as servers do since 2026.1; before, they are random.
            keep_base: keep every base table in memory (see `base`), and not only those whose log has images.

        Raises:
            RetriableError, BridgeError: as `CqlSession.prepare`.
            ValueError: a table's key has a type that can't be ordered, or a UDT without fields.
        """
        self._session = session
        self._cluster = cluster
        self._targets = {table.table_schema: _Target.of(session, table, keep_base=keep_base) for table in tables}
        self._random = Random(f"{seed}/writer")  # noqa: S311  # simulated data, wanted to be repeatable
        self._rfc_variant = rfc_variant
        self._last_us = 0
        self.oracle = Oracle() if oracle is None else oracle

    def follow(self, change: SchemaChange) -> None:
        """Use a table's new schema after an applied schema change. The content in memory is kept.

        Raises:
            KeyError: the table is not one of the simulator's.
            RetriableError, BridgeError: as `CqlSession.prepare`.
        """
        old = self._targets.pop(change.before.table_schema)
        new = _Target.of(self._session, change.after, keep_base=old.state is not None)
        if old.state is not None:
            old.state.alter(new.rules.columns, dropped=change.dropped)
            new.state = old.state
        self._targets[change.after.table_schema] = new

    def base(self, table: SimulatedTable) -> BaseState:
        """The content of a table that this simulator has written; rows that were in the database before are missing.

        Raises:
            ValueError: the table is not kept.
        """
        state = self._targets[table.table_schema].state
        if state is None:
            raise ValueError(f"{table.table_schema.full_name} is not kept in memory: give `keep_base`")
        return state

    def write(
        self, table: SimulatedTable, mutation: Mutation, now_us: UnixMicros, *, times: int = 1
    ) -> list[ExpectedChange]:
        """Write one mutation and wait until it is acknowledged.

        Args:
            table: one of the simulator's.
            mutation: what to write. Without a timestamp of its own it takes the clock's, made greater than every
                earlier one so that no two groups share a microsecond.
            now_us: the coordinator's clock.
            times: how often the request arrives. A client without an answer repeats its request with the same
                timestamp. This leaves groups of equal content and microsecond, each with another low half.

        Returns:
            The changes written, which are in the oracle too.

        Raises:
            SimulatorRefusal: ScyllaDB would refuse the timestamp; nothing was written.
            RetriableError, BridgeError: the server failed; parts of the write may be there.
        """
        target = self._targets[table.table_schema]
        if mutation.timestamp_us is None:
            now_us = self._next_us(now_us)
            mutation = replace(mutation, timestamp_us=now_us)
        changes = []
        for _ in range(times):
            write = self._plan(target, mutation, now_us, base=True)
            self._start(write)
            self._settle(write)
            changes += write.changes
        return changes

    def write_many(
        self,
        table: SimulatedTable,
        mutations: Iterable[TimedMutation],
        *,
        base: bool = True,
        in_flight: int = _IN_FLIGHT,
    ) -> int:
        """Write mutations, several at a time, and return their number. Errors as `write`.

        The iterable may wait between mutations: finished writes enter the oracle before the next one is taken.
        """
        target = self._targets[table.table_schema]
        pending: deque[_Write] = deque()
        count = 0
        for now_us, mutation in mutations:
            write = self._plan(target, mutation, now_us, base=base)
            self._start(write)
            pending.append(write)
            count += 1
            while pending and (len(pending) >= in_flight or pending[0].is_done):
                self._settle(pending.popleft())
        while pending:
            self._settle(pending.popleft())
        return count

    def load(
        self,
        table: SimulatedTable,
        mutations: Iterable[TimedMutation],
        *,
        batch_rows: int = 100,
        in_flight: int = 32,
    ) -> int:
        """Write the log rows of many mutations as fast as possible, without base rows; return the number of rows.

        Rows are collected by stream into unlogged batches of whole groups. Each mutation counts as arriving at its own
        time, so old times are accepted.

        Args:
            table: one of the simulator's.
            mutations: with their times, which need not ascend.
            batch_rows: a stream's rows are sent once there are this many.
            in_flight: batches under way.

        Raises:
            SimulatorRefusal: no generation takes a time; what came before is written or under way.
            RetriableError, BridgeError: the server failed; an unknown part is written.
        """
        with _no_garbage_collection():
            return self._load(self._targets[table.table_schema], mutations, batch_rows, in_flight)

    def _load(self, target: _Target, mutations: Iterable[TimedMutation], batch_rows: int, in_flight: int) -> int:
        gathered: dict[bytes, _Write] = {}
        pending: deque[_Write] = deque()
        count = 0

        def send(write: _Write) -> None:
            if len(pending) >= in_flight:
                self._settle(pending.popleft())
            self._start(write)
            pending.append(write)

        for now_us, mutation in mutations:
            for group in self._groups(target, mutation, now_us)[1]:
                write = gathered.get(group.stream_id)
                if write is None:
                    write = gathered[group.stream_id] = _Write([_Part(group.prepared, [])], [])
                write.parts[0].rows += group.rows
                write.changes += group.changes
                count += len(group.rows)
                if len(write.parts[0].rows) >= batch_rows:
                    send(gathered.pop(group.stream_id))
        for write in gathered.values():
            send(write)
        while pending:
            self._settle(pending.popleft())
        return count

    def _plan(self, target: _Target, mutation: Mutation, now_us: UnixMicros, *, base: bool) -> _Write:
        # Plan the log before anything is sent: a refused mutation must write nothing.
        stamp_us, groups = self._groups(target, mutation, now_us)
        write = _Write([], [])
        for group in groups:
            write.parts.append(_Part(group.prepared, group.rows))
            write.changes += group.changes
        if base:
            for operation in mutation.operations:
                for prepared, cells in target.base.write(operation, mutation.partition_key, stamp_us):
                    write.parts.append(_Part(prepared, [cells]))
        return write

    def _groups(self, target: _Target, mutation: Mutation, now_us: UnixMicros) -> tuple[UnixMicros, list[_PlacedGroup]]:
        """The mutation's timestamp, and its groups with their streams."""
        stamp_us, clock_us = mutation.timestamp_us, now_us
        if stamp_us is None:
            # A clock that two mutations share is moved on, so that its own timestamps are not in its future.
            stamp_us = clock_us = self._next_us(now_us)
        key = mutation.partition_key
        token = target.token(key)
        placed = []
        log = target.log
        if log is not None:
            for group in log_groups(target.rules, mutation, stamp_us, base=target.state, now_us=clock_us):
                stream, generation_ms = self._cluster.stream_for(token, group.timestamp_us, clock_us)
                place = Place(key, stream.raw, timeuuid_of(group.timestamp_us, self._low_half()), generation_ms)
                changes = expected_changes(target.captured, group, place)
                placed.append(_PlacedGroup(log.prepared, stream.raw, log.cells(group, place), changes))
        if target.state is not None:
            target.state.write(mutation, stamp_us, clock_us)
        return stamp_us, placed

    def _next_us(self, now_us: UnixMicros) -> UnixMicros:
        self._last_us = max(now_us, self._last_us + 1)
        return UnixMicros(self._last_us)

    def _low_half(self) -> bytes:
        low = self._random.randbytes(8)
        return bytes((0x80 | low[0] & 0x3F,)) + low[1:] if self._rfc_variant else low

    def _start(self, write: _Write) -> None:
        for part in write.parts:
            part.start(self._session)

    def _settle(self, write: _Write) -> None:
        for part in write.parts:
            self._await(part)
        self.oracle.extend(write.changes)

    def _await(self, part: _Part) -> None:
        for _ in range(_ATTEMPTS - 1):
            assert part.future is not None
            try:
                part.future.result()
            except RetriableError:
                part.start(self._session)
            else:
                return
        assert part.future is not None
        part.future.result()
