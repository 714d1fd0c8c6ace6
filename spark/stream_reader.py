"""Both ends of the source: planning micro-batches (one process for the query) and reading lanes (tasks).

Translates between Spark and `bridge`; what to read and in which order is decided there.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bridge import assembly, logs, planning, schema_switch
from bridge.adapters.change_log import ChangeLog
from bridge.captured import CapturedTable
from bridge.config import ReadingSettings, SourceConfig
from bridge.control import Begin, Schemas, end_to_json
from bridge.encoding import EncodedChange, GroupEncoder
from bridge.errors import DataLossError, RetriableError
from bridge.lane_reader import read_lane
from bridge.model.changes import Cells
from bridge.model.cursors import Cursor, Layout, PlannedBatch, StreamOffset, canonical_json
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.figures import LaneFigures, tally
from bridge.monitoring.observed_pages import ObservedPages
from bridge.publishing import LaneTask
from bridge.table_watch import LOOK_EVERY_S, TableState, TableWatch
from bridge.value_text import json_value
from schemas.envelope import TableCodec
from spark import rows, worker

_log = logging.getLogger(__name__)

_GENERATIONS_EVERY_S = 2.0
_FIRST_GENERATION_EVERY_S = 0.5
_FIRST_WINDOW_US = 60_000_000


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
    """Plans in the query's planner process, reads in its tasks; what it keeps between calls only paces the planner."""

    def __init__(
        self, config: SourceConfig, layout: Layout | None, cursor: Cursor | None, until: Cursor | None, *, control: bool
    ) -> None:
        self._config = config
        self._layout = layout
        self._cursor = cursor
        self._until = until
        self._control = control
        self._frozen_now_us: UnixMicros | None = None
        self._window_us = min(_FIRST_WINDOW_US, config.reading.max_window_ms * 1000)
        self._planned: tuple[float, PlannedBatch] | None = None
        self._generations: list[UnixMillis] = []
        self._generations_read_s = float("-inf")
        self._watch = TableWatch(config.table.keyspace, config.table.table)
        self._state = TableState(None, None, None)
        self._looked_s = float("-inf")

    # -- planner process ------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """The first cursor of a query without a checkpoint; waits while the cluster has no generation yet."""
        cursor = self._cursor or wait_for_first_cursor(self._config)
        return _plain(StreamOffset(cursor, None))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The next micro-batch's offset, or `start` itself when nothing may be read yet."""
        reached = StreamOffset.from_json(start)
        self._look_at_table(reached.next)
        if not self._state.exists:
            self._planned = None
            return start
        self._pace()
        generations = self._known_generations()
        if reached.next.generation_ms not in generations:
            raise DataLossError(
                f"{self._config.table.name}: the reading stands in generation {reached.next.generation_ms}, which the "
                f"cluster does not know (it knows {', '.join(map(str, generations)) or 'none'}). Is this another "
                "cluster, or was it restored? To begin anew, delete the progress topic and the checkpoint"
            )
        batch = planning.plan(
            reached.next,
            self._frozen_now_us or _now_us(),
            generations,
            planning.Limits(
                self._config.reading.confidence_ms * 1000, self._config.reading.leeway_ms * 1000, self._window_us
            ),
            self._layout or Layout(self._config.lanes, reached.next),
        )
        if batch is not None and self._until is not None:
            batch = planning.clip(batch, self._until)
        if batch is None:
            self._planned = None
            return start
        self._planned = (time.monotonic(), batch)
        return _plain(StreamOffset(batch.next, batch))

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing that becomes readable after this moment belongs to the run."""
        self._frozen_now_us = _now_us()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LanePartition]:
        """One input partition for each lane of the micro-batch, exactly as it was planned."""
        offset = StreamOffset.from_json(end)
        if offset.batch is None or start == end:
            return []
        table = self._config.table
        text = canonical_json(offset.to_json())
        return [
            LanePartition(table.keyspace, table.table, lane, text, self._state.fingerprint)
            for lane in range(offset.batch.layout.lanes)
        ]

    def stop(self) -> None:
        """Close the planner's session (Spark ends the process with SIGTERM instead, mostly)."""
        worker.drop_cluster(self._config.scylla)

    def _pace(self) -> None:
        if self._planned is None:
            return
        planned_s, batch = self._planned
        window = batch.window
        full = window.end_us is not None and window.end_us - window.start_us >= self._window_us
        self._window_us = planning.next_window_us(
            self._window_us,
            (time.monotonic() - planned_s) * 1000,
            self._config.reading.target_batch_ms,
            full,
            self._config.reading.max_window_ms * 1000,
        )

    def _look_at_table(self, reached: Cursor) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        table = self._config.table
        self._state = worker.change_log(self._config.scylla).table_state(table.keyspace, table.table)
        self._looked_s = now_s
        if not logging.getLogger().handlers:
            # The planner's process is Spark's; what it says is to look like the rest of the job's log.
            logs.setup()
        for notice in self._watch.see(self._state, _now_us(), reached):
            _log.log(notice.level, "%s", notice.text)

    def _known_generations(self) -> list[UnixMillis]:
        now_s = time.monotonic()
        if now_s - self._generations_read_s >= _GENERATIONS_EVERY_S:
            self._generations = worker.change_log(self._config.scylla).generations()
            self._generations_read_s = now_s
        return self._generations

    # -- tasks ----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one lane in lane order, between its control rows if these are wanted."""
        assert isinstance(partition, LanePartition)
        worker.settle_memory()
        task = partition.task
        scylla = self._config.scylla
        try:
            place = (scylla, task.keyspace, task.table, self._config.output_options, partition.fingerprint)
            schemas: Schemas | None = None
            for captured, changes in schema_switch.runs(
                worker.captured_table(*place),
                lambda captured: self._changes(task, captured),
                lambda: worker.recaptured_table(*place),
            ):
                if self._control and schemas is None:
                    yield rows.control_batch(rows.BEGIN, Begin(task, captured.schemas).to_json())
                elif self._control and captured.schemas != schemas:
                    yield rows.control_batch(rows.SCHEMA, captured.schemas.to_json())
                schemas = captured.schemas
                for batch in rows.change_batches(changes):
                    self._count(task, batch)
                    yield batch
            if self._control:
                yield rows.control_batch(rows.END, end_to_json(tally.take()))
        except RetriableError:
            # A session that failed, or a table that is gone: the next attempt looks at everything anew.
            worker.drop_cluster(scylla)
            raise

    def _count(self, task: LaneTask, batch: pa.RecordBatch) -> None:
        # Only these have the operation in front.
        in_front = self._config.payload == "avro" and not self._config.output_options.by_row
        unknown = rows.unknown_operations(batch) if in_front else 0
        if unknown:
            tally.add(f"{task.keyspace}.{task.table}", task.lane, LaneFigures(unknown_operations=unknown))

    def _changes(self, task: LaneTask, captured: CapturedTable) -> Iterator[EncodedChange]:
        reading: ReadingSettings = self._config.reading
        scylla = self._config.scylla
        window = task.batch.window
        sets = worker.lane_stream_sets(scylla, window.generation_ms, task.lane, task.batch.layout.lanes)
        chunks = read_lane(
            ObservedPages(captured.reader, tally, f"{task.keyspace}.{task.table}", task.lane),
            [stream for stream_set in sets for stream in stream_set.streams],
            window,
            captured.layout,
            page_rows=scylla.page_rows,
            in_flight=scylla.requests_in_flight,
        )
        log_rows: Iterator[Cells] = (row for chunk in chunks for row in chunk)
        output, layout = self._config.table_output, captured.layout
        found = assembly.groups(
            log_rows,
            layout,
            incomplete=reading.on_incomplete_group,
            by_row=self._config.output_options.by_row,
            keep_poison=self._config.dead_letters,
        )
        if reading.deduplicate:
            found = assembly.without_repeats(found, layout)
        form = output.record_form(dead_letters=self._config.dead_letters)
        encoder = GroupEncoder(captured.codec, layout, (task.keyspace, task.table), form)
        for group in found:
            changes = encoder.encode(group, window.generation_ms)
            yield from changes if self._config.payload == "avro" else _as_json(changes, captured.codec)


def _as_json(changes: Iterator[EncodedChange], codec: TableCodec) -> Iterator[EncodedChange]:
    for change in changes:
        if change.is_dead_letter:
            yield change
            continue
        value = None if change.value is None else _json_of(codec.decode_value(change.value))
        yield change._replace(key=_json_of(codec.decode_key(change.key)), value=value)


def _json_of(record: Mapping[str, object]) -> bytes:
    return json.dumps(json_value(record), ensure_ascii=False).encode()


def wait_for_first_cursor(config: SourceConfig, stopping: Callable[[], bool] = lambda: False) -> Cursor:
    """Where a table without progress begins, by `reading.start`; waits while the cluster has no generation yet.

    Raises:
        RetriableError: `stopping` said so while there was none.
    """
    log = worker.change_log(config.scylla)
    said = False
    while True:
        cursor = planning.first_cursor(log.generations(), _start_us(config, log))
        if cursor is not None:
            return cursor
        if stopping():
            raise RetriableError(f"{log.session.address} has no CDC generation yet")
        if not said:
            _log.warning(
                "%s has no CDC generation yet; ScyllaDB refuses writes to CDC tables until it has one "
                '("could not find any CDC stream"). Waiting for it',
                log.session.address,
            )
            said = True
        time.sleep(_FIRST_GENERATION_EVERY_S)


def _start_us(config: SourceConfig, log: ChangeLog) -> UnixMicros | None:
    start = config.table.start or config.reading.start
    if not isinstance(start, str):
        return UnixMicros(round(start.timestamp() * 1_000_000))
    if start == "latest":
        return UnixMicros(_now_us() - config.reading.confidence_ms * 1000)
    options = log.cdc_options(config.table.keyspace, config.table.table)
    if options is None or options.ttl_s == 0:
        return None
    # Generations are kept for ever, changes are not: nothing older than this is left.
    return UnixMicros(_now_us() - options.ttl_s * 1_000_000)


def _now_us() -> UnixMicros:
    return UnixMicros(time.time_ns() // 1000)


def _plain(offset: StreamOffset) -> dict[str, Any]:
    # Spark writes the dict as JSON in this order, and compares the text.
    plain: dict[str, Any] = json.loads(canonical_json(offset.to_json()))
    return plain
