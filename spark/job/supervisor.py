"""Runs the job's tables side by side until the job is to stop, and stops them in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.config.document import BridgeConfig
from bridge.engine.table.topic_watch import TopicWatch
from bridge.errors import StartupError
from bridge.monitoring.counters import process_counters
from bridge.monitoring.monitor import Monitor
from bridge.monitoring.state import JobState
from spark.job.failures import describe_error
from spark.job.table_query import TableQuery
from spark.job.table_run import Intervals, Table, TableRun
from spark.jvm.session import StartingSession

_log = logging.getLogger(__name__)

_EXIT_FAILED: Final = 1


class Job:
    """Runs every table until it is to stop. A table that cannot go on does not hold up the others."""

    def __init__(
        self,
        tables: Sequence[Table],
        topic_watch: TopicWatch,
        job_state: JobState,
        stop: threading.Event,
        *,
        once: bool,
        outlive_tables: bool = False,
        warm: bool = False,
        intervals: Intervals = Intervals(),  # noqa: B008  # immutable
    ) -> None:
        """Prepare; this starts nothing.

        Args:
            tables: the captured tables.
            topic_watch: compares the change topics of the tables that run.
            job_state: receives what becomes of the tables.
            stop: set when the job is to stop.
            once: whether to end with what can be read now.
            outlive_tables: whether to go on when every table was given up (`monitoring.outlive_tables`).
            warm: whether planner processes come up at once, so that queries need not wait for each other's.
            intervals: how often to look at the tables, and how long to wait for them.
        """
        self._once = once
        self._outlive_tables = outlive_tables and not once
        self._warm = warm
        self._stop = stop
        self._job_state = job_state
        self._topic_watch = topic_watch
        self._intervals = intervals
        self._tables = [TableRun(table, job_state, intervals, once=once) for table in tables]

    @property
    def is_wedged(self) -> bool:
        """Whether the job has ended because a query hangs and can't be stopped: then Spark may not stop either."""
        return any(one.wedged for one in self._tables)

    def run(self) -> int:
        """Run the tables; return the exit status."""
        try:
            while not self._stop.is_set():
                self._job_state.tick()
                self._job_state.add_counters(process_counters.take())
                for one in self._tables:
                    one.step(self._may_start)
                self._topic_watch.look(
                    lambda: [one.table.change_topic for one in self._tables if one.query is not None]
                )
                if self.is_wedged or (all(one.given_up for one in self._tables) and not self._outlive_tables):
                    break
                if self._once and all(one.is_done for one in self._tables):
                    for one in self._tables:
                        one.sum_up()
                    break
                self._stop.wait(self._look_again_in_s())
        finally:
            for one in self._tables:
                one.give_up()
            try:
                self._stop_queries()
            finally:
                # Also when the JVM is gone.
                for one in self._tables:
                    one.table.close()
        return _EXIT_FAILED if any(one.given_up or one.wedged for one in self._tables) else 0

    def _look_again_in_s(self) -> float:
        if any(one.is_urgent for one in self._tables):
            return self._intervals.look_at_starts_s
        at_rest = not self._once and all(one.given_up or one.runs for one in self._tables)
        return self._intervals.look_at_rest_s if at_rest else self._intervals.look_s

    def _may_start(self) -> bool:
        # Tables start one after the other: a start asks servers, and Spark compiles the query. A start that hangs (in
        # the checkpoint's file system, say) holds up the others for a limited time only.
        latest_s = time.monotonic() - self._intervals.alone_s
        under_way = any(one.attempt and one.attempt_s > latest_s for one in self._tables)
        return not under_way and (self._warm or not any(one.is_coming_up for one in self._tables))

    def _stop_queries(self) -> None:
        deadline_s = time.monotonic() + self._intervals.stop_s
        busy = [one for one in self._tables if one.is_busy]
        if busy:
            with ThreadPoolExecutor(len(busy)) as threads:
                list(threads.map(lambda one: one.stop(deadline_s), busy))


def run(config: BridgeConfig, coming: StartingSession, stop: threading.Event, *, once: bool) -> int:
    """Run a checked configuration until `stop` is set; return the exit status.

    Args:
        config: of the whole job.
        coming: the Spark session, whose JVM may still be starting.
        stop: set when the job is to stop.
        once: whether to end with what can be read now.

    Raises:
        StartupError: the port of `monitoring.listen` can't be opened.
    """
    with Monitor(config) as monitor:
        return run_monitored(config, coming, stop, monitor.job_state, once=once)


def run_monitored(
    config: BridgeConfig, coming: StartingSession, stop: threading.Event, job_state: JobState, *, once: bool
) -> int:
    """Run the job and report to `job_state`; return the exit status. The arguments are those of `run`."""
    try:
        session = coming.result()
        job = Job(
            [TableQuery(session, config, table, job_state) for table in config.tables],
            # A new client for each look: one that was kept would log in with the password or token of its start.
            TopicWatch(lambda topics: KafkaAdmin(config.kafka, quiet=True).topics_now(topics)),
            job_state,
            stop,
            once=once,
            outlive_tables=config.monitoring.outlive_tables,
            warm=coming.is_warm,
            intervals=Intervals(
                stalled_after_s=config.monitoring.stalled_after_s, trigger_s=config.spark.trigger_interval_ms / 1000
            ),
        )
        try:
            status = job.run()
        finally:
            if job.is_wedged:
                coming.give_up()
        if not job.is_wedged:
            session.stop()
    except (Py4JError, ConnectionError, PySparkException, StartupError) as error:
        if stop.is_set():
            # The stop has succeeded: Kafka or the next start aborts a transaction that was open.
            if isinstance(error, (Py4JJavaError, PySparkException)):
                why = f"Spark did not stop in order ({describe_error(error)})"
            else:
                why = f"Spark's JVM had ended before ({type(error).__name__})"
            _log.warning("stopped; %s; what was committed stays", why)
            return 0
        if isinstance(error, StartupError):
            raise
        return _log_failure(error)
    _log.info("stopped")
    return status


def _log_failure(error: Exception) -> int:
    if isinstance(error, PySparkException):
        _log.error("%s", describe_error(error))
    elif isinstance(error, Py4JJavaError):
        _log.error("Spark failed: %s", describe_error(error))
    else:
        _log.error("Spark's JVM has ended (%s); what was committed stays, start the job again", type(error).__name__)
    return _EXIT_FAILED
