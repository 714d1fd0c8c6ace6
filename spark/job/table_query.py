"""One captured table's part of a job: its topics, its lane layout, and its streaming query."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.adapters import planner_signals
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.planner_signals import KnownTtl, LastPoll, SignalFolder
from bridge.config.document import BridgeConfig, SourceConfig, TableSettings
from bridge.engine.lane_counts import configured_cores, too_many_lanes
from bridge.engine.process_cache import ProcessCache
from bridge.engine.start_position import cursor_after_gap, edge_us, first_cursor, oldest_us, warn_of_expired_start
from bridge.errors import BridgeError, DataLossError, RetriableError, TableMissingError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress, canonical_json
from bridge.model.times import UnixMicros
from bridge.monitoring.state import JobState
from bridge.planning.data_loss import find_gap
from bridge.planning.retention import LogTtl
from bridge.planning.table_watch import TableState, made_anew_in_words
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.ownership import LaneOwnership
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic
from bridge.reading.table_capture import describe_missing_table
from bridge.runtime.background import run_in_background
from schemas.cql.table import TableSchema
from schemas.cql.table_changes import changes_between
from spark.job.checkpoint import Checkpoint
from spark.job.progress_report import ProgressReport, observed
from spark.job.topic_watch import ChangeTopic
from spark.jvm.session import activate
from spark.source.process import CACHE
from spark.source.source import ACTIVITY_OPTION, CONFIG_OPTION, JOB_OPTION, OWNER_OPTION, START_OPTION

_log = logging.getLogger(__name__)

_KEEP_WITHIN_S: Final = 5.0
_KEEP_AGAIN_AFTER_S: Final = 30.0
_LOOK_WHETHER_KEPT_EVERY_S: Final = 0.02
_DOUBTED_AFTER: Final = 2
"""So many failures of Spark's own in a row, none of them behind a micro-batch, are held against the checkpoint."""
_PROGRESS_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}


@dataclass(frozen=True, slots=True)
class Begun:
    """What a table's start came to.

    Attributes:
        query: it runs.
        settles: whether it only finishes the micro-batch that was interrupted, under the lanes of then, and ends; the
            table is to be started again then.
    """

    query: StreamingQuery
    settles: bool


class TableQuery:
    """Brings one table from its committed progress to a running query."""

    def __init__(
        self,
        session: SparkSession,
        config: BridgeConfig,
        table: TableSettings,
        job_state: JobState,
        cache: ProcessCache = CACHE,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            session: with the source registered.
            config: of the whole job.
            table: the captured table.
            job_state: told what becomes of the table.
            cache: of this process.
        """
        self._job_state = job_state
        self._cache = cache
        self._owner = ""
        self._session = session
        self._config = config
        self._table = table
        self.name = f"{table.keyspace}.{table.table}"
        self.lanes = table.lanes or config.spark.lanes or configured_cores(config.spark)
        if advice := too_many_lanes(config.spark, self.lanes):
            _log.warning("%s: %s", self.name, advice)
        self._checkpoint = Checkpoint(session, f"{config.spark.checkpoint}/{config.name}/{self.name}")
        words = ChangeTopicMessages(
            table=self.name,
            topic=config.topic_of(table),
            partitions=config.kafka.partitions,
            progress_topic=self._progress_topic,
            checkpoint=self._checkpoint.folder,
        )
        self.change_topic = ChangeTopic(words, self._checkpoint)
        self._is_new = False
        self._had_progress = False
        self._fruitless = 0
        self._log_id: UUID | None = None
        self._logs_said: set[UUID | None] = set()
        self._first_schema: TableSchema | None = None
        self._source = SourceConfig(
            scylla=config.scylla,
            table=table,
            reading=config.reading,
            name=config.name,
            output=config.output_of(table),
            dead_letters=config.dead_letter_topic_of(table) is not None,
            lanes=self.lanes,
            sharing=len(config.tables),
        )
        self._cluster = cache.scylla.table(config.scylla, table.keyspace, table.table)
        self._activity = SignalFolder()
        self._known_ttl = KnownTtl(self._activity.path)
        self._kept_ttl: LogTtl | None = None
        self._keeping: tuple[LogTtl, Future[None]] | None = None
        self._keep_at_s = 0.0
        self._report = ProgressReport(
            self.name,
            job_state,
            changes_came=partial(planner_signals.signal_changes, self._activity.path),
            dead_letters=config.dead_letter_topic_of(table),
        )

    def start(self, *, once: bool, settled: bool) -> Begun:
        """Make the topics, look at the lane layout, and start reading.

        Args:
            once: whether to end with what can be read now.
            settled: whether a query that was to settle the lanes has just come to its end.

        Raises:
            NoGenerationError: there is nothing to read yet; asking again soon costs little.
            BridgeError: Kafka or ScyllaDB fail, or the progress does not hold together.
        """
        # The table may have been made anew with tablets, or without.
        self._cluster.forget_streams()
        if self._is_new:
            first_cursor(self._source, self._cluster)
            self._is_new = False
        # Another one each time: tasks of the query before may still be on their way.
        self._owner = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        state = self._state()
        made_anew, topic = self._make_topics()
        lanes = LaneOwnership(self._lane, self._owner)
        progress = lanes.acquire(self._progress_partitions)
        self.change_topic.begin(topic, made=made_anew, carried=bool(progress))
        start = self._decide(progress)
        if progress:
            self._mend_checkpoint()
            start = self._beyond_gap(state, start)
        else:
            warn_of_expired_start(self._source, self._cluster, state)
        self._job_state.assign_lanes(self.name, start.layout, progress)
        if start.recover:
            if settled:
                raise RetriableError(f"{self.name}: its {start.layout.lanes} lanes do not stand level yet")
            _log.info(
                "%s: %d lanes become %d; the micro-batch that was interrupted is finished first",
                self.name,
                start.layout.lanes,
                self.lanes,
            )
            return Begun(self._query(start, once=True), settles=True)
        self._know_log(state)
        self._first_schema = self._first_schema or state.schema
        if start.assign:
            # Also in lanes that the layout drops: their records say that they are retired.
            laid = {
                lane: LaneProgress(
                    lane,
                    start.layout,
                    start.layout.since,
                    entered_from_ms=start.entered_from_ms,
                    first=start.first,
                    edge_us=start.edge_us,
                )
                for lane in range(self._progress_partitions)
            }
            lanes.assign(laid, progress)
            self._had_progress = True
        _log.info("%s: %d lanes, from %s", self.name, start.layout.lanes, start.cursor)
        return Begun(self._query(start, once=once), settles=False)

    def look(self, query: StreamingQuery, *, ended: bool) -> None:
        """Take what its query has done; call often, and once more when it has ended."""
        self._report.look(query, at_once=ended)
        self._keep_ttl()

    def sum_up(self) -> None:
        """Tell how much was published since this job's start."""
        self._report.sum_up()

    def stopped(self) -> None:
        """Have the next job know what this one has seen, now that its JVM is to end; waits for some s at most."""
        until_s = time.monotonic() + _KEEP_WITHIN_S
        self._keep_at_s = 0.0
        while self._keep_ttl() and time.monotonic() < until_s:
            time.sleep(_LOOK_WHETHER_KEPT_EVERY_S)

    def failed(self, query: StreamingQuery | None, *, by_spark: bool) -> None:
        """Note a failure, before the table is started again.

        Args:
            query: the one that failed; None where none could be started.
            by_spark: whether it is Spark's own: neither the bridge's, nor that of a Python process.
        """
        if query is None and not by_spark:
            # Nothing was asked of Spark.
            return
        worked = query is not None and query.lastProgress is not None
        self._fruitless = self._fruitless + 1 if by_spark and not worked else 0

    def changes(self) -> str:
        """What became of the table since the job first read it, in words; empty when nothing did, or none can tell."""
        if self._first_schema is None:
            return ""
        try:
            schema = self._state().schema
        except BridgeError:
            return ""
        return "" if schema is None else "; ".join(changes_between(self._first_schema, schema))

    def paced_for_s(self) -> float:
        """For how long what was asked of the table's streams last still counts (`scylla.requests_per_second`)."""
        return LastPoll(self._activity.path).remaining_s(time.monotonic())

    def close(self) -> None:
        """Leave nothing behind; the query has ended."""
        self._activity.close()

    def _make_topics(self) -> tuple[bool, CurrentTopic | None]:
        """Have topics and their partitions; gives whether there was no change topic, and which one there is now."""
        admin = KafkaAdmin(self._config.kafka)
        change_topic = self._config.topic_of(self._table)
        is_new = admin.ensure_topic(change_topic, self._config.kafka.partitions, {})
        dead_letters = self._config.dead_letter_topic_of(self._table)
        if dead_letters is not None:
            admin.ensure_topic(dead_letters, 1, {})
        admin.ensure_topic(self._progress_topic, self.lanes, _PROGRESS_TOPIC_CONFIG, grow=True)
        # Brokers learn of a topic's growth one after the other, and any of them answers.
        self._progress_partitions = max(self.lanes, admin.partitions(self._progress_topic))
        try:
            return is_new, admin.topics_now([change_topic]).get(change_topic)
        except BridgeError as error:
            _log.debug("%s: its change topic was not looked at: %s", self.name, error)
            return is_new, None

    @property
    def _progress_topic(self) -> str:
        return self._config.progress_topic_of(self._table)

    def _decide(self, progress: Mapping[int, LaneProgress]) -> TableStart:
        if progress:
            self._had_progress = True
            return decide_start(progress, self.lanes, None)
        if self._had_progress or self._checkpoint.has_commits:
            # Before the first micro-batch is done only this job knows.
            raise DataLossError(
                f"{self.name}: the progress topic {self._progress_topic} holds no cursor, but the checkpoint "
                f"{self._checkpoint.folder} says that changes were published. Was the topic deleted? If so, stop the "
                "job and delete the checkpoint, too, and the change topic unless what it holds may come again: the "
                "table then begins anew, as reading.start says"
            )
        self._is_new = True
        first = first_cursor(self._source, self._cluster)
        return decide_start({}, self.lanes, first, edge_us(self._source, first, oldest_us(self._source, self._cluster)))

    def _mend_checkpoint(self) -> None:
        """Begin it anew when nothing comes of it: Spark refuses one with files that are missing or wrong."""
        if self._fruitless < _DOUBTED_AFTER:
            return
        self._checkpoint.begin_anew()
        self._fruitless = 0
        _log.warning(
            "%s: Spark makes nothing of the checkpoint %s; it is begun anew, from what Kafka says was published",
            self.name,
            self._checkpoint.folder,
        )

    def _state(self) -> TableState:
        table = self._table
        state = self._cluster.state()
        if not state.exists:
            raise TableMissingError(describe_missing_table(table.keyspace, table.table))
        return state

    def _see_ttl(self, state: TableState) -> LogTtl:
        """Which TTLs the log has had, as far as this job and those before it have seen."""
        if self._kept_ttl is None:
            self._kept_ttl = self._checkpoint.ttl()
            self._known_ttl.note(self._kept_ttl)
        ttl = self._known_ttl.known()
        if state.options is None:
            return ttl
        return ttl.seen(state.options.ttl_s, self._cluster.server_time.servers_us(), state.log_id)

    def _keep_ttl(self) -> bool:
        """Begin to keep what the planner has seen, or see whether it is kept; says whether something is to be done yet.

        In the background, for the checkpoint's file system may hang; what failed is tried again after a while.
        """
        if self._keeping is not None:
            ttl, writing = self._keeping
            if not writing.done():
                return True
            self._keeping = None
            error = writing.exception()
            if error is None:
                self._kept_ttl = ttl
            else:
                _log.warning("%s: the next job does not know the log's TTL yet (%r)", self.name, error)
        known = self._known_ttl.known()
        if known == self._kept_ttl:
            return False
        if time.monotonic() < self._keep_at_s:
            return True
        self._keep_at_s = time.monotonic() + _KEEP_AGAIN_AFTER_S
        write = partial(self._checkpoint.keep_ttl, known)
        self._keeping = known, run_in_background(write, f"keeping the TTL of {self.name}")
        return True

    def _check_log(self, state: TableState, start: Cursor, expired_us: UnixMicros | None) -> None:
        # Said on evidence only: a log may be younger than what it holds, where changes have timestamps of their own.
        known, made_us = self._log_id or self._checkpoint.log_id(), state.log_made_us
        # Where no checkpoint says which it was, one that could not have kept what was not read for so long is another.
        is_late = expired_us is not None and made_us is not None and start.reached_us < expired_us < made_us
        is_another = is_late if known is None else known != state.log_id
        if is_another and state.log_id not in self._logs_said:
            self._logs_said.add(state.log_id)
            _log.warning("%s: %s", self.name, made_anew_in_words(state, start))

    def _know_log(self, state: TableState) -> None:
        if state.log_id is not None and state.log_id != self._log_id:
            self._checkpoint.keep_log_id(state.log_id)
        self._log_id = state.log_id

    def _beyond_gap(self, state: TableState, start: TableStart) -> TableStart:
        """The same start, or one behind what is lost if that is accepted or nothing was promised yet."""
        metadata = self._cluster.generations()
        generations = metadata.generations()
        expired_us = self._see_ttl(state).oldest_us(self._cluster.server_time.servers_us())
        self._check_log(state, start.cursor, expired_us)
        gap = find_gap(start.cursor, generations, expired_us, may_lag=metadata.may_lag, log_made_us=state.log_made_us)
        if gap is None:
            return start
        # `earliest` lies at the very edge of what is left: a start that came to nothing has fallen behind it.
        anew = cursor_after_gap(gap, self._source, generations, expired_us) if start.first else None
        if anew is not None and anew > start.cursor:
            assert gap.until_us is not None
            wider = replace(gap, until_us=max(gap.until_us, anew.reached_us))
            _log.warning("%s: %s; nothing was published yet, so the table begins anew, behind them", self.name, wider)
            edge = edge_us(self._source, anew, expired_us)
            return replace(start.moved_to(anew, self.lanes), first=True, edge_us=edge)
        if gap.go_on_at == start.cursor and start.excuses(gap.until_us):
            _log.warning("%s: %s; the table is only just beginning there, and goes on", self.name, gap)
            return start
        if gap.go_on_at is None or not self._config.reading.accept_data_loss:
            raise gap.error(self.name)
        _log.warning("%s: %s; going on, as reading.accept_data_loss says", self.name, gap)
        return start.moved_to(gap.go_on_at, self.lanes)

    @contextmanager
    def _lane(self, lane: int) -> Iterator[LanePublisher]:
        place = (self._config, self._table.keyspace, self._table.table, lane)
        try:
            yield self._cache.kafka.publisher(*place, self._owner)
        finally:
            self._cache.kafka.drop_publisher(*place)

    def _query(self, start: TableStart, *, once: bool) -> StreamingQuery:
        activate(self._session)
        reader = (
            self._session.readStream.format("scylla-cdc")
            .option(CONFIG_OPTION, self._source.model_dump_json())
            .option(START_OPTION, canonical_json(start.to_json()))
            .option(JOB_OPTION, self._config.model_dump_json())
            .option(OWNER_OPTION, self._owner)
            .option(ACTIVITY_OPTION, self._activity.path)
        )
        writer = (
            observed(reader.load())
            # The lanes' tasks have published already; all that is left to do is to run them.
            .writeStream.format("noop")
            .option("checkpointLocation", self._checkpoint.folder)
            .outputMode("append")
            .queryName(f"{self.name} (recovering)" if start.recover else self.name)
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._config.spark.trigger_interval_ms} milliseconds")
        return writer.start()
