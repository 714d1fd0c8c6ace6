"""Reconciles Spark's offsets, which are only a plan, with what Kafka says of a table."""

from __future__ import annotations

from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import PlannedBatch
from bridge.publishing.table_start import TableStart


class OffsetReconciler:
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
