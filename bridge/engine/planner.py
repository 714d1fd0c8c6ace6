"""Plans one table's micro-batches: which generation and which window to read next, on which lanes, and when.

The cluster and the clocks come from outside, so that the planner runs in Spark's planner process and in a test alike.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from bridge.adapters.planner_signals import ReplacedTopic
from bridge.config.document import SourceConfig
from bridge.engine.loss_watch import LossWatch
from bridge.engine.ports import Clocks, TableAccess
from bridge.engine.request_pacing import RequestPacing
from bridge.engine.start_position import wait_for_first_cursor
from bridge.engine.table_observer import ObservationIntervals, TableObserver
from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros
from bridge.planning import micro_batches
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.table_start import TableStart

_log = logging.getLogger(__name__)


class Planner:
    """Plans the micro-batches of one query. Not thread-safe.

    What it keeps between calls paces the requests and tells which changes expired unread. The next planner of the same
    query does not know which generations this one has passed over.
    """

    def __init__(
        self,
        config: SourceConfig,
        start: TableStart | None,
        table: TableAccess,
        clocks: Clocks = Clocks(),  # noqa: B008  # immutable
        *,
        signals: str | None = None,
        intervals: ObservationIntervals = ObservationIntervals(),  # noqa: B008  # immutable
    ) -> None:
        """Prepare; this asks the cluster nothing.

        Args:
            config: of the source.
            start: where Kafka's progress records place the table; None for a query that is not a job's. Such a query
                begins at `reading.start` and goes on from its checkpoint.
            table: the table's cluster.
            clocks: of this process.
            signals: path of the file for the signals between job and planner (`bridge.adapters.planner_signals`); None
                when there is no job.
            intervals: how often to look at the table.
        """
        self._config = config
        self._start = start
        self._table = table
        self._clocks = clocks
        self._plans = OffsetReconciler(start)
        facts = TableFacts() if start is None else start.facts or TableFacts()
        self._observer = TableObserver(config, table, clocks, intervals, facts)
        self._replaced_topic = None if signals is None else ReplacedTopic(signals)
        self._pacing = RequestPacing(config, self._observer, clocks, signals)
        self._losses = LossWatch(config, start, self._observer)
        self._end_us: UnixMicros | None = None
        self._begun: PlannedBatch | None = None
        # An assignment of the lanes has committed the start's facts, so only other starts have to.
        self._sent_facts = start.facts if start is not None and start.assign else None

    @property
    def fingerprint(self) -> str:
        """The table's columns and log at the last look, as a short text; another text after a change of them."""
        return self._observer.state.fingerprint

    @property
    def facts(self) -> TableFacts:
        """What is known about the table so far, for the lanes' progress records."""
        facts = self._observer.facts
        topic = None if self._replaced_topic is None else self._replaced_topic.read()
        return facts if topic is None else replace(facts, topic=topic)

    def first_offset(self) -> StreamOffset:
        """Return the offset at which a query without a checkpoint begins; waits while the table has no streams yet."""
        if self._start is not None:
            return StreamOffset(self._start.cursor, None)
        self._losses.begin_at_edge()
        return StreamOffset(wait_for_first_cursor(self._config, self._table, self._clocks), None)

    def end_at_present(self) -> None:
        """Plan up to this moment only: what becomes readable later does not belong to the run."""
        self._end_us = self._observer.server_time.earlier_us()

    def next_offset(self, reached: StreamOffset) -> StreamOffset | None:
        """Plan the next micro-batch; may wait about 1 s until it is due, longer after `end_at_present`.

        Args:
            reached: the offset that the query stands at.

        Returns:
            The offset of the micro-batch; None when nothing may be read yet.

        Raises:
            DataLossError: changes are lost, and `reading.accept_data_loss` is not set.
            RetriableError: the cluster fails, or the table has to start again.
            BridgeError: the cluster refuses a request.
        """
        at = self._plans.go_on_from(reached)
        try:
            self._losses.batch_is_done()
            self._observer.observe(at.start if isinstance(at, PlannedBatch) else at)
            if not self._observer.state.exists:
                self._losses.log_rest()
                self._pacing.batch_is_planned(None)
                return None
            self._pacing.batch_is_done()
            batch = at if isinstance(at, PlannedBatch) else self._plan_in_turn(at)
        except BridgeError:
            # Spark ends this planner.
            self._losses.log_rest()
            raise
        self._pacing.batch_is_planned(batch)
        if batch is None:
            if self._end_us is not None:
                self._losses.log_rest()
            return None
        self._begin(batch)
        return self._plans.planned(batch, reached)

    def begin(self, offset: StreamOffset) -> PlannedBatch | None:
        """Begin an offset's micro-batch.

        Args:
            offset: one that this planner has planned, or that a checkpoint has kept.

        Returns:
            The micro-batch to read; None when a checkpoint's offset does not agree with Kafka's progress records.
        """
        if offset.batch is None or not self._plans.counts(offset):
            return None
        self._begin(offset.batch)
        return offset.batch

    def close(self) -> None:
        """Log what has expired unread so far, and close the connection to the cluster."""
        self._losses.log_rest()
        self._table.disconnect()

    def _begin(self, batch: PlannedBatch) -> None:
        # A checkpoint's micro-batch is begun without being planned here, and a planned one is begun twice.
        if batch == self._begun:
            return
        self._begun = batch
        self._sent_facts = self._observer.facts
        self._losses.batch_begins(batch)
        if batch.next.generation_ms != batch.start.generation_ms:
            _log.info(
                "%s: reads generation %d to its end and goes over to generation %d",
                *(self._config.table.name, batch.start.generation_ms, batch.next.generation_ms),
            )
        self._pacing.count_requests(batch)

    def _plan_in_turn(self, cursor: Cursor) -> PlannedBatch | None:
        """Plan a micro-batch, but none before the table's share of requests allows it."""
        self._pacing.check_for_changes()
        if self._end_us is None:
            changing = any(one.start_ms > cursor.generation_ms for one in self._observer.known_generations())
            idle = not changing and cursor.catch_up is None and not self._pacing.is_behind(cursor)
            # Facts reach the progress topic with a micro-batch, also on a table without changes.
            idle = idle and (self._start is None or self._observer.facts == self._sent_facts)
            return self._plan(cursor) if self._pacing.wait_briefly(idle=idle) else None
        batch = self._plan(cursor)
        if batch is not None:
            # Spark ends the run when an offset stands still, so the wait cannot be left to its next call.
            self._pacing.wait_for_turn()
        return batch

    def _plan(self, cursor: Cursor) -> PlannedBatch | None:
        if self._start is not None and self._start.recover:
            return None
        generations = self._observer.known_generations()
        if not self._losses.check(cursor, generations):
            return None
        return micro_batches.plan(
            cursor,
            self._end_us or self._observer.server_time.earlier_us(),
            generations,
            micro_batches.Limits(
                self._config.reading.confidence_ms * 1000,
                self._config.reading.leeway_ms * 1000,
                self._pacing.longest_window_us(cursor),
            ),
            Layout(self._config.lanes, cursor) if self._start is None else self._start.layout,
        )
