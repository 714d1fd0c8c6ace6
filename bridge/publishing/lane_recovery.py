"""What an attempt at a lane does first, after a crash as after success: it finds what is left to publish. Pure.

A lane's records and its progress are written in one Kafka transaction, so the committed progress always matches what
was published. That makes each change exactly-once. An attempt at a lane takes three steps:

1. It opens the lane's transactional id. That fences older attempts and ends their transaction.
2. It reads the committed progress.
3. It publishes only what lies beyond that progress.

This module decides what remains of one planned micro-batch; `bridge.publishing.lane_publisher` carries the steps out.
It leaves out the first two if the same process has committed the lane's last progress.

A micro-batch is planned only when the one before is committed on every lane. So a table's lanes stand at most one
micro-batch apart, and the progress of the furthest lane names that micro-batch. A starting job finishes it first, then
plans the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bridge.errors import DataLossError, LayoutError, RetriableError
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Part, PlannedBatch, Window
from bridge.model.position import LanePosition
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros, UnixMillis


def transactional_id(job: str, keyspace: str, table: str, lane: int) -> str:
    """Return a lane's transactional id, `<job>.<keyspace>.<table>.<lane>`; restarts and layouts do not change it.

    A lane number keeps its id under every layout because only one id may write to a partition of the progress topic.
    Another id's open transaction there would hide committed progress.
    """
    return f"{job}.{keyspace}.{table}.{lane}"


@dataclass(frozen=True, slots=True)
class LaneTask:
    """One lane's part of a planned micro-batch.

    Attributes:
        keyspace: of the table.
        table: its name.
        lane: number of the lane.
        batch: the micro-batch.
        facts: what the planner knew about the table when it sent the task; None when nothing. They are no part of the
            plan: a replay may have others.
    """

    keyspace: str
    table: str
    lane: int
    batch: PlannedBatch
    facts: TableFacts | None = None

    @property
    def table_name(self) -> str:
        """`keyspace.table`."""
        return f"{self.keyspace}.{self.table}"

    def __str__(self) -> str:
        return f"{self.table_name} lane {self.lane} of {self.batch.layout.lanes}, {self.batch}"


@dataclass(frozen=True, slots=True)
class Remainder:
    """What is left to publish of a lane's task.

    Attributes:
        task: the lane's task.
        done: the group up to which the task is committed; None when nothing or everything is.
        finished: whether everything is committed, so that not even the progress has to move.
        entered_from_ms: from the lane's progress.
        edge_us: of the table's first micro-batch, from the lane's progress.
        facts: about the table, to be committed with the progress.
    """

    task: LaneTask
    done: LanePosition | None
    finished: bool
    entered_from_ms: UnixMillis | None = None
    edge_us: UnixMicros | None = None
    facts: TableFacts | None = None

    def wants(self, position: LanePosition) -> bool:
        """Return whether a group is still to be published."""
        return not self.finished and (self.done is None or position > self.done)

    @property
    def parts(self) -> list[tuple[int, Part]]:
        """The numbered parts to read, so that every group that `wants` accepts is found.

        The first part begins at the microsecond of the last committed group. No group is cut there, and groups of one
        microsecond come together, which duplicate detection needs.
        """
        parts = [] if self.finished else list(enumerate(self.task.batch.parts))
        if self.done is None:
            return parts
        return [
            (number, part if number > self.done.part else _shortened(part, self.done.group.time_us))
            for number, part in parts
            if number >= self.done.part
        ]

    def midway(self, position: LanePosition) -> LaneProgress:
        """Return the progress to commit after a group inside the micro-batch."""
        task = self.task
        inside = LaneProgress.inside(task.lane, task.batch, position, self.entered_from_ms, edge_us=self.edge_us)
        return replace(inside, facts=self.facts)

    def completed(self) -> LaneProgress:
        """Return the progress to commit with the last of the micro-batch."""
        task = self.task
        completed = LaneProgress.completed(task.lane, task.batch, self.entered_from_ms, edge_us=self.edge_us)
        return replace(completed, facts=self.facts)


def _shortened(part: Part, start_us: UnixMicros) -> Part:
    return Part(part.selection, Window(max(part.window.start_us, start_us), part.window.end_us))


def remainder(task: LaneTask, progress: LaneProgress | None, progress_topic: str) -> Remainder:
    """Return what an attempt at a task has left to do.

    Args:
        task: the lane's task.
        progress: committed progress of the lane; None when its partition holds none.
        progress_topic: name of the progress topic, for error messages.

    Raises:
        LayoutError: another job has written a newer lane layout since this task was planned.
        DataLossError: the progress is missing or lies before the micro-batch; publishing would leave changes out.
        RetriableError: the lane is inside another micro-batch; the table's next start finishes that one first.
    """
    batch = task.batch
    if progress is None:
        raise DataLossError(
            f"{task}: partition {task.lane} of the progress topic {progress_topic} holds no cursor, but the plan "
            f"requires that everything before {batch.start} is published. Was the topic deleted? If so, stop the job, "
            "delete the checkpoint, too, and delete the change topic, or set reading.accept_data_loss for the next "
            "start if what the change topic holds may be published again: the table then starts again at reading.start"
        )
    if progress.cursor >= batch.next:
        return Remainder(task, None, finished=True)
    if progress.layout != batch.layout:
        raise LayoutError(
            f"{task}: its progress belongs to another lane layout ({progress.layout.lanes} lanes since "
            f"{progress.layout.since}). Either another job of the same name is running, or the checkpoint is an old "
            "one. Stop the other job, or delete the checkpoint: the progress topic alone is enough to go on"
        )
    if progress.cursor < batch.start:
        raise DataLossError(
            f"{task}: the cursor in the progress topic {progress_topic} is {progress.cursor}, which lies before the "
            "window: the changes between them would be left out. Was the topic deleted, or restored from an older "
            "state? Delete the checkpoint: the job then goes on from the cursor in the progress topic"
        )
    facts = progress.facts if task.facts is None else task.facts
    left = partial(Remainder, task, finished=False, entered_from_ms=progress.entered_from_ms, facts=facts)
    if progress.batch == batch:
        return left(progress.done, edge_us=progress.edge_us)
    if progress.cursor == batch.start and progress.done is None:
        return left(None, edge_us=progress.edge_us if progress.batch is None else None)
    raise RetriableError(
        f"{task}: the progress topic {progress_topic} places the lane at {progress.cursor}, inside another "
        "micro-batch; the table's next start finishes that one first"
    )
