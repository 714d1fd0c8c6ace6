"""What is known of the running job, gathered in its first process: the one place that metrics, probes and page read.

The supervisor and the topology's watcher write; whoever wants to tell something takes a `View`, which does
not change any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from bridge.config.document import BridgeConfig
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.monitoring.counters import Counted, LaneFigures
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import Batches, JobView, LaneView, Message, Sample, TableState, TableView, Topology

SAMPLE_EVERY_S: Final = 5.0
_SAMPLES: Final = 181
"""A quarter of an hour."""
_MESSAGES: Final = 50


@dataclass(slots=True)
class _Lane:
    cursor: Cursor | None = None
    figures: LaneFigures = field(default_factory=LaneFigures)


@dataclass(slots=True)
class _Table:
    topic: str
    state: TableState = "starting"
    reason: str | None = None
    again_at_s: float | None = None
    since_s: float = 0.0
    starts: int = 0
    failures: int = 0
    layout: Layout | None = None
    lanes: dict[int, _Lane] = field(default_factory=dict)
    batches: Batches = field(default_factory=Batches)
    slowest: Cursor | None = None
    advanced_s: float | None = None


class Board:
    """Gathers; thread-safe. Every instant is in s since 1970, as `clock` gives it."""

    def __init__(self, config: BridgeConfig, version: str, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()
        self._started_s = clock()
        self._tick_s = clock()
        self._job = JobView(
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

    # -- the supervisor -------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """The supervisor is alive; call often."""
        now_s = self._clock()
        with self._lock:
            self._tick_s = now_s
            if not self._samples or now_s - self._samples[-1].at_s >= SAMPLE_EVERY_S:
                self._samples.append(self._sample(now_s))

    def starting(self, table: str) -> None:
        """A query is about to be started."""
        with self._lock:
            self._tables[table].starts += 1
            self._turn(table, "starting")

    def waiting(self, table: str, reason: str) -> None:
        """Nothing can be read yet, and nothing is wrong."""
        with self._lock:
            self._turn(table, "waiting", reason)

    def laid(self, table: str, layout: Layout, progress: Mapping[int, LaneProgress]) -> None:
        """The table's lanes are opened; `progress` is what they have committed."""
        with self._lock:
            of = self._tables[table]
            if of.layout != layout:
                kept = {lane: one for lane, one in of.lanes.items() if lane < layout.lanes}
                of.lanes = {lane: kept.get(lane, _Lane()) for lane in range(layout.lanes)}
                of.layout = layout
            for lane, one in of.lanes.items():
                found = progress.get(lane)
                one.cursor = found.cursor if found is not None and found.layout == layout else layout.since

    def running(self, table: str) -> None:
        """The query is started."""
        with self._lock:
            self._turn(table, "running")

    def retrying(self, table: str, reason: str, after_s: float) -> None:
        """The query has failed and will be started again."""
        with self._lock:
            self._tables[table].failures += 1
            self._turn(table, "retrying", reason, self._clock() + after_s)

    def stopped(self, table: str, reason: str) -> None:
        """The table was given up."""
        with self._lock:
            self._tables[table].failures += 1
            self._turn(table, "stopped", reason)

    def finished(self, table: str) -> None:
        """Everything that was asked for is published."""
        with self._lock:
            self._turn(table, "finished")

    def batch(self, table: str, change: Callable[[Batches], None]) -> None:
        """Note what Spark tells about a micro-batch."""
        with self._lock:
            change(self._tables[table].batches)

    # -- others ---------------------------------------------------------------------------------------------------

    def report(self, reports: Sequence[LaneReport]) -> None:
        """Take what the tasks of a micro-batch report."""
        with self._lock:
            for one in reports:
                found = self._tables.get(one.table)
                if found is not None:
                    self._reached(found, one.lane, one.cursor)
        for one in reports:
            self.count(one.counted)

    def count(self, counted: Counted) -> None:
        """Add what some process has counted."""
        with self._lock:
            for table, lane, figures in counted:
                found = self._tables.get(table)
                if found is not None:
                    found.lanes.setdefault(lane, _Lane()).figures.add(figures)

    def topology(self, topology: Topology) -> None:
        """The cluster's generations as they are now."""
        with self._lock:
            self._topology = replace(topology, failures=self._topology.failures)

    def topology_failed(self, reason: str) -> None:
        """The cluster's generations could not be read; what was known stays."""
        with self._lock:
            before = self._topology
            self._topology = replace(before, failures=before.failures + 1, problem=reason)

    def message(self, message: Message) -> None:
        """Keep a line of the log."""
        with self._lock:
            self._message_counts[message.level] += 1
            last = self._messages[-1] if self._messages else None
            if last is not None and (last.level, last.text) == (message.level, message.text):
                self._messages[-1] = replace(message, times=last.times + 1)
            else:
                self._messages.append(message)

    def view(self) -> JobView:
        """Everything as it is now."""
        with self._lock:
            return replace(
                self._job,
                now_s=self._clock(),
                tick_s=self._tick_s,
                tables=tuple(_view(name, of) for name, of in self._tables.items()),
                topology=self._topology,
                messages=tuple(self._messages),
                message_counts=dict(self._message_counts),
                samples=tuple(self._samples),
            )

    def _reached(self, of: _Table, lane: int, cursor: Cursor) -> None:
        one = of.lanes.setdefault(lane, _Lane())
        if one.cursor is None or cursor > one.cursor:
            one.cursor = cursor
        own = [of.lanes[at].cursor for at in range(of.layout.lanes if of.layout else 0) if at in of.lanes]
        known = [at for at in own if at is not None]
        slowest = min(known, default=None)
        if slowest is not None and (of.slowest is None or slowest > of.slowest):
            of.slowest, of.advanced_s = slowest, self._clock()

    def _turn(self, table: str, state: TableState, reason: str | None = None, again_at_s: float | None = None) -> None:
        of = self._tables[table]
        if of.state != state:
            of.since_s = self._clock()
        of.state, of.reason, of.again_at_s = state, reason, again_at_s

    def _sample(self, now_s: float) -> Sample:
        views = [_view(name, of) for name, of in self._tables.items()]
        servers_s = now_s - (self._topology.clock_ahead_s or 0.0)
        return Sample(
            now_s,
            {view.name: view.total.changes for view in views},
            {view.name: lag for view in views if (lag := view.lag_s(servers_s)) is not None},
        )


def _view(name: str, of: _Table) -> TableView:
    return TableView(
        name=name,
        topic=of.topic,
        state=of.state,
        reason=of.reason,
        again_at_s=of.again_at_s,
        since_s=of.since_s,
        starts=of.starts,
        failures=of.failures,
        layout=of.layout,
        lanes=tuple(LaneView(lane, one.cursor, one.figures.copy()) for lane, one in sorted(of.lanes.items())),
        batches=of.batches.copy(),
        advanced_s=of.advanced_s,
    )
