"""One captured table's streaming query: starts it as the bridge decides, and follows what Spark reports about it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.adapters import planner_signals
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.planner_signals import LastPoll, ReplacedTopic, SignalFolder
from bridge.adapters.task_processes import TaskProcesses
from bridge.config.document import BridgeConfig, SourceConfig, TableSettings
from bridge.engine.frame_headers import has_key_schema
from bridge.engine.lane_counts import configured_cores, too_many_lanes
from bridge.engine.process.process_cache import ProcessCache
from bridge.engine.table.start import Prepared, TableServices, TableStarter
from bridge.engine.table.topic_watch import ChangeTopic
from bridge.model.kept_formats import canonical_json
from bridge.monitoring.state import JobState
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.topic_identity import ChangeTopicMessages
from spark.job.checkpoint import Checkpoint
from spark.job.progress_report import ProgressReport
from spark.job.wait_reason import describe_wait
from spark.jvm.session import activate
from spark.source.process import CACHE
from spark.source.report_metric import observe_reports
from spark.source.source import CONFIG_OPTION, JOB_OPTION, OWNER_OPTION, SIGNALS_OPTION, START_OPTION

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartedQuery:
    """A table's query after its start.

    Attributes:
        query: it runs.
        recovers: whether it only finishes the interrupted micro-batch under the former lanes, and then ends. The table
            has to start again after that.
    """

    query: StreamingQuery
    recovers: bool


class TableQuery:
    """Starts and follows the queries of one table.

    Attributes:
        name: `keyspace.table`.
        change_topic: the table's change topic.
    """

    def __init__(
        self,
        session: SparkSession,
        config: BridgeConfig,
        table: TableSettings,
        job_state: JobState,
        cache: ProcessCache = CACHE,
    ) -> None:
        """Prepare; this asks no server.

        Args:
            session: with the source registered.
            config: of the whole job.
            table: the captured table.
            job_state: receives the table's state and counts.
            cache: of this process.
        """
        self.name = f"{table.keyspace}.{table.table}"
        self._session = session
        self._cache = cache
        self._config = config
        self._table = table
        lanes = table.lanes or config.spark.lanes or configured_cores(config.spark)
        if advice := too_many_lanes(config.spark, lanes):
            _log.warning("%s: %s", self.name, advice)
        self._checkpoint = Checkpoint(session, f"{config.spark.checkpoint}/{config.name}/{self.name}")
        self._source = _source_of(config, table, lanes)
        self._signals = SignalFolder()
        self._processes = TaskProcesses(self._signals.path)
        self.change_topic = ChangeTopic(
            _messages_of(config, table, self._checkpoint.folder), hand_over=ReplacedTopic(self._signals.path).write
        )
        services = TableServices(
            cluster=cache.scylla.table(config.scylla, table.keyspace, table.table),
            topics=partial(KafkaAdmin, config.kafka),
            publisher=self._open_lane,
            checkpoint=self._checkpoint,
            has_key_schema=partial(has_key_schema, config, partial(cache.kafka.registry, config)),
            report_lanes=partial(job_state.assign_lanes, self.name),
        )
        self._starter = TableStarter(config, self._source, services, self.change_topic)
        self._report = ProgressReport(
            self.name,
            job_state,
            changes_came=partial(planner_signals.signal_changes, self._signals.path),
            dead_letters=config.dead_letter_topic_of(table),
        )

    def start(self, *, once: bool, recovered: bool) -> StartedQuery:
        """Prepare the table and start its query.

        Args:
            once: whether the query ends with what can be read now.
            recovered: whether a query that recovered the lanes has just ended.

        Raises:
            NoGenerationError: there is nothing to read yet; asking again soon costs little.
            BridgeError: Kafka, ScyllaDB or the checkpoint fail, or changes are lost.
            PySparkException, Py4JJavaError: Spark refuses the query.
        """
        prepared = self._starter.prepare(recovered=recovered)
        recovers = prepared.start.recover
        return StartedQuery(self._start_query(prepared, once=once or recovers), recovers)

    def look(self, query: StreamingQuery, *, ended: bool) -> None:
        """Take what Spark reports about the query. Call this often, and once more when the query has ended."""
        self._report.look(query, at_once=ended)

    @property
    def reports(self) -> int:
        """How many reports of Spark's there were so far; one comes every 10 s while there is nothing to read."""
        return self._report.count

    def topics_end(self) -> int:
        """Ask Kafka how far the table's topics reach, records in open transactions included.

        Raises:
            RetriableError, StartupError: as `KafkaAdmin.total_end`.
        """
        dead_letters = self._config.dead_letter_topic_of(self._table)
        topics = [self._config.topic_of(self._table), self._config.progress_topic_of(self._table)]
        # A new client for each question: one that was kept would log in with the password or token of its start.
        return KafkaAdmin(self._config.kafka, quiet=True).total_end(
            topics if dead_letters is None else [*topics, dead_letters]
        )

    def describe_wait(self, query: StreamingQuery) -> str:
        """Return what a query that hangs waits for; this asks Spark's JVM."""
        return describe_wait(self._session, query, self._processes.find())

    def kill_tasks(self) -> None:
        """End the processes of this machine that work on the table's lanes. The lane protocol makes that safe."""
        for process in self._processes.find():
            _log.warning("%s: the job ends process %d, which works on lane %d", self.name, process.pid, process.lane)
            process.kill()

    def sum_up(self) -> None:
        """Log how much this job has published."""
        self._report.sum_up()

    def note_failure(self, query: StreamingQuery | None, *, by_spark: bool) -> None:
        """Take a failure into account at the next start.

        Args:
            query: the query that failed; None when none could be started.
            by_spark: whether the failure is Spark's own: not the bridge's, and not that of a Python process.
        """
        has_worked = query is not None and query.lastProgress is not None
        self._starter.note_failure(by_spark=by_spark, has_query=query is not None, has_worked=has_worked)

    def describe_changes(self) -> str:
        """Return what has changed in the table since the job first read it; empty when nothing has."""
        return self._starter.describe_changes()

    def share_used_for_s(self) -> float:
        """Return for how long the last poll still uses up the table's share of `scylla.requests_per_second`, in s."""
        return LastPoll(self._signals.path).remaining_s(time.monotonic())

    def close(self) -> None:
        """Delete the temporary files. Call this when the query has ended."""
        self._signals.close()

    @contextmanager
    def _open_lane(self, lane: int, owner: str) -> Iterator[LanePublisher]:
        place = (self._config, self._table.keyspace, self._table.table, lane)
        try:
            yield self._cache.kafka.publisher(*place, owner)
        finally:
            self._cache.kafka.drop_publisher(*place)

    def _start_query(self, prepared: Prepared, *, once: bool) -> StreamingQuery:
        activate(self._session)
        start = prepared.start
        reader = (
            self._session.readStream.format("scylla-cdc")
            .option(CONFIG_OPTION, self._source.model_dump_json())
            .option(START_OPTION, canonical_json(start.to_json()))
            .option(JOB_OPTION, self._config.model_dump_json())
            .option(OWNER_OPTION, prepared.owner)
            .option(SIGNALS_OPTION, self._signals.path)
        )
        writer = (
            observe_reports(reader.load())
            # The lanes' tasks publish by themselves; the sink only makes Spark run them.
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


def _source_of(config: BridgeConfig, table: TableSettings, lanes: int) -> SourceConfig:
    return SourceConfig(
        scylla=config.scylla,
        table=table,
        reading=config.reading,
        name=config.name,
        output=config.output_of(table),
        dead_letters=config.dead_letter_topic_of(table) is not None,
        lanes=lanes,
        sharing=len(config.tables),
    )


def _messages_of(config: BridgeConfig, table: TableSettings, checkpoint: str) -> ChangeTopicMessages:
    return ChangeTopicMessages(
        table=f"{table.keyspace}.{table.table}",
        topic=config.topic_of(table),
        partitions=config.kafka.partitions,
        progress_topic=config.progress_topic_of(table),
        checkpoint=checkpoint,
    )
