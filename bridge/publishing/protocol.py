"""The exactly-once protocol of one scope (a lane), as plain decisions over values.

A lane's records and its progress are written in one Kafka transaction; the progress in Kafka is the truth. An attempt
at a lane therefore opens its transactional id first (which fences older attempts and settles their transaction), then
reads the committed progress, then publishes only what lies beyond it. What follows from that progress for one planned
micro-batch is decided here; `bridge.publishing.lane_publisher` carries it out.

A micro-batch is planned only when the one before is committed on every lane. So the lanes of a table stand at most one
micro-batch apart, and the progress of the furthest names it: a starting job first finishes that one, then plans anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from bridge.errors import BridgeError, DataLossError, LayoutError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, StreamOffset
from bridge.model.micro_batch import Layout, Part, PlannedBatch, Window
from bridge.model.position import LanePosition
from bridge.model.times import UnixMicros, UnixMillis

_RESTARTED_WITHIN_US: Final = 600_000_000
"""How long a restart takes at most, between a crash and the next look at the log."""


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


@dataclass(frozen=True, slots=True)
class TableStart:
    """How a starting job goes on with a table, according to Kafka.

    Attributes:
        layout: the lanes to work with now.
        cursor: what is done on every lane.
        interrupted: the micro-batch that some lanes have committed, wholly or in part, and others have not.
        initialise: whether the layout is to be written to every lane's progress before work begins.
        settle: whether `layout` is not the wanted one and is kept only to finish `interrupted` under it; then the
            decision is to be made again.
        entered_from_ms: the generation that was read before that of `goes_on_in_ms`; None when that is not known.
        first: whether nothing of the table was published yet.
        at_edge: whether the cursor may lie where changes are just expiring: then what expires before the reading has
            left that place is no gap (`excuses`).
        edge_us: before which write time changes may have expired when the table was laid, if it was laid there or
            behind it, and its first micro-batch is not done yet.
    """

    layout: Layout
    cursor: Cursor
    interrupted: PlannedBatch | None = None
    initialise: bool = False
    settle: bool = False
    entered_from_ms: UnixMillis | None = None
    first: bool = False
    at_edge: bool = False
    edge_us: UnixMicros | None = None

    def __post_init__(self) -> None:
        if self.settle and self.interrupted is None:
            raise ValueError("nothing to settle")

    @property
    def goes_on_in_ms(self) -> UnixMillis:
        """The generation in which the next micro-batch is planned, what was interrupted being done."""
        return (self.cursor if self.interrupted is None else self.interrupted.next).generation_ms

    def excuses(self, until_us: UnixMicros | None) -> bool:
        """Whether it is no gap that changes from before `until_us` have expired, with the cursor where it is.

        As long as nothing is published, nobody was promised anything. Of a first micro-batch at the edge that was
        interrupted, so much can't be had as a restart takes. What expires while nobody reads for longer is lost.
        """
        if not self.at_edge or self.interrupted is None or until_us is None:
            return self.at_edge
        reached_us = self.interrupted.next.reached_us
        return until_us <= max(reached_us, self.edge_us or reached_us) + _RESTARTED_WITHIN_US

    def moved_to(self, cursor: Cursor, lanes: int) -> TableStart:
        """The start with all lanes at a later cursor, because what lies before it is lost; the same if they are there.

        What was interrupted is given up too: on the lanes that have not finished it, it belongs to what is lost.
        """
        if cursor == self.cursor:
            return self
        beyond = cursor if self.interrupted is None else max(cursor, self.interrupted.next)
        return TableStart(Layout(lanes, beyond), beyond, initialise=True, at_edge=True)

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        batch = self.interrupted
        return {
            "layout": self.layout.to_json(),
            "cursor": self.cursor.to_json(),
            "interrupted": None if batch is None else StreamOffset(batch.next, batch).to_json(),
            "initialise": self.initialise,
            "settle": self.settle,
            "from": self.entered_from_ms,
            "first": self.first,
            "at_edge": self.at_edge,
            "edge": self.edge_us,
        }

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The start that `to_json` gave; raises BridgeError for anything else."""
        match value:
            case {
                "layout": layout,
                "cursor": cursor,
                "interrupted": interrupted,
                "initialise": bool(initialise),
                "settle": bool(settle),
                "from": int() | None as before_ms,
                "first": bool(first),
                "at_edge": bool(at_edge),
                "edge": int() | None as edge,
            }:
                batch = None if interrupted is None else StreamOffset.from_json(interrupted).batch
                entered_from_ms = None if before_ms is None else UnixMillis(before_ms)
                return cls(
                    Layout.from_json(layout), Cursor.from_json(cursor), batch, initialise, settle, entered_from_ms,
                    first, at_edge, None if edge is None else UnixMicros(edge),
                )  # fmt: skip
        raise BridgeError(f"not a table's start: {value!r}")


def present_layout(progress: Iterable[LaneProgress]) -> Layout:
    """The layout in force, given the committed progress of a table's lanes, of which there is at least one.

    A newer layout is written only when every lane stands at its `since`, so the furthest cursor names it.
    """
    return max(progress, key=lambda at: (at.layout.since, at.cursor, at.done is not None)).layout


def decide_start(
    found: Mapping[int, LaneProgress], lanes: int, first: Cursor | None, edge_us: UnixMicros | None = None
) -> TableStart:
    """Where a starting job goes on, and under which layout: the configured one as soon as no lane is left behind.

    Args:
        found: committed progress by lane; empty before the very first start.
        lanes: the configured number.
        first: where a table without progress begins; needed only then.
        edge_us: before which write time changes may have expired, if `first` lies there or behind it.

    Raises:
        DataLossError: some lanes' progress is missing, or older than that of the others allows.
    """
    if not found:
        if first is None:
            raise ValueError("a table without progress needs a first cursor")
        return TableStart(Layout(lanes, first), first, initialise=True, first=True, at_edge=True, edge_us=edge_us)
    layout = present_layout(found.values())
    own = {lane: at for lane, at in found.items() if lane < layout.lanes and at.layout == layout}
    furthest = max((own or found).values(), key=lambda at: at.cursor if at.batch is None else at.batch.next)
    missing = sorted(set(range(layout.lanes)) - own.keys())
    if missing and furthest.batch is not None:
        raise DataLossError(
            f"lanes {', '.join(map(str, missing))} of {layout.lanes} have no progress although others have gone on "
            f"to {furthest.batch.next}: the progress topic is damaged. Restore it, or delete it with the checkpoint to "
            "begin anew"
        )
    before_ms = furthest.entered_from_ms
    nothing_yet = all(at.first for at in found.values())
    # Of a first micro-batch that all lanes have committed nothing can expire any more.
    laid_us = furthest.edge_us if nothing_yet else None
    begun = partial(TableStart, entered_from_ms=before_ms, first=nothing_yet, at_edge=nothing_yet, edge_us=laid_us)
    if missing:
        # The job died while it wrote this layout; no lane has worked under it, nor under another one since.
        for lane, at in sorted(found.items()):
            if at.cursor > layout.since or (at.done is not None and at.cursor == layout.since):
                raise DataLossError(
                    f"lane {lane} has gone on to {at.cursor} although {layout.lanes} lanes were laid at "
                    f"{layout.since}: the progress topic is damaged. Restore it, or delete it with the checkpoint to "
                    "begin anew"
                )
        return begun(Layout(lanes, layout.since), layout.since, initialise=True)
    batch = furthest.batch
    if batch is None or all(at.batch == batch and at.done is None for at in own.values()):
        if layout.lanes == lanes:
            return begun(layout, furthest.cursor)
        return begun(Layout(lanes, furthest.cursor), furthest.cursor, initialise=True)
    for lane, at in sorted(own.items()):
        if at.batch != batch and (at.cursor != batch.start or at.done is not None):
            raise DataLossError(
                f"lane {lane} stands at {at.cursor} although another has gone on from {batch.start}: the progress "
                "topic is damaged. Restore it, or delete it with the checkpoint to begin anew"
            )
    if batch.next.generation_ms != batch.start.generation_ms:
        before_ms = batch.start.generation_ms
    settle = layout.lanes != lanes
    edge_us = furthest.edge_us
    return TableStart(
        layout, batch.start, batch, settle=settle, entered_from_ms=before_ms, at_edge=edge_us is not None,
        edge_us=edge_us,
    )  # fmt: skip


class Plans:
    """Reconciles Spark's offsets, which are only a plan, with what Kafka says of a table at the start of its query.

    A checkpoint may be lost, old, or hold a micro-batch that no lane has begun and that was planned otherwise since:
    what it says counts only where it agrees with Kafka. Without a `TableStart` (the source by itself, in
    somebody's own query) Spark's offsets are all there is, and always count.

    Not thread-safe; one for each query.
    """

    def __init__(self, start: TableStart | None) -> None:
        self._start = start
        self._ours: StreamOffset | None = None

    def counts(self, offset: StreamOffset) -> bool:
        """Whether a micro-batch that Spark wants worked is to be worked; if not, it is none of the present lanes'."""
        start, batch = self._start, offset.batch
        if start is None or offset == self._ours:
            return True
        if start.interrupted is not None:
            agreed = batch == start.interrupted
        else:
            agreed = batch is not None and batch.start == start.cursor and batch.layout == start.layout
        if agreed:
            self._ours = offset
        return agreed

    def go_on_from(self, offset: StreamOffset) -> Cursor | PlannedBatch:
        """Where to plan from, given the offset that Spark stands at; or the micro-batch that has to come first."""
        start = self._start
        if start is None or offset == self._ours:
            return offset.next
        return start.cursor if start.interrupted is None else start.interrupted

    def planned(self, batch: PlannedBatch, after: StreamOffset) -> StreamOffset:
        """The offset of a micro-batch that was planned while Spark stood at `after`."""
        self._ours = StreamOffset(batch.next, batch, after.turn + 1)
        return self._ours
