"""Decides from the committed progress of a table's lanes where a starting job goes on, and under which layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from bridge.errors import DataLossError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMicros
from bridge.publishing.table_start import TableStart


def current_layout(progress: Iterable[LaneProgress]) -> Layout:
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
        return TableStart(Layout(lanes, first), first, assign=True, first=True, at_edge=True, edge_us=edge_us)
    layout = current_layout(found.values())
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
        return begun(Layout(lanes, layout.since), layout.since, assign=True)
    batch = furthest.batch
    if batch is None or all(at.batch == batch and at.done is None for at in own.values()):
        if layout.lanes == lanes:
            return begun(layout, furthest.cursor)
        return begun(Layout(lanes, furthest.cursor), furthest.cursor, assign=True)
    for lane, at in sorted(own.items()):
        if at.batch != batch and (at.cursor != batch.start or at.done is not None):
            raise DataLossError(
                f"lane {lane} stands at {at.cursor} although another has gone on from {batch.start}: the progress "
                "topic is damaged. Restore it, or delete it with the checkpoint to begin anew"
            )
    if batch.next.generation_ms != batch.start.generation_ms:
        before_ms = batch.start.generation_ms
    recover = layout.lanes != lanes
    edge_us = furthest.edge_us
    return TableStart(
        layout, batch.start, batch, recover=recover, entered_from_ms=before_ms, at_edge=edge_us is not None,
        edge_us=edge_us,
    )  # fmt: skip
