"""Finds changes that a table's reading has lost, or is about to lose, and stops the table or logs them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from bridge.config.document import SourceConfig
from bridge.engine.start_position import is_earliest
from bridge.engine.table_observer import TableObserver
from bridge.errors import DataLossError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import UnixMillis, iso_of_micros
from bridge.planning.data_loss import Gap, ahead_of_servers_us, find_gap, overtaken_generation
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.retention import ExpiredChanges
from bridge.publishing.table_start import TableStart

_log = logging.getLogger(__name__)

_TOLERATED_AHEAD_US: Final = 1_000_000
"""A cursor that is ahead of the servers' clocks by no more than this is not worth an error."""


class LossWatch:
    """Compares one table's cursor with what its log still holds. One for each planner."""

    def __init__(self, config: SourceConfig, start: TableStart | None, observer: TableObserver) -> None:
        """Begin at a table's start.

        Args:
            config: of the source.
            start: where Kafka's progress records place the table; None for a query that is not a job's.
            observer: of the table.
        """
        self._config = config
        self._start = start
        self._observer = observer
        # `earliest` promises no particular first change; an instant and `latest` name what is wanted.
        is_silent = is_earliest(config)
        if start is None:
            # A query without a checkpoint calls `begin_at_edge`.
            self._expired = ExpiredChanges()
        else:
            skips_first_batch = start.first and start.edge_us is not None and is_silent
            self._expired = ExpiredChanges(at_edge=start.at_edge, skips_first_batch=skips_first_batch)
        self._seen: set[UnixMillis] = set()
        self._seen_in_log = observer.log_changes
        self._overtaken_logged = self._ahead_logged = False

    def begin_at_edge(self) -> None:
        """Note that the reading begins where changes are just expiring; that is no gap until it has moved on."""
        self._expired = ExpiredChanges(at_edge=True, skips_first_batch=is_earliest(self._config))

    def batch_begins(self, batch: PlannedBatch) -> None:
        """Note the micro-batch that is read from now on."""
        self._expired.begin_batch(batch)

    def batch_is_done(self) -> None:
        """Log what may have expired while the last micro-batch was read; call before the next look at the table.

        The TTL of the log that was read counts. That of a log which has replaced it does not.
        """
        self._warn(self._expired.end_batch(self._observer.expired_us()))

    def log_rest(self) -> None:
        """Log what was held back until more of it comes together; call when no further micro-batch will be planned."""
        self._warn(self._expired.report_rest())

    def check(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> bool:
        """Check a cursor before a micro-batch is planned from it.

        Args:
            cursor: every change before it was read.
            generations: the published ones, ascending.

        Returns:
            Whether the table exists; a gap makes the observer look at it again.

        Raises:
            DataLossError: changes are lost, and `reading.accept_data_loss` is not set.
            RetriableError: the table has to start again, behind what is lost; or a node may lag behind.
            BridgeError: the cluster refuses a request.
        """
        self._check_gap(cursor, generations)
        if not self._observer.state.exists:
            return False
        self._check_overtaken(cursor, generations)
        self._check_ahead(cursor)
        return True

    def _check_gap(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> None:
        gap = self._find_gap(cursor, generations)
        if gap is None:
            self._warn(self._expired.leave_edge())
            return
        if self._expired.is_behind_edge and gap.go_on_at == cursor:
            return
        # The last look may be older than the cause of the gap: the table may be dropped, or created again.
        self._observer.observe(cursor, at_once=True)
        gap = self._find_gap(cursor, generations)
        if gap is None or not self._observer.state.exists:
            return
        name = self._config.table.name
        if gap.go_on_at is None or not self._config.reading.accept_data_loss:
            raise gap.error(name)
        if gap.go_on_at != cursor:
            # Only a table's start may move its lanes, because it writes their progress records.
            raise RetriableError(
                f"{name}: {gap}. The table starts again and goes on, because reading.accept_data_loss is set"
            )
        self._warn(f"{gap}; going on, because reading.accept_data_loss is set")
        self._expired.accept_gap(gap)

    def _find_gap(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> Gap | None:
        return find_gap(
            cursor,
            generations,
            self._observer.expired_us(),
            may_lag=self._observer.may_lag,
            log_made_us=self._observer.state.log_made_us,
        )

    def _check_overtaken(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> None:
        start = self._start
        if self._seen_in_log != self._observer.log_changes:
            self._seen, self._seen_in_log = set(), self._observer.log_changes
        here = start is not None and start.goes_on_in_ms == cursor.generation_ms
        passed = overtaken_generation(
            cursor, self._seen, generations, start.entered_from_ms if start and here else None
        )
        self._seen = {one.start_ms for one in generations}
        if passed is None:
            return
        message = (
            f"{self._config.table.name}: generation {passed} was published after the reading had entered "
            f"generation {cursor.generation_ms}; its changes can't be published any more without coming out of order"
        )
        if not self._config.reading.accept_data_loss:
            raise DataLossError(f"{message}. To go on without them, set reading.accept_data_loss")
        if not self._overtaken_logged:
            _log.warning("%s; going on without them, because reading.accept_data_loss is set", message)
        self._overtaken_logged = True

    def _check_ahead(self, cursor: Cursor) -> None:
        servers_us = self._observer.server_time.servers_us()
        by_us = ahead_of_servers_us(cursor, servers_us)
        is_ahead = by_us > _TOLERATED_AHEAD_US
        if is_ahead and not self._ahead_logged:
            _log.error(
                "%s: everything before %s counts as read, but the ScyllaDB servers' clocks say %s: what is written in "
                "the next %.1f s comes before that and will not be published. A clock was ahead when it was read",
                *(self._config.table.name, iso_of_micros(cursor.time_us), iso_of_micros(servers_us), by_us / 1e6),
            )
        self._ahead_logged = is_ahead

    def _warn(self, message: str) -> None:
        if message:
            _log.warning("%s: %s", self._config.table.name, message)
