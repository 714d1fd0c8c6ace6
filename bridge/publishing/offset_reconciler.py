"""Reconciles Spark's offsets, which are only a plan, with the committed progress in Kafka."""

from __future__ import annotations

from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import PlannedBatch
from bridge.publishing.table_start import TableStart


class OffsetReconciler:
    """Uses an offset from Spark's checkpoint only where it agrees with Kafka.

    A checkpoint may be lost or old, or it may hold a micro-batch that no lane has begun and that was planned otherwise
    since. Without a `TableStart` (somebody uses the source in a query of their own) Spark's offsets are all there is,
    and always count.

    Not thread-safe; one for each query.

    Args:
        start: the table's start according to Kafka; None for a query that is not a job's.
    """

    def __init__(self, start: TableStart | None) -> None:
        self._start = start
        self._ours: StreamOffset | None = None

    def counts(self, offset: StreamOffset) -> bool:
        """Return whether to work the micro-batch of an offset; False when it does not belong to the present lanes."""
        start, batch = self._start, offset.batch
        if start is None or offset == self._ours:
            return True
        if start.interrupted is not None:
            agrees = batch == start.interrupted
        else:
            agrees = batch is not None and batch.start == start.cursor and batch.layout == start.layout
        if agrees:
            self._ours = offset
        return agrees

    def go_on_from(self, offset: StreamOffset) -> Cursor | PlannedBatch:
        """Return the cursor to plan from while Spark stands at `offset`, or the micro-batch that must come first."""
        start = self._start
        if start is None or offset == self._ours:
            return offset.next
        return start.cursor if start.interrupted is None else start.interrupted

    def planned(self, batch: PlannedBatch, after: StreamOffset) -> StreamOffset:
        """Return the offset of a micro-batch that was planned while Spark stood at `after`."""
        self._ours = StreamOffset(batch.next, batch, after.turn + 1)
        return self._ours
