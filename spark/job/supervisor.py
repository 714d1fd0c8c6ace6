"""Looks after the job's tables: starts their queries, starts them again when they fail, and stops them in order."""

from __future__ import annotations

import logging
import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.config.document import BridgeConfig
from bridge.errors import BridgeError, NoGenerationError, StartupError, is_hopeless
from bridge.monitoring.counters import process_counters
from bridge.monitoring.monitor import Monitor
from bridge.monitoring.state import JobState
from bridge.runtime.background import run_in_background
from spark.job.table_query import Begun, TableQuery
from spark.job.topic_watch import TopicWatch
from spark.jvm.session import StartingSession

_log = logging.getLogger(__name__)

_EXIT_FAILED: Final = 1
_STOP_WITHIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.2
_LOOK_AT_REST_EVERY_S: Final = 0.5
"""Where every table's query runs: asking the JVM costs most of what the job's first process uses then."""
_LOOK_AT_STARTS_EVERY_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 30.0
_LONGEST_AFTER: Final = 6
"""From so many failures in a row on: further ones make no pause longer, nor a number that no float holds."""
_ALONE_FOR_S: Final = 20.0
_CALM_AFTER_S: Final = 60.0
_PLANNER_WITHIN_S: Final = 20.0
_FIRST_GENERATION_EVERY_S: Final = 0.5
_CHANGES_WITHIN_S: Final = 5.0

_RAISED: Final = re.compile(
    r"^(?:pyspark\S*: )?(?P<module>(?:bridge|schemas)\.[\w.]+)\.(?P<kind>\w+Error): (?P<words>.*)$", re.MULTILINE
)
_EXCEPTION_LINE: Final = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*: ")
_TRACEBACK: Final = "Traceback (most recent call last)"
_TORN_PLAN: Final = "json.decoder.JSONDecodeError"
_NO_WORKER: Final = re.compile(r"Python worker (?:failed to connect back|exited unexpectedly)")
_HUNG_UP: Final = re.compile(r"^(?:Broken pipe|Connection reset(?: by peer)?|(?:java\.io\.)?EOFException)$")
"""All that Spark says when a process that plans was killed."""
_REMIND_EVERY_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Verdict:
    """Why a table is to be given up, and what became of it meanwhile, as far as that is found out in time."""

    words: str
    changes: Future[str]
    until_s: float


@dataclass(slots=True)
class _Running:
    """One table's query, and how its failures were met so far.

    Attributes:
        settles: as of `Begun`, of the query.
        settled: whether that query has come to its end, and the table is to be started again.
        attempt_s: when the start that is under way began.
        said_s: when it was last said that it still is.
        nothing: whether there is nothing that could be read, and nothing is waited for.
        verdict: before the table is given up.
    """

    table: TableQuery
    query: StreamingQuery | None = None
    attempt: Future[Begun] | None = None
    attempt_s: float = 0.0
    said_s: float = 0.0
    nothing: bool = False
    settles: bool = False
    settled: bool = False
    verdict: _Verdict | None = None
    since_s: float = 0.0
    tries: int = 0
    again_at_s: float = 0.0
    given_up: str | None = None
    waits: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: the query came to its end, there is none, or the table was given up."""
        if self.given_up is not None or self.nothing:
            return True
        query = self.query
        return query is not None and not self.settles and not query.isActive and query.exception() is None

    @property
    def runs(self) -> bool:
        """Whether the query has been there for so long that its planner process is, too."""
        return self.query is not None and time.monotonic() - self.since_s > _PLANNER_WITHIN_S

    @property
    def starting(self) -> bool:
        """Whether the query's planner process may still be coming up.

        Spark waits only so long for it to call back: many at once on few cores would all miss that.
        """
        query = self.query
        if query is None or not query.isActive or time.monotonic() - self.since_s > _PLANNER_WITHIN_S:
            return False
        return query.lastProgress is None and not query.status["message"].startswith("Waiting")


class Job:
    """Runs every table until it is told to stop; a table that can't go on does not hold the others up."""

    def __init__(
        self,
        session: SparkSession,
        config: BridgeConfig,
        stop: threading.Event,
        *,
        once: bool,
        job_state: JobState,
        warm: bool = False,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            session: with the source registered.
            config: of the whole job.
            stop: set when the job is to stop.
            once: whether to end with what can be read now.
            job_state: told what becomes of the tables.
            warm: whether planner processes come up in no time, so that queries need not wait for each other's.
        """
        self._once = once
        self._outlive_tables = config.monitoring.outlive_tables and not once
        self._warm = warm
        self._stop = stop
        self._job_state = job_state
        self._tables = [_Running(TableQuery(session, config, table, job_state)) for table in config.tables]
        self._topic_watch = TopicWatch(config.kafka)

    def run(self) -> int:
        """Start the queries and look after them; gives the exit status."""
        try:
            while not self._stop.is_set():
                self._job_state.tick()
                self._job_state.add_counters(process_counters.take())
                for running in self._tables:
                    self._look_after(running)
                self._topic_watch.look(
                    lambda: [one.table.change_topic for one in self._tables if one.query is not None]
                )
                if all(running.given_up for running in self._tables) and not self._outlive_tables:
                    break
                if self._once and all(running.done for running in self._tables):
                    self._sum_up()
                    break
                self._stop.wait(self._look_again_in_s())
        finally:
            for running in self._tables:
                if running.verdict is not None:
                    self._give_up(running, running.verdict)
            try:
                self._stop_queries()
            finally:
                # Also when the JVM is gone.
                for running in self._tables:
                    running.table.close()
        return _EXIT_FAILED if any(running.given_up for running in self._tables) else 0

    def _sum_up(self) -> None:
        for running in self._tables:
            # One may have ended since the last look.
            if running.query is not None:
                running.table.look(running.query, ended=True)
            running.table.sum_up()

    def _look_again_in_s(self) -> float:
        if any(running.attempt or running.verdict for running in self._tables):
            return _LOOK_AT_STARTS_EVERY_S
        at_rest = not self._once and all(running.given_up or running.runs for running in self._tables)
        return _LOOK_AT_REST_EVERY_S if at_rest else _LOOK_EVERY_S

    def _look_after(self, running: _Running) -> None:
        query, now_s = running.query, time.monotonic()
        if running.given_up is not None:
            # Others go on, so that this must not scroll out of sight.
            if now_s >= running.again_at_s:
                running.again_at_s = now_s + _REMIND_EVERY_S
                _log.error("%s has stopped: %s", running.table.name, running.given_up)
            return
        if running.verdict is not None:
            if running.verdict.changes.done() or now_s >= running.verdict.until_s:
                self._give_up(running, running.verdict)
            return
        if running.attempt is not None:
            if running.attempt.done():
                self._started(running, running.attempt)
            elif now_s - running.said_s > _REMIND_EVERY_S:
                running.said_s = now_s
                _log.warning(
                    "%s: its start has been under way for %.0f s; do the servers and the checkpoint's files answer?",
                    *(running.table.name, now_s - running.attempt_s),
                )
            return
        if running.nothing:
            return
        if query is None:
            if now_s >= running.again_at_s and self._may_start():
                self._start(running)
            return
        is_active = query.isActive
        running.table.look(query, ended=not is_active)
        if is_active:
            if now_s - running.since_s > _CALM_AFTER_S:
                running.tries = 0
            return
        failure = query.exception()
        if failure is None and not running.settles:
            self._job_state.set_finished(running.table.name)
            return
        running.query = None
        if failure is None:
            # How the table goes on is decided anew, by what Kafka says now.
            running.settled = True
            return
        self._met_failure(running, failure, query)

    def _may_start(self) -> bool:
        # One after the other in any case: a start asks servers, and makes Spark compile. One that hangs (a checkpoint's
        # file system may, for as long as it likes) holds up nobody but itself.
        latest_s = time.monotonic() - _ALONE_FOR_S
        under_way = any(other.attempt and other.attempt_s > latest_s for other in self._tables)
        return not under_way and (self._warm or not any(other.starting for other in self._tables))

    def _start(self, running: _Running) -> None:
        if not running.waits and not running.settled:
            self._job_state.set_starting(running.table.name)
        # It waits for servers, in part inside of libraries: neither the job's pulse, nor a stop, nor the other tables
        # wait with it.
        start = partial(running.table.start, once=self._once, settled=running.settled)
        running.attempt_s = running.said_s = time.monotonic()
        running.attempt = run_in_background(start, f"start of {running.table.name}")

    def _started(self, running: _Running, attempt: Future[Begun]) -> None:
        running.attempt, running.settled = None, False
        try:
            begun = attempt.result()
            running.query, running.settles = begun.query, begun.settles
            running.since_s, running.waits = time.monotonic(), False
            if not begun.settles:
                self._job_state.set_running(running.table.name)
        except NoGenerationError as waiting:
            if self._once:
                running.nothing = True
                _log.warning("%s: %s. There is nothing to read", running.table.name, waiting)
                self._job_state.set_finished(running.table.name)
                return
            # Not waited for in there: others have theirs.
            if not running.waits:
                _log.warning("%s: %s. Waiting for it", running.table.name, waiting)
            running.waits, running.again_at_s = True, time.monotonic() + _FIRST_GENERATION_EVERY_S
            self._job_state.set_waiting(running.table.name, str(waiting))
        except (BridgeError, PySparkException, Py4JJavaError) as failure:
            # What Spark refuses this table (its checkpoint can't be reached, say) is no reason to end the others. A JVM
            # that is gone is none of these.
            self._met_failure(running, failure)

    def _met_failure(self, running: _Running, failure: Exception, query: StreamingQuery | None = None) -> None:
        words = _what_went_wrong(failure)
        if _is_hopeless(failure):
            # That asks ScyllaDB, which may not answer.
            changes = run_in_background(running.table.changes, f"changes of {running.table.name}")
            running.verdict = _Verdict(words, changes, time.monotonic() + _CHANGES_WITHIN_S)
            return
        running.table.failed(query, by_spark=_is_sparks(failure))
        running.tries += 1
        # What was interrupted is read anew at once.
        backoff_s = min(_LONGEST_BACKOFF_S, 0.5 * 2 ** min(running.tries, _LONGEST_AFTER))
        wait_s = max(backoff_s, running.table.paced_for_s())
        running.again_at_s = time.monotonic() + wait_s
        self._job_state.set_retrying(running.table.name, words, wait_s)
        _log.warning("%s: %s (failure %d; starting again in %.0f s)", running.table.name, words, running.tries, wait_s)

    def _give_up(self, running: _Running, verdict: _Verdict) -> None:
        words, name = verdict.words, running.table.name
        if verdict.changes.done():
            trouble = verdict.changes.exception()
            if trouble is not None:
                _log.warning("%s: what was changed in it is not known (%s)", name, trouble)
            elif changes := verdict.changes.result():
                words += f" (changed since the job began to read the table: {changes})"
        running.verdict, running.given_up, running.again_at_s = None, words, time.monotonic() + _REMIND_EVERY_S
        self._job_state.set_stopped(name, words)
        _log.error("%s stops: %s", name, words)

    def _stop_queries(self) -> None:
        deadline_s = time.monotonic() + _STOP_WITHIN_S
        busy = [running for running in self._tables if running.attempt is not None or running.query is not None]

        def query_of(running: _Running) -> StreamingQuery | None:
            if running.attempt is None:
                return running.query
            # Given up, it is like a process that was killed then: nothing is lost.
            with suppress(BridgeError, PySparkException, Py4JJavaError, TimeoutError):
                return running.attempt.result(max(0.0, deadline_s - time.monotonic())).query
            if not running.attempt.done():
                _log.warning("%s: stopped in the midst of its start", running.table.name)
            return None

        def stop(running: _Running) -> None:
            query = query_of(running)
            if query is None:
                return
            if query.isActive:
                # Between two micro-batches no transaction is open. Stopping inside one is harmless too, but hides later
                # records from read_committed consumers until the lane is opened again.
                batch = _batch_id(query)
                while query.status["isTriggerActive"] and _batch_id(query) == batch and time.monotonic() < deadline_s:
                    time.sleep(0.01)
                query.stop()
            running.table.look(query, ended=True)
            running.table.stopped()

        if busy:
            with ThreadPoolExecutor(len(busy)) as threads:
                list(threads.map(stop, busy))


def _batch_id(query: StreamingQuery) -> object:
    progress = query.lastProgress
    return None if progress is None else progress["batchId"]


def _ours(failure: Exception) -> re.Match[str] | None:
    # Errors of Python workers arrive as text inside Spark's exceptions; the last is the one that ended the attempt.
    found = list(_RAISED.finditer(str(failure)))
    return found[-1] if found else None


def _is_sparks(failure: Exception) -> bool:
    """Whether it is Spark's own: not ours, not of a Python process, and not for want of one."""
    if isinstance(failure, BridgeError) or _ours(failure) is not None:
        return False
    text = str(failure)
    if _TORN_PLAN in text:
        # Python reads what the checkpoint holds of our own plan.
        return True
    if _TRACEBACK in text or _NO_WORKER.search(text):
        return False
    return not any(_HUNG_UP.match(line.strip()) for line in text.splitlines())


def _is_hopeless(failure: Exception) -> bool:
    match = None if isinstance(failure, BridgeError) else _ours(failure)
    if match is None:
        return is_hopeless(type(failure))
    kind = getattr(import_module(match["module"]), match["kind"], None)
    return kind is not None and is_hopeless(kind)


def _what_went_wrong(failure: Exception) -> str:
    if isinstance(failure, BridgeError):
        return "; ".join(str(failure).splitlines())
    match = _ours(failure)
    if match is not None:
        return match["words"]
    # Behind a colon stands what was thrown in the JVM.
    lines = [line.strip().removeprefix(": ") for line in str(failure).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        del lines[0]
    # A traceback's own last line says what happened; what is above it says only where.
    raised = [line for line in lines if _EXCEPTION_LINE.match(line)]
    said = (raised[-1:] or lines[:1] or ["no message"])[0]
    hint = " (perhaps one of Spark's Python processes was killed)" if _HUNG_UP.match(said) else ""
    return f"{type(failure).__name__}: {said}{hint}"


def run(config: BridgeConfig, coming: StartingSession, stop: threading.Event, *, once: bool) -> int:
    """Run a checked configuration in a session that is coming up, until `stop` is set; gives the exit status.

    Raises:
        StartupError: the port of `monitoring.listen` can't be opened.
    """
    with Monitor(config) as monitor:
        return _run(config, coming, stop, monitor, once=once)


def _run(config: BridgeConfig, coming: StartingSession, stop: threading.Event, monitor: Monitor, *, once: bool) -> int:
    try:
        session = coming.result()
        status = Job(session, config, stop, once=once, job_state=monitor.job_state, warm=coming.is_warm).run()
        session.stop()
    except (Py4JError, ConnectionError, PySparkException, StartupError) as error:
        if stop.is_set():
            # Stopped as asked all the same: a transaction that was open is aborted, by Kafka or by the next start.
            if isinstance(error, (Py4JJavaError, PySparkException)):
                why = f"Spark did not stop in order ({_what_went_wrong(error)})"
            else:
                why = f"Spark's JVM had ended before ({type(error).__name__})"
            _log.warning("stopped; %s; what was committed stays", why)
            return 0
        if isinstance(error, StartupError):
            raise
        return _failed(error)
    _log.info("stopped")
    return status


def _failed(error: Exception) -> int:
    if isinstance(error, PySparkException):
        _log.error("%s", _what_went_wrong(error))
    elif isinstance(error, Py4JJavaError):
        _log.error("Spark failed: %s", _what_went_wrong(error))
    else:
        _log.error("Spark's JVM has ended (%s); what was committed stays, start the job again", type(error).__name__)
    return _EXIT_FAILED
