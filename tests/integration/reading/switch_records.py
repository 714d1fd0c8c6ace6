"""What a run of changes of streams consists of: kills, switches, outages, and how long each held changes up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import Final, Literal, Protocol

from bridge.model.streams import Token
from bridge.model.times import UnixMicros, iso_of_micros
from sandbox.scylla.cluster.simulated_cluster import Placement
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import paced, spread
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

SECOND_US: Final = 1_000_000
CONFIDENCE_S: Final = 2.0
LEEWAY_S: Final = 5.0
WINDOW_S: Final = 3.0
"""What a micro-batch may take: `reading.target_batch_ms`."""
BOUND_S: Final = CONFIDENCE_S + LEEWAY_S + WINDOW_S
LEAD_S: Final = 4.0
STRAY_S: Final = 4.0
STRAY_SHARE: Final = 0.1
RATE_PER_S: Final = 60.0
BACKLOG: Final = 300
KEYS: Final = 200
LANES: Final = 2
VNODES: Final = 4
Victim = Literal["group", "workers", "jvm"]
Moment = Literal["closing", "waiting"]


@dataclass(frozen=True, slots=True)
class Kill:
    """A `kill -9`.

    Attributes:
        victim: all processes of the job, its Python workers, or its JVM.
        moment: as soon as the first lane has committed the closing micro-batch, or while that is waited for.
    """

    victim: Victim
    moment: Moment

    def __str__(self) -> str:
        return f"{self.victim}, {self.moment}"


KILLS: Final = {
    "vnodes": (2, (Kill("group", "closing"), Kill("workers", "waiting"), Kill("jvm", "closing"))),
    "tablets": (5, (Kill("workers", "closing"), Kill("group", "waiting"), Kill("jvm", "waiting"))),
}
"""Of each table the first switch that is met by a kill (every sixth from there on is), and the kills in turn."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One change of a table's streams.

    Attributes:
        kept: ids of the streams that go on through it.
        publish: shows it to readers.
    """

    table: str
    number: int
    kind: str
    start_us: UnixMicros
    publish_us: UnixMicros
    kept: frozenset[bytes]
    kill: Kill | None
    publish: Callable[[], object]

    @property
    def due_us(self) -> int:
        """From when it can be followed."""
        return max(self.start_us, self.publish_us)


@dataclass(slots=True)
class Outage:
    """A kill: its switch, its time, and the times from which each table's progress advances again."""

    switch: Switch

    since_us: int
    settled_us: int
    back_us: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plain:
    """A change that nothing delayed: its table, the time of its write, and the time of its arrival."""

    table: str
    written_us: UnixMicros
    seen_us: int

    @property
    def took_us(self) -> int:
        """From the one to the other."""
        return self.seen_us - self.written_us

    @property
    def slowness_s(self) -> float:
        """By how much the machine was too slow for it."""
        return max(0.0, self.took_us / SECOND_US - CONFIDENCE_S - WINDOW_S)

    def __str__(self) -> str:
        return f"{self.table}, written {iso_of_micros(self.written_us)}, there {self.took_us / SECOND_US:.1f} s later"


@dataclass(frozen=True, slots=True)
class Stall:
    """What came of a switch.

    Attributes:
        waited: changes in streams that closed or opened, written while it was going on.
        stall_s: the longest of theirs.
        bound_s: what that one was allowed.
        kept_s: the longest time from writing to consumer in streams that went on meanwhile; None without any.
        late: changes that came later than allowed.
        back_s: how long after the kill the table's progress moved on; None without a kill.
    """

    switch: Switch
    waited: int
    stall_s: float
    bound_s: float
    kept_s: float | None
    late: int
    back_s: float | None

    def __str__(self) -> str:
        switch = self.switch
        published_s = (switch.publish_us - switch.start_us) / SECOND_US
        kept = "" if self.kept_s is None else f"{self.kept_s:.1f}"
        back = "" if self.back_s is None else f"{self.back_s:.1f}"
        return (
            f"{switch.number:>6} {switch.table:<8} {switch.kind:<12} {published_s:>+9.1f} {self.waited:>7} "
            f"{self.stall_s:>7.1f} {self.bound_s:>7.1f} {kept:>7} {back:>7}  {switch.kill or ''!s:<18}"
            f"{f' LATE: {self.late}' if self.late else ''}"
        )


HEADER: Final = (
    f"{'switch':>6} {'table':<8} {'kind':<12} {'published':>9} {'changes':>7} {'stall s':>7} {'bound s':>7} "
    f"{'kept s':>7} {'back s':>7}  kill -9"
)


class Streams(Protocol):
    """Which stream takes a write: `SimulatedCluster` or `SimulatedTablets`."""

    def stream_for(self, token: Token, write_us: UnixMicros, now_us: UnixMicros) -> Placement:
        """The stream."""
        ...


class Coordinators:
    """Nodes that take writes; some hear of a change of streams only seconds after it."""

    def __init__(self, streams: Streams, seed: int) -> None:
        self._streams = streams
        self._random = Random(seed)  # simulated data, wanted to be repeatable

    def stream_for(self, token: Token, write_us: UnixMicros, now_us: UnixMicros) -> Placement:
        """The stream that one of them picks."""
        back_us = int(STRAY_S * SECOND_US) if self._random.random() < STRAY_SHARE else 0
        return self._streams.stream_for(token, UnixMicros(write_us - back_us), UnixMicros(now_us - back_us))


class Written:
    """One table with its streams and its writer."""

    def __init__(self, session: WritingSession, name: str, streams: Streams, seed: int) -> None:
        columns = (
            Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
            Column("ck", parse("int"), ColumnKind.CLUSTERING, 0),
            Column("v", parse("text"), ColumnKind.REGULAR),
        )
        self.schema = TableSchema(f"switch_{name}", "t", columns)
        self._session = session
        self._table = SimulatedTable(self.schema)
        self._workload = Workload(self.schema, seed=seed, keys=KEYS)
        self._coordinators = Coordinators(streams, seed)
        self._seed = seed
        self._simulators: list[Simulator] = []
        self.drop()
        self.create()

    def drop(self) -> None:
        """Drop the table with its log."""
        self._table.drop(self._session)

    def create(self) -> None:
        """Create it, a first time or again."""
        self._table.create(self._session)
        # It asks the cluster for streams alone.
        simulator = Simulator(self._session, self._coordinators, [self._table], seed=self._seed)  # type: ignore[arg-type]
        self._simulators.append(simulator)

    @property
    def changes(self) -> list[ExpectedChange]:
        """What is acknowledged, of all logs that the table has had."""
        return [change for simulator in self._simulators for change in simulator.oracle]

    @property
    def written(self) -> int:
        """How many that are."""
        return sum(len(simulator.oracle) for simulator in self._simulators)

    def backlog(self, since_us: UnixMicros, until_us: UnixMicros) -> None:
        """Write what the job is to find when it starts."""
        timed = spread(self._workload, count=BACKLOG, start_us=since_us, until_us=until_us)
        self._simulators[-1].load(self._table, timed)

    def write(self, until_us: int) -> None:
        """Write steadily until then."""
        mutations = paced(self._workload, count=10**9, rate_per_s=RATE_PER_S)
        self._simulators[-1].write_many(self._table, takewhile(lambda timed: timed[0] < until_us, mutations))


def describe_stalls(stalls: Sequence[Stall], slowest: Plain) -> str:
    """The table that is printed."""
    free = [one.stall_s for one in stalls if one.bound_s <= BOUND_S]
    return "\n".join(
        [
            "",
            HEADER,
            *map(str, stalls),
            f"{len(free)} switches without a kill near: longest stall {max(free, default=0.0):.1f} s; bound, in s: "
            f"confidence {CONFIDENCE_S:.0f} + leeway {LEEWAY_S:.0f} + one window {WINDOW_S:.0f} = {BOUND_S:.0f}",
            f"where nothing changed, the machine was too slow by {slowest.slowness_s:.1f} s ({slowest})",
        ]
    )
