"""The job at one moment, as values: the source of metrics, probes and the status page. Pure.

Instants are in s since 1970 and durations in s, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bridge.model.counters import DURATION_BOUNDS_S, Histogram, LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, Window
from bridge.model.streams import Token
from bridge.model.times import UnixMillis
from bridge.planning.poll_rate import load_interval_s

TableState = Literal["starting", "waiting", "running", "retrying", "stopped", "finished"]
"""`waiting`: there is nothing to read yet, which is no error. `retrying`: the query failed and will start again.
`stopped`: the job does not start the query again."""

STATES: tuple[TableState, ...] = ("starting", "waiting", "running", "retrying", "stopped", "finished")


@dataclass(slots=True)
class BatchStatistics:
    """What Spark reports about a table's micro-batches.

    Attributes:
        last: number of the last micro-batch; None before the first.
        durations: their durations, in s.
        phases_s: total time in each of Spark's phases of a micro-batch.
        last_s: duration of the last micro-batch.
        window: window of the last micro-batch, for the streams that stay open.
    """

    last: int | None = None
    durations: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS_S))
    phases_s: dict[str, float] = field(default_factory=dict)
    last_s: float | None = None
    window: Window | None = None

    def copy(self) -> BatchStatistics:
        """Return an independent copy."""
        return BatchStatistics(self.last, self.durations.copy(), dict(self.phases_s), self.last_s, self.window)


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """One lane.

    Attributes:
        cursor: the lane's cursor; None for a lane of an earlier layout, or before the lanes are assigned.
        counters: the lane's counts since the start of the job.
    """

    lane: int
    cursor: Cursor | None
    counters: LaneCounters

    def lag_s(self, now_s: float) -> float | None:
        """Return the age of the lane's cursor; None without a cursor."""
        return None if self.cursor is None else max(0.0, now_s - self.cursor.reached_us / 1e6)


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table.

    Attributes:
        name: `keyspace.table`.
        since_s: when the table entered its state.
        reason: what the table waits for, or what went wrong.
        again_at_s: when its query starts again.
        starts: number of starts of its query.
        failures: number of failures of its query, including those of its start.
        stall_restarts: how often its query hung, and was started again.
        layout: its lane layout; None before the lanes are assigned.
        lanes: its lanes, including those of earlier layouts.
        advanced_s: when the cursor of its slowest lane last moved; None if it has not since the start of the job.
    """

    name: str
    topic: str
    state: TableState
    since_s: float
    reason: str | None = None
    again_at_s: float | None = None
    starts: int = 0
    failures: int = 0
    stall_restarts: int = 0
    layout: Layout | None = None
    lanes: tuple[LaneSnapshot, ...] = ()
    batches: BatchStatistics = field(default_factory=BatchStatistics)
    advanced_s: float | None = None

    @property
    def assigned_lanes(self) -> tuple[LaneSnapshot, ...]:
        """The lanes of the current layout."""
        return () if self.layout is None else tuple(lane for lane in self.lanes if lane.lane < self.layout.lanes)

    @property
    def slowest(self) -> Cursor | None:
        """The cursor of the slowest lane."""
        return min((lane.cursor for lane in self.assigned_lanes if lane.cursor is not None), default=None)

    @property
    def total(self) -> LaneCounters:
        """The sum of the counts of all lanes."""
        total = LaneCounters()
        for lane in self.lanes:
            total.add(lane.counters)
        return total

    def lag_s(self, now_s: float) -> float | None:
        """Return the lag of the slowest lane; None before the lanes are assigned."""
        slowest = self.slowest
        return None if slowest is None else max(0.0, now_s - slowest.reached_us / 1e6)


@dataclass(frozen=True, slots=True)
class Ring:
    """The streams of a generation on the token ring.

    Attributes:
        groups: the stream groups (a vnode's streams, or a tablet's single stream): token of the group's last stream,
            ascending, and number of its streams.
    """

    generation_ms: UnixMillis
    groups: tuple[tuple[Token, int], ...]

    @property
    def stream_count(self) -> int:
        """Number of streams."""
        return sum(count for _, count in self.groups)


@dataclass(frozen=True, slots=True)
class TableStreams:
    """The streams of one table in a tablets keyspace, or of all tables in vnode keyspaces.

    Attributes:
        generations: starts of the published generations, ascending; some may be in the future.
        ring: streams of the latest generation that has started; None until they are read.
    """

    generations: tuple[UnixMillis, ...] = ()
    ring: Ring | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The state of the cluster's CDC streams and logs.

    Attributes:
        streams: by table; tables in vnode keyspaces share one object.
        ttl_s: TTL of the log by table; 0 for no TTL, absent if unknown.
        failures: how often reading failed.
        problem: why the last reading failed; None if it succeeded.
        clock_ahead_s: by how much this machine's clock is ahead of the servers' clocks, negative if it is behind; None
            if unknown.
    """

    streams: Mapping[str, TableStreams] = field(default_factory=dict)
    ttl_s: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    problem: str | None = None
    clock_ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A warning or an error that the driver process has logged.

    Attributes:
        at_s: when it was last logged.
        times: how often it was logged in a row.
    """

    at_s: float
    level: Literal["warning", "error"]
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of the charts.

    Attributes:
        changes: changes published since the start of the job, by table.
        lag_s: lag by table, where it is known.
    """

    at_s: float
    changes: Mapping[str, int]
    lag_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The job.

    Attributes:
        stalled_after_s: how long a table's cursors may stand still although there are changes to read.
        dead_after_s: how long the supervisor may pause between two checks of the queries.
        tick_s: when the supervisor last checked the queries.
        message_counts: number of warnings and errors since the start of the job, by level.
        requests_per_s: limit of requests per second for finding changes, over all tables.
    """

    name: str
    version: str
    confidence_s: float
    leeway_s: float
    stalled_after_s: float
    dead_after_s: float
    started_s: float
    now_s: float
    tick_s: float
    tables: tuple[TableSnapshot, ...] = ()
    topology: Topology = field(default_factory=Topology)
    messages: tuple[Message, ...] = ()
    message_counts: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    requests_per_s: float = float("inf")

    @property
    def servers_s(self) -> float:
        """The time on the servers' clocks, which also make the write times; on this machine's while that is unknown."""
        return self.now_s - (self.topology.clock_ahead_s or 0.0)

    def batch_interval_s(self, table: TableSnapshot) -> float | None:
        """Return the shortest time between two micro-batches of a table that the limit of requests allows.

        None until the table's streams are known.
        """
        streams = self.topology.streams.get(table.name)
        if streams is None or streams.ring is None:
            return None
        return load_interval_s(streams.ring.stream_count, self.requests_per_s / len(self.tables))

    def stall_bound_s(self, table: TableSnapshot) -> float | None:
        """Return how long a key that moves to another stream waits at most, without the duration of two micro-batches.

        None until the table's streams are known.
        """
        interval_s = self.batch_interval_s(table)
        return None if interval_s is None else self.confidence_s + self.leeway_s + 2 * interval_s

    def ttl_left_s(self, table: TableSnapshot, lane: LaneSnapshot) -> float | None:
        """Return how long until changes that the lane has not read expire; None without a TTL.

        Negative if such changes have expired already.
        """
        ttl_s, lag_s = self.topology.ttl_s.get(table.name, 0), lane.lag_s(self.servers_s)
        return None if lag_s is None or ttl_s == 0 else ttl_s - lag_s
