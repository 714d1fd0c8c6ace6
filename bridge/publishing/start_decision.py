"""Decides from the committed progress of a table's lanes where a starting job goes on, and under which layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from bridge.errors import DataLossError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros
from bridge.publishing.table_start import TableStart

_DAMAGED: Final = (
    "the progress topic is damaged. Restore it. To start at reading.start in its place, and publish again what the log "
    "holds, stop the job, and delete the progress topic, the checkpoint and the change topic"
)


def current_layout(progress: Iterable[LaneProgress]) -> Layout:
    """Return the layout in force.

    A job writes a newer layout only when every lane stands at that layout's `since`, so the furthest cursor names it.

    Args:
        progress: committed progress of a table's lanes, at least one.
    """
    return max(progress, key=lambda at: (at.layout.since, at.cursor, at.done is not None)).layout


def decide_start(
    found: Mapping[int, LaneProgress], lanes: int, first: Cursor | None, edge_us: UnixMicros | None = None
) -> TableStart:
    """Decide where a starting job goes on. It uses the configured layout as soon as no lane is left behind.

    Args:
        found: committed progress by lane; empty before the very first start.
        lanes: the configured number of lanes.
        first: where a table without progress begins; needed only then.
        edge_us: the write time before which changes may have expired, if `first` lies there or behind it.

    Raises:
        DataLossError: some lanes' progress is missing, or older than that of the others allows.
    """
    if not found:
        if first is None:
            raise ValueError("a table without progress needs a first cursor")
        return TableStart(Layout(lanes, first), first, assign=True, first=True, at_edge=True, edge_us=edge_us)
    layout = current_layout(found.values())
    own = {lane: at for lane, at in found.items() if lane < layout.lanes and at.layout == layout}
    furthest = max((own or found).values(), key=lambda at: at.cursor if at.batch is None else at.batch.next)
    missing = sorted(set(range(layout.lanes)) - own.keys())
    if missing:
        _check_nothing_done_under(layout, found, furthest, missing)
        # The job that wrote this layout died meanwhile.
        return _level_start(Layout(lanes, layout.since), layout.since, found, furthest, assign=True)
    batch = furthest.batch
    if batch is None or all(at.batch == batch and at.done is None for at in own.values()):
        if layout.lanes == lanes:
            return _level_start(layout, furthest.cursor, found, furthest)
        return _level_start(Layout(lanes, furthest.cursor), furthest.cursor, found, furthest, assign=True)
    _check_one_batch_apart(own, batch)
    return _interrupted_start(layout, batch, furthest, recover=layout.lanes != lanes)


def _level_start(
    layout: Layout, cursor: Cursor, found: Mapping[int, LaneProgress], furthest: LaneProgress, *, assign: bool = False
) -> TableStart:
    """Return the start of a table whose lanes all stand at one cursor."""
    first = all(at.first for at in found.values())
    start = TableStart(layout, cursor, assign=assign, entered_from_ms=furthest.entered_from_ms, facts=furthest.facts)
    # Once all lanes have committed the first micro-batch, nothing of it can expire any more.
    return replace(start, first=True, at_edge=True, edge_us=furthest.edge_us) if first else start


def _interrupted_start(layout: Layout, batch: PlannedBatch, furthest: LaneProgress, *, recover: bool) -> TableStart:
    """Return the start of a table whose lanes have not all committed a micro-batch."""
    crosses = batch.next.generation_ms != batch.start.generation_ms
    return TableStart(
        layout,
        batch.start,
        batch,
        recover=recover,
        entered_from_ms=batch.start.generation_ms if crosses else furthest.entered_from_ms,
        at_edge=furthest.edge_us is not None,
        edge_us=furthest.edge_us,
        facts=furthest.facts,
    )


def _check_nothing_done_under(
    layout: Layout, found: Mapping[int, LaneProgress], furthest: LaneProgress, missing: list[int]
) -> None:
    """Check that lanes are missing only because a job died while it wrote the layout: then no lane has gone on.

    Raises:
        DataLossError: a lane has gone on.
    """
    if furthest.batch is not None:
        raise DataLossError(
            f"lanes {', '.join(map(str, missing))} of {layout.lanes} have no progress although others have gone on "
            f"to {furthest.batch.next}: {_DAMAGED}"
        )
    for lane, at in sorted(found.items()):
        if at.cursor > layout.since or (at.done is not None and at.cursor == layout.since):
            raise DataLossError(
                f"lane {lane} has gone on to {at.cursor} although {layout.lanes} lanes were assigned at "
                f"{layout.since}: {_DAMAGED}"
            )


def _check_one_batch_apart(own: Mapping[int, LaneProgress], batch: PlannedBatch) -> None:
    """Check that every lane has committed `batch`, stands inside it or stands at its start.

    Raises:
        DataLossError: a lane stands elsewhere.
    """
    for lane, at in sorted(own.items()):
        if at.batch != batch and (at.cursor != batch.start or at.done is not None):
            raise DataLossError(
                f"lane {lane} stands at {at.cursor} although another has gone on from {batch.start}: {_DAMAGED}"
            )
