"""The job at one moment, as values: what metrics, probes and the status page are made from. Pure.

Instants are in s since 1970, spans in s, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, Window
from bridge.model.streams import Token
from bridge.model.times import UnixMillis
from bridge.monitoring.counters import DURATION_BOUNDS_S, Histogram, LaneFigures
from bridge.planning.poll_rate import load_interval_s

TableState = Literal["starting", "waiting", "running", "retrying", "stopped", "finished"]
"""`waiting`: nothing can be read yet, and nothing is wrong; `retrying`: failed, to be started
again; `stopped`: given up."""

STATES: tuple[TableState, ...] = ("starting", "waiting", "running", "retrying", "stopped", "finished")


@dataclass(slots=True)
class Batches:
    """What Spark tells about a table's micro-batches.

    Attributes:
        last: the last one's number; None before the first.
        durations: by length, in s.
        phases_s: time spent in each of Spark's phases of a micro-batch, added up.
        last_s: how long the last one took.
        window: what the last one read, of the streams that go on through it.
    """

    last: int | None = None
    durations: Histogram = field(default_factory=lambda: Histogram(DURATION_BOUNDS_S))
    phases_s: dict[str, float] = field(default_factory=dict)
    last_s: float | None = None
    window: Window | None = None

    def copy(self) -> Batches:
        """One that changes by itself."""
        return Batches(self.last, self.durations.copy(), dict(self.phases_s), self.last_s, self.window)


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane.

    Attributes:
        cursor: where it stands; None for a lane of a former layout, or before the lanes are opened.
        figures: what was counted of it since the job's start.
    """

    lane: int
    cursor: Cursor | None
    figures: LaneFigures

    def lag_s(self, now_s: float) -> float | None:
        """Age of the youngest write time that it has passed."""
        return None if self.cursor is None else max(0.0, now_s - self.cursor.reached_us / 1e6)


@dataclass(frozen=True, slots=True)
class TableView:
    """One table.

    Attributes:
        reason: what it waits for, or what went wrong.
        again_at_s: when it is started again.
        since_s: since when it is in its state.
        starts: of its query.
        failures: of its query, those of its start included.
        layout: its lanes; None before they are opened.
        advanced_s: when its slowest lane moved last; None when it has not since the job's start.
    """

    name: str
    topic: str
    state: TableState
    since_s: float
    reason: str | None = None
    again_at_s: float | None = None
    starts: int = 0
    failures: int = 0
    layout: Layout | None = None
    lanes: tuple[LaneView, ...] = ()
    batches: Batches = field(default_factory=Batches)
    advanced_s: float | None = None

    @property
    def active(self) -> tuple[LaneView, ...]:
        """The lanes of the present layout."""
        return () if self.layout is None else tuple(one for one in self.lanes if one.lane < self.layout.lanes)

    @property
    def slowest(self) -> Cursor | None:
        """Where the table's slowest lane stands."""
        return min((one.cursor for one in self.active if one.cursor is not None), default=None)

    @property
    def total(self) -> LaneFigures:
        """What was counted of all lanes."""
        total = LaneFigures()
        for one in self.lanes:
            total.add(one.figures)
        return total

    def lag_s(self, now_s: float) -> float | None:
        """That of its slowest lane; None before the lanes are opened."""
        slowest = self.slowest
        return None if slowest is None else max(0.0, now_s - slowest.reached_us / 1e6)


@dataclass(frozen=True, slots=True)
class Ring:
    """A generation's stream sets: a vnode's streams, or a tablet's single one.

    Attributes:
        sets: token of each set's last stream, ascending, and how many streams it has.
    """

    generation_ms: UnixMillis
    sets: tuple[tuple[Token, int], ...]


@dataclass(frozen=True, slots=True)
class TableStreams:
    """The streams of one table in a tablets keyspace, or of all tables in vnode keyspaces.

    Attributes:
        generations: starts of the published generations, ascending; some may lie ahead.
        ring: of the youngest generation that has begun; None until it is read.
    """

    generations: tuple[UnixMillis, ...] = ()
    ring: Ring | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """What the cluster says about its CDC streams.

    Attributes:
        streams: by table; those in vnode keyspaces have the same.
        ttl_s: the log's TTL by table; 0 is for ever, and a table that is not there is not known.
        failures: how often reading it failed.
        problem: why it failed the last time; None when that succeeded.
        clock_ahead_s: by how much this machine's clock is ahead of the servers', behind if negative; None until known.
    """

    streams: Mapping[str, TableStreams] = field(default_factory=dict)
    ttl_s: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    problem: str | None = None
    clock_ahead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A warning or an error of the job's first process.

    Attributes:
        at_s: of the last one.
        times: how many of them came one after the other.
    """

    at_s: float
    level: Literal["warning", "error"]
    text: str
    times: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of the plots.

    Attributes:
        changes: published since the job's start, by table.
        lag_s: by table, where it is known.
    """

    at_s: float
    changes: Mapping[str, int]
    lag_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class JobView:
    """The job.

    Attributes:
        stalled_after_s: how long a table's cursors may stand although there is something to read.
        dead_after_s: how long the supervisor may be silent.
        tick_s: when the supervisor was last seen alive.
        message_counts: warnings and errors since the job's start, by level.
        requests_per_s: most requests a second that looking at all tables may cost.
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
    tables: tuple[TableView, ...] = ()
    topology: Topology = field(default_factory=Topology)
    messages: tuple[Message, ...] = ()
    message_counts: Mapping[str, int] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    requests_per_s: float = float("inf")

    @property
    def servers_s(self) -> float:
        """The time by the servers' clocks, which write times are of; by this machine's until theirs is known."""
        return self.now_s - (self.topology.clock_ahead_s or 0.0)

    def look_every_s(self, table: TableView) -> float | None:
        """How far apart the bound on requests keeps the table's micro-batches; None until its streams are known."""
        streams = self.topology.streams.get(table.name)
        if streams is None or streams.ring is None:
            return None
        return load_interval_s(sum(many for _, many in streams.ring.sets), self.requests_per_s / len(self.tables))

    def stall_bound_s(self, table: TableView) -> float | None:
        """How long a key that moves to another stream waits at most, but for the two micro-batches' own time.

        None until the table's streams are known.
        """
        look_s = self.look_every_s(table)
        return None if look_s is None else self.confidence_s + self.leeway_s + 2 * look_s

    def ttl_left_s(self, table: TableView, lane: LaneView) -> float | None:
        """How long until the log drops what the lane has still to read; negative once it has; None without a TTL."""
        ttl_s, lag_s = self.topology.ttl_s.get(table.name, 0), lane.lag_s(self.servers_s)
        return None if lag_s is None or ttl_s == 0 else ttl_s - lag_s
