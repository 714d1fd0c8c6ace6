"""Lane publishers over a broker in memory, and short ways to make their tasks and records."""

from __future__ import annotations

from collections.abc import Callable

from bridge.model.counters import LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.transaction_size import TransactionSize
from tests.chaos.fault_points import Watched
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

G = UnixMillis(1000)


SINCE = Cursor(G, UnixMicros(0))


LAYOUT = Layout(1, SINCE)


def at(time_us: int) -> Cursor:
    return Cursor(G, UnixMicros(time_us))


def batch(start: int, end: int, layout: Layout = LAYOUT) -> LaneTask:
    return LaneTask("ks", "t", 0, PlannedBatch(at(start), at(end), layout))


def position(time_us: int, seq: int) -> bytes:
    return bytes(16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + seq.to_bytes(4, "big")


def records(start: int, end: int) -> list[tuple[int, int]]:
    """Groups of one to four records, one each microsecond."""
    return [(time_us, seq) for time_us in range(start, end) for seq in range(1 + time_us % 4)]


def fixed_size(most_bytes: int) -> TransactionSize:
    """A limit that no commit changes."""
    size = TransactionSize(most_bytes, float("inf"))
    size.most_bytes = most_bytes
    return size


def make(
    broker: Broker,
    *,
    lane: int = 0,
    owner: str = "job",
    most_records: int = 1000,
    most_bytes: int = 10**9,
    most_s: float = float("inf"),
    clock: Callable[[], float] = lambda: 0.0,
    count: Callable[[LaneCounters], None] = lambda _: None,
) -> LanePublisher:
    return LanePublisher(
        lambda: Watched(Client(broker, "id" if lane == 0 else f"id{lane}"), PROGRESS, broker.reach),
        lambda: broker.markers.get(lane),
        progress_topic=PROGRESS,
        owner=owner,
        most_records=most_records,
        size=fixed_size(most_bytes),
        most_s=most_s,
        clock=clock,
        count=count,
    )


def first_start(broker: Broker) -> None:
    make(broker).write_progress(LaneProgress(0, LAYOUT, SINCE), instead_of=None)


def work(publisher: LanePublisher, task: LaneTask, *, fresh: bool) -> None:
    publisher.start(task, fresh=fresh)
    for time_us, seq in records(task.batch.start.time_us, task.batch.next.time_us):
        publisher.publish("topic", b"key", b"%d.%d" % (time_us, seq), position(time_us, seq), {})
    publisher.finish()


def expected(end: int) -> list[tuple[bytes, bytes]]:
    return [(b"key", b"%d.%d" % (time_us, seq)) for time_us, seq in records(0, end)]


CLOSING = PlannedBatch(at(10), Cursor(UnixMillis(1001), UnixMicros(2_000_000)), LAYOUT)
