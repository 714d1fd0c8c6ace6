"""Short ways to make the progress of lanes."""

from __future__ import annotations

from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing.lane_recovery import LaneTask

G = UnixMillis(1000)


TOPIC = "job.progress.ks.t"


def at(us: int) -> Cursor:
    return Cursor(G, UnixMicros(us))


SINCE = at(1_000_000)


LAYOUT = Layout(2, SINCE)


BATCH = PlannedBatch(at(2_000_000), at(3_000_000), LAYOUT)


EARLIER = PlannedBatch(SINCE, at(2_000_000), LAYOUT)


TASK = LaneTask("ks", "t", 1, BATCH)


def group(us: int, low: int = 0, stream: int = 1, part: int = 0) -> LanePosition:
    timeuuid = timeuuid_of(UnixMicros(us), low.to_bytes(8, "big"))
    return LanePosition(part, GroupPosition.of(stream.to_bytes(16, "big"), timeuuid))


def standing(us: int, layout: Layout = LAYOUT, lane: int = 1, *, first: bool = False) -> LaneProgress:
    return LaneProgress(lane, layout, at(us), first=first)


def done(batch: PlannedBatch, lane: int = 1) -> LaneProgress:
    return LaneProgress.completed(lane, batch)


def inside(batch: PlannedBatch, position: LanePosition, lane: int = 1) -> LaneProgress:
    return LaneProgress.inside(lane, batch, position)
