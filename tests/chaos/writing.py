"""Writes two tables at a steady rate, in a thread of its own, while their streams change.

One table is in a keyspace with vnodes, whose generations follow each other; the other one in a keyspace with tablets,
which split and merge.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from bridge.config.document import ScyllaSettings
from bridge.errors import BridgeError
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, mark_tablets, merge, split
from sandbox.scylla.oracle import Oracle
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Mix, Workload
from sandbox.scylla.write_times import system_clock_us
from sandbox.scylla.writer import Simulator, TimedMutation
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.chaos.witness import Columns, Place

_WITH_TABLETS: Final = "chaos_tablets.clicks"
TABLES: Final = {
    "chaos.orders": Columns(
        (("pk", "int"), ("part", "text")), (("ck", "bigint"),), (("s", "text"), ("v", "text"), ("n", "bigint"))
    ),
    _WITH_TABLETS: Columns((("pk", "bigint"),), (("ck", "int"),), (("v", "text"), ("w", "int"))),
}
_STATIC: Final = "s"
MIX: Final = Mix(batches=0.3, extremes=0.0, partition_deletes=0.2, ttls_s=(3600, 86_400))
_BURST: Final = 10
_CHANGE_EVERY_S: Final = 9.0
"""From one change of streams to the next, which is one of the other table's."""
_FIRST_TABLETS: Final = 4
_FEWEST_TABLETS, _MOST_TABLETS = 2, 8


class _Lines:
    """Where the oracle writes: a list of lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> int:
        self.lines.append(line)
        return len(line)


class Writing(threading.Thread):
    """The writer; `error` is what ended it, if anything did."""

    def __init__(self, cql: str, *, seed: int, rate_per_s: float, late_after_s: float) -> None:
        """Make the tables and their first streams.

        Args:
            cql: the server.
            seed: decides streams, and with `take_up` what is written.
            rate_per_s: mutations a second.
            late_after_s: a change acknowledged later than this after its own time need not arrive.
        """
        super().__init__(daemon=True)
        self.error: BaseException | None = None
        self.late: list[Place] = []
        self.generations = 2
        self._lines = _Lines()
        self._rate_per_s, self._late_after_s = rate_per_s, late_after_s
        self._ended = threading.Event()
        self._still = threading.Lock()
        self._session = WritingSession.connect(
            ScyllaSettings(contact_points=cql, consistency="ONE", request_timeout_ms=60_000)
        )
        self._cluster = SimulatedCluster(self._session, seed=seed)
        self._cluster.reset()
        began_ms = UnixMillis(system_clock_us() // 1000 - 1000)
        self._cluster.add_generation(began_ms)
        keyspace, _, table = _WITH_TABLETS.partition(".")
        mark_tablets(self._session, keyspace)
        self._tablets = SimulatedTablets(self._session, keyspace, table, seed=seed)
        self._tablets.drop()
        self._tablets.create(began_ms, _FIRST_TABLETS)
        self._unpublished: tuple[float, Callable[[], None]] | None = None
        self._tables = [SimulatedTable(schema_of(name, columns)) for name, columns in TABLES.items()]
        for table in self._tables:
            table.drop(self._session)
            table.create(self._session)
        oracle = Oracle(self._lines)  # type: ignore[arg-type]  # all that it does is write
        self._simulators = {
            table: Simulator(self._session, streams, [table], seed=seed, oracle=oracle)  # type: ignore[arg-type]
            for table in self._tables
            for streams in [self._tablets if table.table_schema.full_name == _WITH_TABLETS else self._cluster]
        }
        self.take_up(seed)

    @property
    def written(self) -> int:
        """Changes acknowledged so far."""
        return len(self._lines.lines)

    def lines(self) -> list[str]:
        """Every acknowledged change as the oracle tells it."""
        return self._lines.lines

    def take_up(self, seed: int) -> None:
        """Use this seed for keys, values and generation changes from now on."""
        with self._still:
            self._random = Random(f"{seed}/writing")
            self._work = [(table, Workload(table.table_schema, seed=seed, keys=200, mix=MIX)) for table in self._tables]

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the writes, and publish the streams that are not published yet."""
        with self._still:
            self._publish_late(float("inf"))
            yield

    def hold(self) -> threading.Lock:
        """Pause the writes, with no write in progress."""
        return self._still

    def await_server(self) -> None:
        """Wait until the server accepts requests again. Called inside of `hold`."""
        deadline_s = time.monotonic() + 90
        while True:
            try:
                self._session.execute("SELECT key FROM system.local")
            except BridgeError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.3)
            else:
                return

    def end(self) -> None:
        """Stop writing, for good."""
        self._ended.set()
        if self.ident is not None:
            self.join(120)
        self._session.close()

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001  # the run looks at it
            self.error = error

    def _run(self) -> None:
        next_change_s = time.monotonic() + _CHANGE_EVERY_S
        due_s = time.monotonic()
        while not self._ended.is_set():
            if self._ended.wait(max(0.0, due_s - time.monotonic())):
                break
            # After a pause nothing is caught up with.
            due_s = max(due_s + _BURST / self._rate_per_s, time.monotonic() - 1)
            with self._still:
                now_s = time.monotonic()
                if now_s > next_change_s:
                    next_change_s = now_s + _CHANGE_EVERY_S
                    self._change_streams(now_s)
                self._publish_late(now_s)
                self._burst()

    def _change_streams(self, now_s: float) -> None:
        """Change the streams of the tables in turn; three of ten changes are published late."""
        self._publish_late(float("inf"))
        start_ms = UnixMillis(system_clock_us() // 1000 + 2500)
        publish = self._new_generation(start_ms) if self.generations % 2 else self._resize(start_ms)
        self.generations += 1
        after_s = self._random.uniform(3, 8) if self._random.random() < 0.3 else 0.0
        self._unpublished = (now_s + after_s, publish)
        self._publish_late(now_s)

    def _new_generation(self, start_ms: UnixMillis) -> Callable[[], None]:
        made = self._cluster.add_generation(start_ms, publish=False)
        return lambda: self._cluster.publish(made)

    def _resize(self, start_ms: UnixMillis) -> Callable[[], None]:
        """Split or merge a tablet; the streams of the other tablets go on, or are replaced as well."""
        tokens = [stream.token for stream in self._tablets.sets[-1].streams]
        splits = len(tokens) < _MOST_TABLETS and (len(tokens) <= _FEWEST_TABLETS or self._random.random() < 0.5)
        place = self._random.randrange(len(tokens) - 1)
        resized = split(tokens, [place]) if splits else merge(tokens, [place])
        partial = self._random.random() < 0.5
        made = self._tablets.resize(start_ms, resized, partial=partial, publish=False)
        return lambda: self._tablets.publish(made)

    def _publish_late(self, now_s: float) -> None:
        if self._unpublished is not None and now_s >= self._unpublished[0]:
            self._unpublished[1]()
            self._unpublished = None

    def _burst(self) -> None:
        table, workload = self._work[int(self._random.random() * len(self._work))]
        before, began_s = self.written, time.monotonic()

        def mutations() -> Iterator[TimedMutation]:
            for _ in range(_BURST):
                yield system_clock_us(), workload.next()

        self._simulators[table].write_many(table, mutations())
        if time.monotonic() - began_s > self._late_after_s:
            for line in self.lines()[before:]:
                change: dict[str, Any] = json.loads(line)
                self.late.append((change["s"], change["u"], change["b"]))


def schema_of(name: str, columns: Columns) -> TableSchema:
    """A table's schema."""
    keyspace, table = name.split(".")
    parts = [(ColumnKind.PARTITION_KEY, columns.partition), (ColumnKind.CLUSTERING, columns.clustering)]
    made = [
        Column(column, parse(kind), place, position)
        for place, found in parts
        for position, (column, kind) in enumerate(found)
    ]
    made += [
        Column(column, parse(kind), ColumnKind.STATIC if column == _STATIC else ColumnKind.REGULAR)
        for column, kind in columns.values
    ]
    return TableSchema(keyspace, table, tuple(made))
