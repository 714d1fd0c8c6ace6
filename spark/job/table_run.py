"""One table of a running job: its start, its query, its failures and its end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from bridge.engine.table.restart_policy import LONGEST_BACKOFF_S, RestartPolicy
from bridge.engine.table.stall_watch import FIRST_PATIENCE_S, LEAST_PATIENCE_S, StallWatch
from bridge.engine.table.topic_watch import ChangeTopic
from bridge.errors import BridgeError, NoGenerationError
from bridge.monitoring.state import JobState
from bridge.runtime.background import run_in_background
from spark.job.failures import Failure
from spark.job.hung_query import STOP_WITHIN_S, HungQueryStop, HungQueryWatch, WatchedTable
from spark.job.table_query import StartedQuery

_log = logging.getLogger(__name__)

_PLANNER_WITHIN_S: Final = 20.0
_POLL_STOP_EVERY_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often the job looks at its tables, and how long it waits for them, in s.

    Attributes:
        look_s: from one look at the queries to the next.
        look_at_rest_s: the same while all queries run. Asking the JVM costs most of what the job's first process uses
            then.
        look_at_starts_s: the same while a start is under way.
        longest_backoff_s: the longest pause before a failed table starts again.
        alone_s: for so long a start holds up the starts of other tables.
        remind_s: from one reminder of a stopped table, or of a slow start, to the next.
        changes_s: how long to wait for ScyllaDB before a table is given up.
        first_generation_s: from one look for a first generation to the next.
        stop_s: how long a stop waits for starts and micro-batches.
        stalled_after_s: `monitoring.stalled_after_s`; a query hangs after a multiple of it.
        least_patience_s: no query hangs sooner.
        first_patience_s: the same before Spark's first report about it.
        trigger_s: `spark.trigger_interval_ms`, in s.
        stop_hung_s: how long the stop of a hung query may take.
    """

    look_s: float = 0.2
    look_at_rest_s: float = 0.5
    look_at_starts_s: float = 0.05
    longest_backoff_s: float = LONGEST_BACKOFF_S
    alone_s: float = 20.0
    remind_s: float = 60.0
    changes_s: float = 5.0
    first_generation_s: float = 0.5
    stop_s: float = 10.0
    stalled_after_s: float = 60.0
    least_patience_s: float = LEAST_PATIENCE_S
    first_patience_s: float = FIRST_PATIENCE_S
    trigger_s: float = 0.0
    stop_hung_s: float = STOP_WITHIN_S


class Table(WatchedTable, Protocol):
    """One captured table; `spark.job.table_query.TableQuery` documents the methods."""

    change_topic: ChangeTopic

    def start(self, *, once: bool, recovered: bool) -> StartedQuery:
        """Start the table's query."""
        ...

    def look(self, query: StreamingQuery, *, ended: bool) -> None:
        """Take what Spark reports."""
        ...

    def sum_up(self) -> None:
        """Log how much was published."""
        ...

    def note_failure(self, query: StreamingQuery | None, *, by_spark: bool) -> None:
        """Take a failure into account at the next start."""
        ...

    def describe_changes(self) -> str:
        """Return what has changed in the table."""
        ...

    def close(self) -> None:
        """Delete the temporary files."""
        ...


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Why a table is given up; `changes` is what has changed in it, if ScyllaDB answers before `until_s`."""

    message: str
    changes: Future[str]
    until_s: float


class TableRun:
    """Takes one table from its first start to its end.

    Attributes:
        table: the table.
        query: its query; None while there is none.
        attempt: the start that is under way; None when none is.
        attempt_s: when that start began.
        given_up: why the job has given the table up; None while it goes on.
        wedged: why its query hangs and can't be stopped, so that the job must end; None otherwise.
    """

    def __init__(self, table: Table, job_state: JobState, intervals: Intervals, *, once: bool) -> None:
        """Begin without a query.

        Args:
            table: the table.
            job_state: receives the table's state.
            intervals: how often to look, and how long to wait.
            once: whether the job ends with what can be read now.
        """
        self.table = table
        self.query: StreamingQuery | None = None
        self.attempt: Future[StartedQuery] | None = None
        self.attempt_s = 0.0
        self.given_up: str | None = None
        self.wedged: str | None = None
        self._job_state = job_state
        self._intervals = intervals
        self._once = once
        self._restarts = RestartPolicy(longest_backoff_s=intervals.longest_backoff_s)
        self._hung = HungQueryWatch(
            table,
            StallWatch(
                intervals.stalled_after_s,
                longest_pause_s=intervals.trigger_s,
                least_patience_s=intervals.least_patience_s,
                first_patience_s=intervals.first_patience_s,
            ),
            stop_within_s=intervals.stop_hung_s,
        )
        self._stopping: HungQueryStop | None = None
        self._verdict: _Verdict | None = None
        self._reminded_s = 0.0
        self._has_nothing = False
        self._recovers = False
        self._recovered = False
        self._waits = False
        self._since_s = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do: the query has ended, there is nothing to read, or the table was given up."""
        if self.given_up is not None or self._has_nothing:
            return True
        query = self.query
        return query is not None and not self._recovers and not query.isActive and query.exception() is None

    @property
    def is_urgent(self) -> bool:
        """Whether the table is about to change its state, so that the job should look again soon."""
        return self.attempt is not None or self._verdict is not None or self._stopping is not None

    @property
    def is_busy(self) -> bool:
        """Whether there is a start, a query or the stop of a hung query that a stop of the job must wait for."""
        return self.attempt is not None or self.query is not None or self._stopping is not None

    @property
    def runs(self) -> bool:
        """Whether the query has run for so long that its planner process has come up."""
        return self.query is not None and time.monotonic() - self._since_s > _PLANNER_WITHIN_S

    @property
    def is_coming_up(self) -> bool:
        """Whether the query's planner process may still be coming up.

        Spark waits a limited time for that process. Many of them at once on few cores would all come too late.
        """
        query = self.query
        if query is None or not query.isActive or time.monotonic() - self._since_s > _PLANNER_WITHIN_S:
            return False
        return query.lastProgress is None and not query.status["message"].startswith("Waiting")

    def step(self, may_start: Callable[[], bool]) -> None:
        """Take the table's next step if one is due; never waits.

        Args:
            may_start: whether this table may start now, beside the others.
        """
        now_s = time.monotonic()
        if self.given_up is not None:
            self._remind(now_s)
        elif self._verdict is not None:
            if self._verdict.changes.done() or now_s >= self._verdict.until_s:
                self.give_up()
        elif self.attempt is not None:
            self._follow_attempt(self.attempt, now_s)
        elif self._stopping is not None:
            self._follow_stop(self._stopping)
        elif self._has_nothing:
            return
        elif self.query is not None:
            self._follow_query(self.query, now_s)
        elif self._restarts.is_due and may_start():
            self._begin_attempt()

    def sum_up(self) -> None:
        """Log how much was published, with what the query has reported since the last look."""
        if self.query is not None:
            self.table.look(self.query, ended=True)
        self.table.sum_up()

    def give_up(self) -> None:
        """Give the table up if that is decided."""
        if self._verdict is None:
            return
        (message, changes), name = (self._verdict.message, self._verdict.changes), self.table.name
        if changes.done():
            error = changes.exception()
            if error is not None:
                _log.warning("%s: the job could not find out what has changed in the table (%s)", name, error)
            elif changed := changes.result():
                message += f" (changed since the job began to read the table: {changed})"
        self._verdict, self.given_up, self._reminded_s = None, message, time.monotonic()
        self._job_state.set_stopped(name, message)
        _log.error("%s stops: %s", name, message)

    def stop(self, deadline_s: float) -> None:
        """Stop the query, between two micro-batches if one ends before `deadline_s`."""
        if self._stopping is not None:
            self._stopping.wait(deadline_s)
            self.table.look(self._stopping.query, ended=True)
            return
        query = self._await_query(deadline_s)
        if query is None:
            return
        if query.isActive:
            # No transaction is open between two micro-batches. Inside one a stop loses nothing, but its open
            # transaction hides later records from read_committed consumers until the lane is opened again.
            batch = _batch_id(query)
            while query.status["isTriggerActive"] and _batch_id(query) == batch and time.monotonic() < deadline_s:
                time.sleep(_POLL_STOP_EVERY_S)
            query.stop()
        self.table.look(query, ended=True)

    def _await_query(self, deadline_s: float) -> StreamingQuery | None:
        if self.attempt is None:
            return self.query
        # To leave a start behind is like killing the process at that moment: nothing is lost.
        with suppress(BridgeError, PySparkException, Py4JJavaError, TimeoutError):
            return self.attempt.result(max(0.0, deadline_s - time.monotonic())).query
        if not self.attempt.done():
            _log.warning("%s: stopped in the midst of its start", self.table.name)
        return None

    def _remind(self, now_s: float) -> None:
        # Other tables go on, and their log lines would push this one out of sight.
        if now_s - self._reminded_s >= self._intervals.remind_s:
            self._reminded_s = now_s
            _log.error("%s has stopped: %s", self.table.name, self.given_up)

    def _begin_attempt(self) -> None:
        if not self._waits and not self._recovered:
            self._job_state.set_starting(self.table.name)
        # A start waits for servers, in part inside libraries. In the background it holds up neither the job's loop, nor
        # a stop, nor the other tables.
        start = partial(self.table.start, once=self._once, recovered=self._recovered)
        self.attempt_s = self._reminded_s = time.monotonic()
        self.attempt = run_in_background(start, f"start of {self.table.name}")

    def _follow_attempt(self, attempt: Future[StartedQuery], now_s: float) -> None:
        if attempt.done():
            self._finish_attempt(attempt)
        elif now_s - self._reminded_s > self._intervals.remind_s:
            self._reminded_s = now_s
            _log.warning(
                "%s: its start has been under way for %.0f s; do the servers and the checkpoint's files answer?",
                *(self.table.name, now_s - self.attempt_s),
            )

    def _finish_attempt(self, attempt: Future[StartedQuery]) -> None:
        self.attempt, self._recovered = None, False
        try:
            started = attempt.result()
        except NoGenerationError as error:
            self._wait_for_generation(error)
        except (BridgeError, PySparkException, Py4JJavaError) as error:
            # When Spark refuses this table (its checkpoint's store is away, say), the others go on. Py4J reports a JVM
            # that is gone by another error, which ends the job.
            self._meet_failure(error)
        else:
            self.query, self._recovers = started.query, started.recovers
            self._since_s, self._waits = time.monotonic(), False
            self._hung.begin()
            if not started.recovers:
                self._job_state.set_running(self.table.name)

    def _wait_for_generation(self, error: NoGenerationError) -> None:
        name = self.table.name
        if self._once:
            self._has_nothing = True
            _log.warning("%s: %s. There is nothing to read", name, error)
            self._job_state.set_finished(name)
            return
        if not self._waits:
            _log.warning("%s: %s. Waiting for it", name, error)
        self._waits = True
        self._restarts.wait(self._intervals.first_generation_s)
        self._job_state.set_waiting(name, str(error))

    def _follow_query(self, query: StreamingQuery, now_s: float) -> None:
        is_active = query.isActive
        self.table.look(query, ended=not is_active)
        if is_active:
            self._restarts.note_running(now_s - self._since_s)
            self._stopping = self._hung.look(query)
            if self._stopping is not None:
                self.query = None
            return
        error = query.exception()
        if error is not None:
            self.query = None
            self._meet_failure(error, query)
        elif self._recovers:
            # The next start decides how the table goes on, from what Kafka holds by then.
            self.query, self._recovered = None, True
        else:
            self._job_state.set_finished(self.table.name)

    def _meet_failure(self, error: Exception, query: StreamingQuery | None = None) -> None:
        failure, name = Failure.of(error), self.table.name
        if failure.is_hopeless:
            # This asks ScyllaDB, which may not answer.
            changes = run_in_background(self.table.describe_changes, f"changes of {name}")
            self._verdict = _Verdict(failure.message, changes, time.monotonic() + self._intervals.changes_s)
            return
        self._retry(failure.message, query, by_spark=failure.by_spark)

    def _follow_stop(self, stopping: HungQueryStop) -> None:
        if not stopping.is_done:
            return
        self._stopping = None
        self.table.look(stopping.query, ended=True)
        self._job_state.count_stall_restart(self.table.name)
        if (problem := stopping.problem) is None:
            self._retry(stopping.reason, stopping.query, by_spark=False)
            return
        # No other query may start: Spark refuses it while this one's thread lives.
        self.wedged = f"{stopping.reason}, and can't be stopped: {problem}"
        self._job_state.set_retrying(self.table.name, self.wedged, 0.0)
        _log.error("%s: %s. The job ends, so that it can be started again", self.table.name, self.wedged)

    def _retry(self, message: str, query: StreamingQuery | None, *, by_spark: bool) -> None:
        name = self.table.name
        self.table.note_failure(query, by_spark=by_spark)
        pause_s = self._restarts.note_failure(self.table.share_used_for_s())
        self._job_state.set_retrying(name, message, pause_s)
        _log.warning("%s: %s (failure %d; starting again in %.0f s)", name, message, self._restarts.failures, pause_s)


def _batch_id(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]
