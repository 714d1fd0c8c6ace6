"""The state of the running job, collected in the driver process.

Metrics, probes and the status page read snapshots of it. The supervisor, the queries' progress reports, the log handler
and the topology watcher write to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from bridge.config.document import BridgeConfig
from bridge.model.counters import CountersByLane, LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import (
    BatchStatistics,
    JobSnapshot,
    LaneSnapshot,
    Message,
    Sample,
    TableSnapshot,
    TableState,
    Topology,
)

SAMPLE_EVERY_S: Final = 5.0
_SAMPLES: Final = 181
"""Enough for a quarter of an hour."""
_MESSAGES: Final = 50


@dataclass(slots=True)
class _Lane:
    cursor: Cursor | None = None
    counters: LaneCounters = field(default_factory=LaneCounters)


@dataclass(slots=True)
class _Table:
    topic: str
    state: TableState = "starting"
    reason: str | None = None
    again_at_s: float | None = None
    since_s: float = 0.0
    starts: int = 0
    failures: int = 0
    stall_restarts: int = 0
    layout: Layout | None = None
    lanes: dict[int, _Lane] = field(default_factory=dict)
    batches: BatchStatistics = field(default_factory=BatchStatistics)
    slowest: Cursor | None = None
    advanced_s: float | None = None


class JobState:
    """Collects the state of the job. Thread-safe.

    Args:
        config: the job's configuration.
        version: the installed release.
        clock: returns s since 1970.
    """

    def __init__(self, config: BridgeConfig, version: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._started_s = clock()
        self._tick_s = clock()
        self._job = JobSnapshot(
            name=config.name,
            version=version,
            confidence_s=config.reading.confidence_ms / 1000,
            leeway_s=config.reading.leeway_ms / 1000,
            stalled_after_s=float(config.monitoring.stalled_after_s),
            dead_after_s=float(config.monitoring.dead_after_s),
            started_s=self._started_s,
            now_s=self._started_s,
            tick_s=self._started_s,
            requests_per_s=float(config.scylla.requests_per_second),
        )
        self._tables = {
            f"{table.keyspace}.{table.table}": _Table(config.topic_of(table), since_s=self._started_s)
            for table in config.tables
        }
        self._topology = Topology()
        self._messages: deque[Message] = deque(maxlen=_MESSAGES)
        self._message_counts = {"warning": 0, "error": 0}
        self._samples: deque[Sample] = deque(maxlen=_SAMPLES)

    def tick(self) -> None:
        """Note that the supervisor is alive, and take a sample when one is due."""
        now_s = self._clock()
        with self._lock:
            self._tick_s = now_s
            if not self._samples or now_s - self._samples[-1].at_s >= SAMPLE_EVERY_S:
                self._samples.append(self._take_sample(now_s))

    def set_starting(self, table: str) -> None:
        """Note that a table's query is about to start."""
        with self._lock:
            self._tables[table].starts += 1
            self._set_state(table, "starting")

    def set_waiting(self, table: str, reason: str) -> None:
        """Note that a table has nothing to read yet, which is no error."""
        with self._lock:
            self._set_state(table, "waiting", reason)

    def assign_lanes(self, table: str, layout: Layout, progress: Mapping[int, LaneProgress]) -> None:
        """Note the lane layout of a table.

        Args:
            table: `keyspace.table`.
            layout: the new layout; lanes that it shares with the present one keep their counters.
            progress: what the lanes have committed. A lane without progress in this layout begins at its `since`.
        """
        with self._lock:
            state = self._tables[table]
            if state.layout != layout:
                kept = {number: lane for number, lane in state.lanes.items() if number < layout.lanes}
                state.lanes = {number: kept.get(number, _Lane()) for number in range(layout.lanes)}
                state.layout = layout
            for number, lane in state.lanes.items():
                found = progress.get(number)
                lane.cursor = found.cursor if found is not None and found.layout == layout else layout.since

    def set_running(self, table: str) -> None:
        """Note that a table's query runs."""
        with self._lock:
            self._set_state(table, "running")

    def set_retrying(self, table: str, reason: str, after_s: float) -> None:
        """Note that a table's query has failed and starts again after so many seconds."""
        with self._lock:
            self._tables[table].failures += 1
            self._set_state(table, "retrying", reason, self._clock() + after_s)

    def count_stall_restart(self, table: str) -> None:
        """Count that a table's query hung, and starts again."""
        with self._lock:
            self._tables[table].stall_restarts += 1

    def set_stopped(self, table: str, reason: str) -> None:
        """Note that the job does not start a table's query again."""
        with self._lock:
            self._tables[table].failures += 1
            self._set_state(table, "stopped", reason)

    def set_finished(self, table: str) -> None:
        """Note that a table's query has published everything that it should."""
        with self._lock:
            self._set_state(table, "finished")

    def update_batches(self, table: str, update: Callable[[BatchStatistics], None]) -> None:
        """Let `update` change the statistics of a table's micro-batches."""
        with self._lock:
            update(self._tables[table].batches)

    def add_reports(self, reports: Sequence[LaneReport]) -> None:
        """Add the tasks' reports of a micro-batch."""
        with self._lock:
            for report in reports:
                table = self._tables.get(report.table)
                if table is not None:
                    self._move_cursor(table, report.lane, report.cursor)
        for report in reports:
            self.add_counters(report.counted)

    def add_counters(self, counted: CountersByLane) -> None:
        """Add what a process has counted."""
        with self._lock:
            for name, lane, counters in counted:
                table = self._tables.get(name)
                if table is not None:
                    table.lanes.setdefault(lane, _Lane()).counters.add(counters)

    def set_topology(self, topology: Topology) -> None:
        """Replace the topology; the number of failures stays."""
        with self._lock:
            self._topology = replace(topology, failures=self._topology.failures)

    def set_topology_failed(self, reason: str) -> None:
        """Note that the topology could not be read; the rest of it stays."""
        with self._lock:
            known = self._topology
            self._topology = replace(known, failures=known.failures + 1, problem=reason)

    def add_message(self, message: Message) -> None:
        """Keep a line of the log; a repetition of the last one only increases its count."""
        with self._lock:
            self._message_counts[message.level] += 1
            last = self._messages[-1] if self._messages else None
            if last is not None and (last.level, last.text) == (message.level, message.text):
                self._messages[-1] = replace(message, times=last.times + 1)
            else:
                self._messages.append(message)

    def snapshot(self) -> JobSnapshot:
        """Return the present state, which does not change any more."""
        with self._lock:
            return replace(
                self._job,
                now_s=self._clock(),
                tick_s=self._tick_s,
                tables=tuple(_snapshot_of(name, table) for name, table in self._tables.items()),
                topology=self._topology,
                messages=tuple(self._messages),
                message_counts=dict(self._message_counts),
                samples=tuple(self._samples),
            )

    def _move_cursor(self, table: _Table, number: int, cursor: Cursor) -> None:
        lane = table.lanes.setdefault(number, _Lane())
        if lane.cursor is None or cursor > lane.cursor:
            lane.cursor = cursor
        assigned = range(table.layout.lanes if table.layout else 0)
        cursors = [table.lanes[number].cursor for number in assigned if number in table.lanes]
        slowest = min((cursor for cursor in cursors if cursor is not None), default=None)
        if slowest is not None and (table.slowest is None or slowest > table.slowest):
            table.slowest, table.advanced_s = slowest, self._clock()

    def _set_state(
        self, table: str, state: TableState, reason: str | None = None, again_at_s: float | None = None
    ) -> None:
        of = self._tables[table]
        if of.state != state:
            of.since_s = self._clock()
        of.state, of.reason, of.again_at_s = state, reason, again_at_s

    def _take_sample(self, now_s: float) -> Sample:
        tables = [_snapshot_of(name, table) for name, table in self._tables.items()]
        servers_s = now_s - (self._topology.clock_ahead_s or 0.0)
        return Sample(
            now_s,
            {table.name: table.total.changes for table in tables},
            {table.name: lag_s for table in tables if (lag_s := table.lag_s(servers_s)) is not None},
        )


def _snapshot_of(name: str, table: _Table) -> TableSnapshot:
    lanes = sorted(table.lanes.items())
    return TableSnapshot(
        name=name,
        topic=table.topic,
        state=table.state,
        reason=table.reason,
        again_at_s=table.again_at_s,
        since_s=table.since_s,
        starts=table.starts,
        failures=table.failures,
        stall_restarts=table.stall_restarts,
        layout=table.layout,
        lanes=tuple(LaneSnapshot(number, lane.cursor, lane.counters.copy()) for number, lane in lanes),
        batches=table.batches.copy(),
        advanced_s=table.advanced_s,
    )
