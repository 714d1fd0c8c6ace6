"""The exactly-once protocol of one scope (a lane), as plain decisions over values.

A lane's records and its progress are written in one Kafka transaction; the progress in Kafka is the truth. An attempt
at a lane therefore opens its transactional id first (which fences older attempts and settles their transaction), then
reads the committed progress, then publishes only what lies beyond it. What follows from that progress for one planned
micro-batch is decided here; `bridge.publishing.lane_publisher` carries it out.

A micro-batch is planned only when the one before is committed on every lane. So the lanes of a table stand at most one
micro-batch apart, and the progress of the furthest names it: a starting job first finishes that one, then plans anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bridge.errors import DataLossError, LayoutError, RetriableError
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Part, PlannedBatch, Window
from bridge.model.position import LanePosition
from bridge.model.times import UnixMicros, UnixMillis


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
        return f"{self.keyspace}.{self.table} lane {self.lane} of {self.batch.layout.lanes}, {self.batch}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left to publish of a lane's task.

    Attributes:
        done: the group up to which it is committed; None when that is nothing, or everything.
        finished: whether everything is committed already, so that not even the progress has to move.
        entered_from_ms: as the lane's progress has it.
        edge_us: of the table's very first micro-batch, as the lane's progress has it.
    """

    task: LaneTask
    done: LanePosition | None
    finished: bool
    entered_from_ms: UnixMillis | None = None
    edge_us: UnixMicros | None = None

    def wants(self, position: LanePosition) -> bool:
        """Whether a group is still to be published."""
        return not self.finished and (self.done is None or position > self.done)

    @property
    def parts(self) -> list[tuple[int, Part]]:
        """What has to be read for all that `wants` says: parts with their numbers, the first from a microsecond on.

        That is the last committed group's own, from its beginning: no group is cut, and the groups of one time, which
        the streams tell apart, or `assembly.without_repeats`, come together.
        """
        parts = [] if self.finished else list(enumerate(self.task.batch.parts))
        if self.done is None:
            return parts
        return [
            (number, part if number > self.done.part else _later(part, self.done.group.time_us))
            for number, part in parts
            if number >= self.done.part
        ]

    def midway(self, position: LanePosition) -> LaneProgress:
        """The progress to commit after a group inside the micro-batch."""
        task = self.task
        return LaneProgress.inside(task.lane, task.batch, position, self.entered_from_ms, edge_us=self.edge_us)

    def completed(self) -> LaneProgress:
        """The progress to commit with the last of the micro-batch."""
        return LaneProgress.completed(self.task.lane, self.task.batch, self.entered_from_ms, edge_us=self.edge_us)


def _later(part: Part, start_us: UnixMicros) -> Part:
    return Part(part.selection, Window(max(part.window.start_us, start_us), part.window.end_us))


def remainder(task: LaneTask, progress: LaneProgress | None, progress_topic: str) -> Remainder:
    """What an attempt at a task has left to do, given the committed progress of its lane.

    Raises:
        LayoutError: another job has given the table another lane layout since this task was planned.
        DataLossError: the progress lies before the micro-batch (or is gone): publishing would leave changes out.
        RetriableError: the lane is inside another micro-batch; a job that starts anew finishes that one first.
    """
    batch = task.batch
    if progress is None:
        raise DataLossError(
            f"{task}: partition {task.lane} of the progress topic {progress_topic} holds no cursor, but the plan "
            f"says that everything before {batch.start} was published. Was the topic deleted? If so, "
            "stop the job and delete the checkpoint, too, and the change topic unless what it holds may come again: "
            "the table then begins anew, as reading.start says"
        )
    if progress.cursor >= batch.next:
        return Remainder(task, None, finished=True)
    if progress.layout != batch.layout:
        raise LayoutError(
            f"{task}: its progress is that of another lane layout ({progress.layout.lanes} lanes since "
            f"{progress.layout.since}); another job named alike is running, or the checkpoint is an old one. Stop the "
            "other job, or delete the checkpoint: the progress topic alone is enough to go on"
        )
    if progress.cursor < batch.start:
        raise DataLossError(
            f"{task}: the progress topic {progress_topic} says {progress.cursor}, which lies before the window: the "
            "changes between them would be left out. Was the topic deleted, or restored from an older state? Delete "
            "the checkpoint: the job then goes on from what the progress topic says"
        )
    left = partial(Remainder, task, finished=False, entered_from_ms=progress.entered_from_ms)
    if progress.batch == batch:
        return left(progress.done, edge_us=progress.edge_us)
    if progress.cursor == batch.start and progress.done is None:
        return left(None, edge_us=progress.edge_us if progress.batch is None else None)
    raise RetriableError(
        f"{task}: the progress topic {progress_topic} says that the lane is at {progress.cursor}, inside another "
        "micro-batch; it is finished first when the table starts again"
    )
