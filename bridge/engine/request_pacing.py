"""Decides when a table's next micro-batch is due and how long its window may be, and waits for that."""

from __future__ import annotations

import logging
from typing import Final

from bridge.adapters.planner_signals import ChangeWatcher, LastPoll
from bridge.config.document import SourceConfig
from bridge.engine.ports import Clocks
from bridge.engine.table_observer import TableObserver
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import PlannedBatch
from bridge.model.times import UnixMillis
from bridge.planning.poll_rate import PollLimits, PollRate, load_interval_s
from bridge.planning.window_size import WindowSize

_log = logging.getLogger(__name__)

_LONGEST_QUIET_INTERVAL_S: Final = 10.0
"""A table that is read less often than this gets a warning."""
_LONGEST_WAIT_S: Final = 1.0
"""A stop waits for the planner's wait to end, and a new generation goes unnoticed during it."""
_CHECK_FOR_CHANGES_EVERY_S: Final = 0.25


class RequestPacing:
    """Keeps one table's requests within its share of `scylla.requests_per_second`, and saves requests while it is idle.

    One for each planner.
    """

    def __init__(self, config: SourceConfig, observer: TableObserver, clocks: Clocks, signals: str | None) -> None:
        """Begin; requests that an earlier planner of the table has planned still count.

        Args:
            config: of the source.
            observer: of the table.
            clocks: of this process.
            signals: path of the file through which the job signals changes (`bridge.adapters.planner_signals`); None
                when no job does. Then the table never counts as idle.
        """
        self._config = config
        self._observer = observer
        self._clocks = clocks
        self._arrivals = None if signals is None else ChangeWatcher(signals)
        self._asked = None if signals is None else LastPoll(signals)
        self._requests_per_s = config.scylla.requests_per_second / config.sharing
        now_s = clocks.monotonic_s()
        self._poll_rate = PollRate(
            # Without the signal nothing would end the pause of an idle table when it is written to again.
            PollLimits(self._requests_per_s, 0.0 if signals is None else config.reading.idle_interval_ms / 1000),
            now_s,
            wait_s=0.0 if self._asked is None else self._asked.remaining_s(now_s),
        )
        self._windows = WindowSize(config.reading.max_window_ms * 1000, config.reading.target_batch_ms)
        self._warned_for: tuple[UnixMillis, int] | None = None

    def batch_is_done(self) -> None:
        """Note that Spark has finished the micro-batch that was planned last, if one was."""
        self._windows.batch_ends(
            self._clocks.monotonic_s(), lambda done: self._load_interval_s(done.start.generation_ms)
        )

    def batch_is_planned(self, batch: PlannedBatch | None) -> None:
        """Note the micro-batch that Spark runs next; None for none."""
        self._windows.batch_begins(self._clocks.monotonic_s(), batch)

    def count_requests(self, batch: PlannedBatch) -> None:
        """Count the requests of a micro-batch that begins now, for this planner and the next one."""
        now_s = self._clocks.monotonic_s()
        counts_for_s = self._poll_rate.record_batch(now_s, self._stream_count(batch.start.generation_ms))
        if self._asked is not None:
            self._asked.record(self._clocks.monotonic_s(), counts_for_s)

    def check_for_changes(self) -> None:
        """Note whether the job has signalled changes since the last check."""
        if self._arrivals is not None and self._arrivals.saw_changes():
            self._poll_rate.record_changes(self._clocks.monotonic_s())

    def wait_briefly(self, *, idle: bool) -> bool:
        """Wait until the next micro-batch is due, but no longer than Spark's loop may stand still.

        Each call of Spark's costs some ms of CPU, and a call that waits here returns no later than the next one would.

        Args:
            idle: whether waiting for changes is all that is left to do.

        Returns:
            Whether the micro-batch is due now.
        """
        until_s = self._clocks.monotonic_s() + _LONGEST_WAIT_S
        while due_in_s := self._due_in_s(idle=idle):
            left_s = until_s - self._clocks.monotonic_s()
            if left_s <= 0.0:
                return False
            self._clocks.sleep(min(due_in_s, left_s, _CHECK_FOR_CHANGES_EVERY_S))
            self.check_for_changes()
        return True

    def wait_for_turn(self) -> None:
        """Wait until the table's share of requests allows the next micro-batch."""
        self._clocks.sleep(self._due_in_s(idle=False))

    def is_behind(self, cursor: Cursor) -> bool:
        """Return whether more can be read than one window holds; such a table does not wait for changes."""
        readable_us = self._observer.server_time.earlier_us() - self._config.reading.confidence_ms * 1000
        return readable_us - cursor.time_us > self.longest_window_us(cursor)

    def longest_window_us(self, cursor: Cursor) -> int:
        """Return how long a window may be, in us: long enough that a table which is read seldom keeps up."""
        self._bound_pause()
        apart_s = max(
            self._load_interval_s(cursor.generation_ms), self._poll_rate.idle_interval_s(self._clocks.monotonic_s())
        )
        return self._windows.longest_us(apart_s)

    def _due_in_s(self, *, idle: bool) -> float:
        self._bound_pause()
        return self._poll_rate.due_in_s(self._clocks.monotonic_s(), idle=idle)

    def _bound_pause(self) -> None:
        self._poll_rate.limit_idle_interval(self._observer.longest_pause_s)

    def _load_interval_s(self, generation_ms: UnixMillis) -> float:
        """How far apart a generation's micro-batches must lie, in s, for the table's share of requests."""
        return load_interval_s(self._stream_count(generation_ms), self._requests_per_s)

    def _stream_count(self, generation_ms: UnixMillis) -> int:
        count = self._observer.stream_count(generation_ms)
        if count and (generation_ms, count) != self._warned_for:
            self._warned_for = generation_ms, count
            interval_s = load_interval_s(count, self._requests_per_s)
            if interval_s > _LONGEST_QUIET_INTERVAL_S:
                _log.warning(
                    "%s: its %d streams are looked at every %.0f s, as scylla.requests_per_second: %d allows for %d "
                    "tables; raise that if the cluster bears it, or changes will be that late",
                    *(self._config.table.name, count, interval_s),
                    *(self._config.scylla.requests_per_second, self._config.sharing),
                )
        return count
