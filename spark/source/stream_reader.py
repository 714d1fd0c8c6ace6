"""Both ends of the source: planning micro-batches (one process for the query) and reading lanes (tasks).

Translates between Spark and `bridge`; what to read and in which order is decided there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bridge.adapters.planner_signals import Arrivals, Asked, KnownTtl
from bridge.adapters.scylla.stream_metadata import StreamMetadata
from bridge.config.document import SourceConfig
from bridge.engine import process_cache
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.engine.read_lane import LaneChanges
from bridge.engine.start_position import is_earliest, wait_for_first_cursor
from bridge.errors import BridgeError, DataLossError, RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import StreamOffset, canonical_json
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, millis_to_micros
from bridge.planning import micro_batches
from bridge.planning.expiry import Expiry
from bridge.planning.micro_batches import GenerationStart, WindowLength
from bridge.planning.poll_rate import PaceLimits, Pacer, load_interval_s
from bridge.planning.retention import Gap, LogTtl, ahead_us, find_gap, overtaken
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import LOOK_EVERY_S, TableState, TableWatch
from bridge.publishing.offset_reconciler import OffsetReconciler
from bridge.publishing.protocol import LaneTask
from bridge.publishing.table_start import TableStart
from bridge.runtime import log_setup
from schemas.shapes import shape_of
from spark.source import rows

_log = logging.getLogger(__name__)

_GENERATIONS_EVERY_S = 2.0
_OFTEN_ENOUGH_S = 10.0
_AHEAD_US = 1_000_000
_PAUSE_OF_TTL = 0.25
"""The part of the log's TTL, less the confidence window, that a silent table is not looked at, at most."""
_LONGEST_WAIT_S = 1.0
"""A stop that meets the planner waiting takes so much longer, and a generation is seen so much later."""
_LOOK_FOR_CHANGES_EVERY_S = 0.25


@dataclass(frozen=True, slots=True)
class LanePartition(InputPartition):
    """One lane's part of a planned micro-batch, as it travels to a task.

    Attributes:
        fingerprint: of the table when the planner looked at it last; no part of the plan, so a replay may have another.
    """

    keyspace: str
    table: str
    lane: int
    offset: str
    fingerprint: str = ""

    @property
    def task(self) -> LaneTask:
        """The task in the bridge's own terms."""
        batch = StreamOffset.from_json(json.loads(self.offset)).batch
        assert batch is not None
        return LaneTask(self.keyspace, self.table, self.lane, batch)


class ScyllaCdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in the query's planner process, reads in its tasks.

    What the planner keeps between calls paces it, and says what a gap is: of a generation that was passed over the next
    planner of the same query knows nothing.
    """

    def __init__(
        self,
        config: SourceConfig,
        start: TableStart | None,
        publishing: Publishing | None = None,
        *,
        activity: str | None = None,
    ) -> None:
        self._config = config
        self._start = start
        self._plans = OffsetReconciler(start)
        self._publishing = publishing
        self._frozen_now_us: UnixMicros | None = None
        self._windows = WindowLength(config.reading.max_window_ms * 1000, config.reading.target_batch_ms)
        self._generations: list[GenerationStart] = []
        self._generations_read_s = float("-inf")
        self._watch = TableWatch(config.table.keyspace, config.table.table, shape_of(config.table_output.shape))
        self._state = TableState(None, None, None)
        self._looked_s = float("-inf")
        self._known_ttl = None if activity is None else KnownTtl(activity)
        self._ttl = LogTtl() if self._known_ttl is None else self._known_ttl.known()
        self._saw_ttl_us: UnixMicros | None = None
        # Of `earliest` nobody was promised the first of what is left; an instant and `latest` name what is wanted.
        self._begins_in_silence = is_earliest(config)
        self._expiry = Expiry()
        if start is not None:
            is_silent = start.first and start.edge_us is not None and self._begins_in_silence
            self._expiry = Expiry(at_edge=start.at_edge, in_silence=is_silent)
        self._seen: set[UnixMillis] = set()
        self._passed_said = self._ahead_said = False
        self._arrivals = None if activity is None else Arrivals(activity)
        self._asked = None if activity is None else Asked(activity)
        self._pacer = Pacer(
            PaceLimits(
                config.scylla.requests_per_second / config.sharing,
                # Nobody would say that a table is written to again.
                0.0 if activity is None else config.reading.idle_interval_ms / 1000,
            ),
            _clock_s(),
            wait_s=0.0 if self._asked is None else self._asked.counts_for_s(_clock_s()),
        )
        self._counted: PlannedBatch | None = None
        self._streams: tuple[UnixMillis, int] | None = None

    # -- planner process ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """The first cursor of a query without a checkpoint; waits while the cluster has no generation yet."""
        log_setup.ensure()
        if self._start is not None:
            return _plain(StreamOffset(self._start.cursor, None))
        # `earliest` begins where changes are just expiring: until the reading has left that edge, it is no gap.
        self._expiry = Expiry(at_edge=True, in_silence=self._begins_in_silence)
        return _plain(StreamOffset(wait_for_first_cursor(self._config), None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next micro-batch's offset, or `start` itself when nothing may be read yet."""
        log_setup.ensure()
        offset = StreamOffset.from_json(start)
        at = self._plans.go_on_from(offset)
        try:
            # By the TTL of the log that it was read from: that of one that was made anew says nothing of it.
            self._warn(self._expiry.done(self._oldest_us()))
            self._look_at_table(at.start if isinstance(at, PlannedBatch) else at)
            if not self._state.exists:
                self._warn(self._expiry.rest())
                self._windows.planned(_clock_s(), None)
                return start
            self._windows.done(_clock_s(), lambda done: self._interval_s(done.start.generation_ms))
            batch = at if isinstance(at, PlannedBatch) else self._plan_in_turn(at)
        except BridgeError:
            # It is the end of this planner.
            self._warn(self._expiry.rest())
            raise
        self._windows.planned(_clock_s(), batch)
        if batch is None:
            if self._frozen_now_us is not None:
                self._warn(self._expiry.rest())
            return start
        self._count_requests(batch)
        return _plain(self._plans.planned(batch, offset))

    def _count_requests(self, batch: PlannedBatch) -> None:
        """Note what is worked: its requests count. One of a checkpoint comes without having been planned here."""
        if batch == self._counted:
            return
        self._counted = batch
        self._expiry.works(batch)
        if batch.next.generation_ms != batch.start.generation_ms:
            _log.info(
                "%s: reads generation %d to its end and goes over to generation %d",
                *(self._config.table.name, batch.start.generation_ms, batch.next.generation_ms),
            )
        counts_for_s = self._pacer.planned(_clock_s(), self._stream_count(batch.start.generation_ms))
        if self._asked is not None:
            self._asked.note(_clock_s(), counts_for_s)

    def _plan_in_turn(self, cursor: Cursor) -> PlannedBatch | None:
        """A micro-batch, but none while the table would be looked at more often than it may be."""
        self._look_whether_changes_came()
        if self._frozen_now_us is None:
            changing = any(one.start_ms > cursor.generation_ms for one in self._known_generations())
            idle = not changing and cursor.catch_up is None and not self._is_behind(cursor)
            # Each question of Spark's costs some ms of CPU, and its answer that nothing is to be done is none the later
            # for being waited for here.
            return self._plan(cursor) if self._waited(idle=idle) else None
        batch = self._plan(cursor)
        if batch is not None:
            # A run that is to end would do so when its offset stands still.
            _pause(self._pacer.due_in_s(_clock_s(), idle=False))
        return batch

    def _waited(self, *, idle: bool) -> bool:
        """Whether the next micro-batch is due by the end of a wait that is no longer than Spark's loop may stand."""
        until_s = _clock_s() + _LONGEST_WAIT_S
        while due_in_s := self._pacer.due_in_s(_clock_s(), idle=idle):
            left_s = until_s - _clock_s()
            if left_s <= 0.0:
                return False
            _pause(min(due_in_s, left_s, _LOOK_FOR_CHANGES_EVERY_S))
            self._look_whether_changes_came()
        return True

    def _look_whether_changes_came(self) -> None:
        if self._arrivals is not None and self._arrivals.came():
            self._pacer.came(_clock_s())

    def _is_behind(self, cursor: Cursor) -> bool:
        """Whether more is to be read than one micro-batch may: silence is no reason to wait before it has passed."""
        readable_us = self._time.earlier_us() - self._config.reading.confidence_ms * 1000
        return readable_us - cursor.time_us > self._longest_us(cursor)

    def _longest_us(self, cursor: Cursor) -> int:
        """How long a window may be: at least so long that a table which is looked at seldom is read to the present."""
        apart_s = max(self._interval_s(cursor.generation_ms), self._pacer.pause_s(_clock_s()))
        return self._windows.longest_us(apart_s)

    def _stream_count(self, generation_ms: UnixMillis) -> int:
        """Streams of a generation, so most requests that a micro-batch which begins in it begins with."""
        if self._streams is None or self._streams[0] != generation_ms:
            count = self._metadata.count(generation_ms)
            if not count:
                return 0
            self._streams = generation_ms, count
            scylla = self._config.scylla
            interval_s = load_interval_s(count, scylla.requests_per_second / self._config.sharing)
            if interval_s > _OFTEN_ENOUGH_S:
                _log.warning(
                    "%s: its %d streams are looked at every %.0f s, as scylla.requests_per_second: %d allows for %d "
                    "tables; raise that if the cluster bears it, or changes will be that late",
                    *(self._config.table.name, count, interval_s, scylla.requests_per_second, self._config.sharing),
                )
        return self._streams[1]

    def _plan(self, cursor: Cursor) -> PlannedBatch | None:
        if self._start is not None and self._start.recover:
            return None
        generations = self._known_generations()
        self._look_for_gap(cursor, generations)
        if not self._state.exists:
            return None
        self._look_for_overtaken(cursor, generations)
        self._look_whether_ahead(cursor)
        return micro_batches.plan(
            cursor,
            self._frozen_now_us or self._time.earlier_us(),
            generations,
            micro_batches.Limits(
                self._config.reading.confidence_ms * 1000,
                self._config.reading.leeway_ms * 1000,
                self._longest_us(cursor),
            ),
            Layout(self._config.lanes, cursor) if self._start is None else self._start.layout,
        )

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that becomes readable after this moment belongs to the run."""
        self._frozen_now_us = self._time.earlier_us()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LanePartition]:
        """One input partition for each lane of the micro-batch, exactly as it was planned.

        None for one that a checkpoint has kept and that is not what Kafka says is to be done.
        """
        offset = StreamOffset.from_json(end)
        if offset.batch is None or start == end or not self._plans.counts(offset):
            return []
        self._count_requests(offset.batch)
        table = self._config.table
        text = canonical_json(offset.to_json())
        return [
            LanePartition(table.keyspace, table.table, lane, text, self._state.fingerprint)
            for lane in range(offset.batch.layout.lanes)
        ]

    def stop(self) -> None:
        """Close the planner's session (Spark ends the process with SIGTERM instead, mostly)."""
        self._warn(self._expiry.rest())
        process_cache.drop_cluster(self._config.scylla)

    def _interval_s(self, generation_ms: UnixMillis) -> float:
        """How far micro-batches in a generation lie apart, by what its streams cost."""
        return load_interval_s(
            self._stream_count(generation_ms), self._config.scylla.requests_per_second / self._config.sharing
        )

    def _look_at_table(self, reached: Cursor) -> None:
        now_s = _clock_s()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        table = self._config.table
        former, self._state = (
            self._state,
            process_cache.change_log(self._config.scylla).table_state(table.keyspace, table.table),
        )
        self._looked_s = now_s
        if former.log_id != self._state.log_id:
            self._forget_streams()
        if self._state.options is not None:
            self._see_ttl(self._state.options.ttl_s)
        for notice in self._watch.see(self._state, _now_us(), reached):
            _log.log(notice.level, "%s", notice.text)

    def _see_ttl(self, ttl_s: int) -> None:
        before, now_us = self._ttl, self._time.servers_us()
        self._ttl = before.seen(ttl_s, now_us, self._state.log_id, looked_us=self._saw_ttl_us)
        self._saw_ttl_us = now_us
        # What nobody looks at while it expires would count as lost.
        left_s = max(0.0, ttl_s - self._config.reading.confidence_ms / 1000)
        self._pacer.pause_at_most(left_s * _PAUSE_OF_TTL if ttl_s else float("inf"))
        if self._known_ttl is not None and self._ttl is not before:
            self._known_ttl.note(self._ttl)

    def _forget_streams(self) -> None:
        """Ask anew which streams the table has: one that was made anew may have tablets now, or vnodes."""
        table = self._config.table
        process_cache.drop_metadata(self._config.scylla, table.keyspace, table.table)
        self._generations_read_s = float("-inf")
        self._streams = None
        self._seen = set()

    def _look_for_gap(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> None:
        gap = self._gap(cursor, generations)
        if gap is None:
            self._warn(self._expiry.ahead())
            return
        if self._expiry.goes_on and gap.go_on_at == cursor:
            return
        # What was seen last of the table may be older than what has torn the gap: its end, or a new beginning.
        self._looked_s = float("-inf")
        self._look_at_table(cursor)
        gap = self._gap(cursor, generations)
        if gap is None or not self._state.exists:
            return
        if gap.go_on_at is None or not self._config.reading.accept_data_loss:
            raise gap.error(self._config.table.name)
        words = f"{self._config.table.name}: {gap}"
        if gap.go_on_at != cursor:
            # Where the lanes go on is written to their progress, which only a table's start does.
            raise RetriableError(f"{words}. The table starts anew and goes on, as reading.accept_data_loss says")
        self._warn(f"{gap}; going on, as reading.accept_data_loss says")
        self._expiry.accepted(gap)

    def _gap(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> Gap | None:
        return find_gap(
            cursor,
            generations,
            self._oldest_us(),
            may_lag=self._metadata.may_lag,
            log_made_us=self._state.log_made_us,
        )

    def _oldest_us(self) -> UnixMicros | None:
        """The write time before which changes may have expired; None when they do not."""
        return self._ttl.oldest_us(self._time.servers_us())

    def _warn(self, words: str) -> None:
        if words:
            _log.warning("%s: %s", self._config.table.name, words)

    def _look_for_overtaken(self, cursor: Cursor, generations: Sequence[GenerationStart]) -> None:
        start = self._start
        here = start is not None and start.goes_on_in_ms == cursor.generation_ms
        passed = overtaken(cursor, self._seen, generations, start.entered_from_ms if start and here else None)
        self._seen = {one.start_ms for one in generations}
        if passed is None:
            return
        words = (
            f"{self._config.table.name}: generation {passed} was published after the reading had entered "
            f"generation {cursor.generation_ms}; its changes can't be published any more without coming out of order"
        )
        if not self._config.reading.accept_data_loss:
            raise DataLossError(f"{words}. To go on without them, set reading.accept_data_loss")
        if not self._passed_said:
            _log.warning("%s; going on without them, as reading.accept_data_loss says", words)
        self._passed_said = True

    def _look_whether_ahead(self, cursor: Cursor) -> None:
        servers_us = self._time.servers_us()
        by_us = ahead_us(cursor, servers_us)
        if by_us > _AHEAD_US and not self._ahead_said:
            _log.error(
                "%s: everything before %s counts as read, but the ScyllaDB servers' clocks say %s: what is written in "
                "the next %.1f s comes before that and will not be published. A clock was ahead when it was read",
                *(self._config.table.name, iso_of_micros(cursor.time_us), iso_of_micros(servers_us), by_us / 1e6),
            )
        self._ahead_said = by_us > _AHEAD_US

    @property
    def _time(self) -> ServerTime:
        return process_cache.server_time(self._config.scylla)

    @property
    def _metadata(self) -> StreamMetadata:
        table = self._config.table
        return process_cache.stream_metadata(self._config.scylla, table.keyspace, table.table)

    def _known_generations(self) -> list[GenerationStart]:
        now_s = _clock_s()
        if now_s - self._generations_read_s >= _GENERATIONS_EVERY_S:
            known, self._generations = {one.start_ms for one in self._generations}, self._metadata.generations()
            self._generations_read_s = now_s
            for one in self._generations if known else ():
                if one.start_ms not in known:
                    _log.info(
                        "%s: generation %d is published, which begins at %s",
                        *(self._config.table.name, one.start_ms, iso_of_micros(millis_to_micros(one.start_ms))),
                    )
        return self._generations

    # -- tasks ----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one lane in lane order; or one row, the report, once they are published."""
        assert isinstance(partition, LanePartition)
        log_setup.ensure()
        process_cache.settle_memory()
        lane = LaneChanges(self._config, partition.task, partition.fingerprint)
        if self._publishing is not None:
            yield rows.report_batch(publish_lane(self._publishing, lane))
            return
        for _, _, changes in lane.runs():
            yield from rows.change_batches(changes)


def _clock_s() -> float:
    return time.monotonic()


def _pause(seconds: float) -> None:
    time.sleep(seconds)


def _now_us() -> UnixMicros:
    return UnixMicros(time.time_ns() // 1000)


def _plain(offset: StreamOffset) -> dict[str, Any]:
    # Spark writes the dict as JSON in this order, and compares the text.
    plain: dict[str, Any] = json.loads(canonical_json(offset.to_json()))
    return plain
