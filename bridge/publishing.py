"""The exactly-once protocol of one scope (a lane), as plain decisions over values.

A lane's records and its new cursor are written in one Kafka transaction; the cursor in Kafka is the truth. An attempt
at a lane therefore opens its transactional id first (which fences older attempts and settles their transaction), then
reads the committed progress, then publishes only what lies beyond it. What follows from that progress for one planned
micro-batch is decided here; `bridge.lane_publisher` carries it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bridge.errors import DataLossError, LayoutError, RetriableError
from bridge.model.cursors import Cursor, GroupPosition, LaneProgress, Layout, PlannedBatch


def transactional_id(job: str, keyspace: str, table: str, lane: int) -> str:
    """The Kafka identity of a lane: `<job>.<keyspace>.<table>.<lane>`, stable over restarts and lane layouts.

    A lane number keeps its id under every layout, because a partition of the progress topic may belong to one id only:
    another id's open transaction there would hide committed progress.
    """
    return f"{job}.{keyspace}.{table}.{lane}"


@dataclass(frozen=True, slots=True)
class LaneTask:
    """One lane's part of a planned micro-batch."""

    keyspace: str
    table: str
    lane: int
    batch: PlannedBatch

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.table} lane {self.lane} of {self.batch.layout.lanes}, {self.batch.window}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left to publish of a lane's task."""

    task: LaneTask
    progress: LaneProgress

    @property
    def finished(self) -> bool:
        """Whether everything is committed already, so that not even the cursor has to move."""
        return self.progress.cursor >= self.task.batch.next

    def wants(self, position: GroupPosition) -> bool:
        """Whether a group is still to be published."""
        if self.finished:
            return False
        if position.time_us < self.progress.cursor.time_us:
            return False
        return self.progress.done is None or position > self.progress.done

    def midway(self, position: GroupPosition) -> LaneProgress:
        """The progress to commit after a group inside the window."""
        start = max(self.progress.cursor, self.task.batch.window.start)
        return LaneProgress(self.task.lane, self.task.batch.layout, start, position)

    def completed(self) -> LaneProgress:
        """The progress to commit with the last of the window."""
        return LaneProgress(self.task.lane, self.task.batch.layout, self.task.batch.next)


def remainder(task: LaneTask, progress: LaneProgress | None, progress_topic: str) -> Remainder:
    """What an attempt at a task has left to do, given the committed progress of its lane.

    Raises:
        LayoutError: another job has given the table another lane layout since this task was planned.
        DataLossError: the progress lies before the window (or is gone): publishing would leave changes out.
    """
    if progress is None:
        raise DataLossError(
            f"{task}: partition {task.lane} of the progress topic {progress_topic} holds no cursor, but the plan "
            f"says that everything before {task.batch.window.start} was published. Was the topic deleted? If so, "
            "delete the checkpoint too: the table then begins anew, as reading.start says"
        )
    if progress.layout != task.batch.layout and progress.cursor < task.batch.next:
        raise LayoutError(
            f"{task}: its progress is that of another lane layout ({progress.layout.lanes} lanes since "
            f"{progress.layout.since}); another job named alike is running, or the checkpoint is an old one. Stop the "
            "other job, or delete the checkpoint: the progress topic alone is enough to go on"
        )
    if progress.cursor < task.batch.window.start:
        raise DataLossError(
            f"{task}: the progress topic {progress_topic} says {progress.cursor}, which lies before the window: the "
            "changes between them would be left out. Was the topic deleted, or restored from an older state? Delete "
            "the checkpoint: the job then goes on from what the progress topic says"
        )
    return Remainder(task, progress)


@dataclass(frozen=True, slots=True)
class LayoutDecision:
    """How a starting job goes on with a table.

    Attributes:
        layout: the lanes to work with now.
        start: where the slowest lane stands.
        settle_until: not None when `layout` is to be replaced: first the micro-batch that was interrupted, if any, is
            finished under it, and no lane goes beyond this cursor. Then the decision is to be made again.
        initialise: whether the layout is to be written to every lane's progress before work begins.
    """

    layout: Layout
    start: Cursor
    settle_until: Cursor | None
    initialise: bool


def present_layout(progress: Iterable[LaneProgress]) -> Layout:
    """The layout in force, given the committed progress of a table's lanes, of which there is at least one.

    A newer layout is written only when every lane stands at its `since`, so the furthest cursor names it.
    """
    return max(progress, key=lambda at: (at.layout.since, at.cursor, at.done is not None)).layout


def decide_layout(
    found: Mapping[int, LaneProgress], lanes: int, first: Cursor | None, *, settled: bool = False
) -> LayoutDecision:
    """The lane layout for a starting job: the configured one as soon as that loses and doubles nothing.

    Args:
        found: committed progress by lane; empty before the very first start.
        lanes: the configured number.
        first: where a table without progress begins; needed only then.
        settled: whether nothing that was planned under the present layout is left to do.

    Raises:
        DataLossError: some lanes' progress is missing although others have gone on.
        RetriableError: the lanes do not stand at one cursor although they were settled.
    """
    if not found:
        if first is None:
            raise ValueError("a table without progress needs a first cursor")
        return LayoutDecision(Layout(lanes, first), first, None, initialise=True)
    layout = present_layout(found.values())
    own = {lane: at for lane, at in found.items() if lane < layout.lanes and at.layout == layout}
    missing = sorted(set(range(layout.lanes)) - own.keys())
    cursors = [at.cursor for at in own.values()] + [layout.since for _ in missing]
    start, end = min(cursors), max(cursors)
    level = start == end and not any(at.done for at in own.values())
    if missing and not level:
        raise DataLossError(
            f"lanes {', '.join(map(str, missing))} of {layout.lanes} have no progress although others have gone on "
            f"to {end}: the progress topic is damaged. Restore it, or delete it with the checkpoint to begin anew"
        )
    if missing:
        # The job died while it wrote this layout; no lane has worked under it.
        return LayoutDecision(Layout(lanes, start), start, None, initialise=True)
    if layout.lanes == lanes:
        return LayoutDecision(layout, start, None, initialise=False)
    if not settled:
        # Even level lanes: Spark may hold a micro-batch that was planned under this layout, and will replay it.
        return LayoutDecision(layout, start, end, initialise=False)
    if not level:
        raise RetriableError(f"{layout.lanes} lanes stand between {start} and {end}; they can't be laid anew yet")
    return LayoutDecision(Layout(lanes, start), start, None, initialise=True)
