"""A cluster and clocks for planner tests, and short ways to make cursors, settings and planners."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from bridge.config.document import ScyllaSettings, SourceConfig
from bridge.engine.planner import Planner
from bridge.engine.ports import Clocks
from bridge.engine.table_observer import ObservationIntervals
from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.server_clock import NodeTime, ServerTime
from bridge.planning.table_watch import CdcOptions, TableState
from bridge.publishing.table_start import TableStart
from schemas.cql.table import TableSchema

SECOND = 1_000_000
G1, G2, G3 = UnixMillis(1_000_000), UnixMillis(1_060_000), UnixMillis(1_120_000)
AT_EVERY_CALL = ObservationIntervals(state_s=0, generations_s=0)


def at(generation: UnixMillis, seconds: float) -> Cursor:
    return Cursor(generation, UnixMicros(generation * 1000 + int(seconds * SECOND)))


LAYOUT = Layout(2, at(G1, 0))
LOG = UUID(int=1)


@dataclass
class Cluster:
    """The cluster of one table, as `bridge.engine.ports.TableAccess` and `Generations`.

    Attributes:
        failure: raised when the table's state is asked for.
        own_ahead_us: by how much this machine's clock is ahead of the servers'.
    """

    starts: list[UnixMillis] = field(default_factory=lambda: [G1, G2])
    now_us: int = at(G1, 30).time_us
    ttl_s: int = 0
    may_lag: bool = False
    log_id: UUID | None = LOG
    streams: int | dict[UnixMillis, int] = 0
    own_ahead_us: int = 0
    failure: BridgeError | None = None
    address: str = "a:1"
    schema: TableSchema | None = None

    @property
    def server_time(self) -> ServerTime:
        """Its last answer came just now, and the last ms of that answer may just be over."""
        return ServerTime(lambda: NodeTime("a", UnixMicros(self.now_us - 1000), {"a"}), self.wall_us, lambda: 0.0)

    def wall_us(self) -> UnixMicros:
        return UnixMicros(self.now_us + self.own_ahead_us)

    def state(self) -> TableState:
        if self.failure is not None:
            raise self.failure
        options = CdcOptions(enabled=True, preimage="false", postimage=False, delta="full", ttl_s=self.ttl_s)
        return TableState(self.log_id, self.schema, options if self.log_id else None)

    def cdc_options(self) -> CdcOptions | None:
        return self.state().options

    def generations(self) -> Any:
        return _Generations(self)

    def forget_streams(self) -> None:
        pass

    def disconnect(self) -> None:
        pass


class _Generations:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def may_lag(self) -> bool:
        return self._cluster.may_lag

    def generations(self) -> list[GenerationStart]:
        return [GenerationStart(start) for start in self._cluster.starts]

    def count(self, generation_ms: UnixMillis) -> int:
        streams = self._cluster.streams
        return streams if isinstance(streams, int) else streams[generation_ms]


@dataclass
class Clock:
    """A clock that only moves when a test moves it, or when the planner sleeps; in s."""

    now_s: float = 1000.0
    slept_s: float = 0.0

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds
        self.now_s += seconds


def config(*, sharing: int = 1, **reading: Any) -> SourceConfig:
    scylla = ScyllaSettings(contact_points=("a:1",), requests_per_second=100)
    return SourceConfig.model_validate(
        {"scylla": scylla, "table": "ks.t", "reading": reading, "lanes": 2, "sharing": sharing}
    )


def planner_of(
    cluster: Cluster,
    start: TableStart | None,
    /,
    *,
    clock: Clock | None = None,
    signals: str | None = None,
    sharing: int = 1,
    intervals: ObservationIntervals = AT_EVERY_CALL,
    **reading: Any,
) -> Planner:
    """Return a planner of `ks.t`; without `clock`, its clock does not advance."""
    clock = clock or Clock()
    clocks = Clocks(lambda: clock.now_s, cluster.wall_us, clock.sleep)
    settings = config(sharing=sharing, **reading)
    return Planner(settings, start, cluster, clocks, signals=signals, intervals=intervals)


def offset_of(batch: PlannedBatch, turn: int = 5) -> StreamOffset:
    return StreamOffset(batch.next, batch, turn)


def planned(planner: Planner, reached: StreamOffset) -> StreamOffset:
    """The next micro-batch's offset, which there has to be."""
    following = planner.next_offset(reached)
    assert following is not None
    return following


def drain(planner: Planner, cluster: Cluster, reached: StreamOffset, took_s: list[float]) -> StreamOffset:
    """Plan one micro-batch after the other; each takes so many seconds."""
    for seconds in took_s:
        reached = planned(planner, reached)
        cluster.now_us += int(seconds * SECOND)
    return reached
