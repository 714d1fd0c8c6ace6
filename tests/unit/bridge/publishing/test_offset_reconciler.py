"""Which of Spark's offsets count."""

from __future__ import annotations

from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.table_start import TableStart
from tests.unit.bridge.publishing.progress_fakes import (
    BATCH,
    LAYOUT,
    at,
)

OFFSET = StreamOffset(BATCH.next, BATCH, 3)


def test_replay_counts_only_where_kafka_agrees() -> None:
    """It has to be the interrupted micro-batch, or to begin where all lanes stand."""
    other = StreamOffset(at(2_700_000), PlannedBatch(at(2_000_000), at(2_700_000), LAYOUT), 3)
    assert OffsetReconciler(None).counts(other)
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH)).counts(OFFSET)
    assert not OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH)).counts(other)
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start)).counts(other)
    assert not OffsetReconciler(TableStart(LAYOUT, at(2_700_000))).counts(other)
    assert not OffsetReconciler(TableStart(Layout(3, BATCH.start), BATCH.start)).counts(other)


def test_planning_goes_on_from_the_committed_progress() -> None:
    """Not from the end of a stale checkpoint. The interrupted micro-batch comes first."""
    stale = StreamOffset(at(1_500_000), None)
    assert OffsetReconciler(None).go_on_from(stale) == at(1_500_000)
    assert OffsetReconciler(TableStart(LAYOUT, at(3_000_000))).go_on_from(stale) == at(3_000_000)
    plans = OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH))
    assert plans.go_on_from(stale) == BATCH
    assert plans.go_on_from(plans.planned(BATCH, stale)) == at(3_000_000)
    replayed = OffsetReconciler(TableStart(LAYOUT, BATCH.start, BATCH))
    assert replayed.counts(OFFSET)
    assert replayed.go_on_from(OFFSET) == at(3_000_000)


def test_repeated_batch_has_a_new_offset() -> None:
    """Spark sees nothing new in an offset of the same text."""
    assert OffsetReconciler(TableStart(LAYOUT, BATCH.start)).planned(BATCH, OFFSET) != OFFSET
