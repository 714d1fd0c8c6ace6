"""Notices that one table's query hangs, and stops it within a bounded time."""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from typing import Final, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from bridge.engine.table.stall_watch import StallWatch
from bridge.errors import BridgeError
from bridge.runtime.background import run_in_background

_log = logging.getLogger(__name__)

STOP_WITHIN_S: Final = 45.0
"""Enough for two attempts, each of which Spark ends after `spark.sql.streaming.stopTimeout` (10 s)."""


class WatchedTable(Protocol):
    """What the watch needs of a table; `spark.job.table_query.TableQuery` documents the methods."""

    name: str

    @property
    def reports(self) -> int:
        """How many reports of Spark's there were so far."""
        ...

    def topics_end(self) -> int:
        """Ask Kafka how far the table's topics reach."""
        ...

    def share_used_for_s(self) -> float:
        """Return for how long the table's share of requests is used up."""
        ...

    def describe_wait(self, query: StreamingQuery) -> str:
        """Return what the query waits for."""
        ...

    def kill_tasks(self) -> None:
        """End the processes of the table's tasks."""
        ...


class HungQueryStop:
    """The stop of a query that hangs. It begins at once, in the background.

    Attributes:
        query: the query.
        reason: for how long it has shown no progress, and what it waits for.
    """

    def __init__(self, table: WatchedTable, query: StreamingQuery, standing_s: float, within_s: float) -> None:
        """Begin the stop.

        Args:
            table: the query's table.
            query: the query.
            standing_s: for how long it has shown no progress, in s.
            within_s: how long the stop may take, in s.
        """
        self.query = query
        self.reason = f"its query has shown no progress for {standing_s:.0f} s"
        self._table = table
        self._within_s = within_s
        self._until_s = time.monotonic() + within_s
        self._stopping = run_in_background(self._stop, f"stop of {table.name}")

    @property
    def is_done(self) -> bool:
        """Whether the query has stopped, or its stop has failed."""
        return self._stopping.done() or time.monotonic() >= self._until_s

    @property
    def problem(self) -> str | None:
        """Why the query could not be stopped; None if it has stopped. Ask for it when the stop is done."""
        if not self._stopping.done():
            return f"the stop has not ended within {self._within_s:.0f} s"
        error = self._stopping.exception()
        return None if error is None else f"Spark gave up the stop ({type(error).__name__})"

    def wait(self, until_s: float) -> None:
        """Wait for the end of the stop, but not beyond `until_s` on the monotonic clock."""
        while not self.is_done and time.monotonic() < until_s:
            time.sleep(0.01)

    def _stop(self) -> None:
        self.reason += f", {self._table.describe_wait(self.query)}"
        _log.warning("%s: %s; the job stops it and starts it again", self._table.name, self.reason)
        try:
            self.query.stop()
        except (PySparkException, Py4JJavaError):
            # Spark has waited for as long as it is set to. The query's thread may wait for one of these processes.
            self._table.kill_tasks()
            self.query.stop()
        # Spark closes its connection to the process of a hung task, which may never look at it.
        self._table.kill_tasks()


class HungQueryWatch:
    """Watches the queries of one table, one at a time. No method waits."""

    def __init__(self, table: WatchedTable, watch: StallWatch, *, stop_within_s: float = STOP_WITHIN_S) -> None:
        """Begin without a query.

        Args:
            table: the table.
            watch: decides when a query hangs.
            stop_within_s: how long the stop of a hung query may take, in s.
        """
        self._table = table
        self._watch = watch
        self._stop_within_s = stop_within_s
        self._asked: Future[int] | None = None

    def begin(self) -> None:
        """Watch a query that has just started."""
        self._asked = None
        self._watch.begin(self._table.reports)

    def look(self, query: StreamingQuery) -> HungQueryStop | None:
        """Look at the query; return its stop, which has begun, if the query hangs. Call this often."""
        advice = self._watch.look(self._table.reports)
        if self._asked is not None:
            if not self._asked.done():
                return None
            self._watch.note_topics(self._answer(self._asked))
            self._asked = None
        elif advice == "ask":
            self._asked = run_in_background(self._table.topics_end, f"ends of the topics of {self._table.name}")
        # A query may also wait until the limit of requests allows its next micro-batch.
        elif advice == "restart" and self._table.share_used_for_s() == 0:
            self._watch.note_restart()
            return HungQueryStop(self._table, query, self._watch.standing_s, self._stop_within_s)
        return None

    def _answer(self, asked: Future[int]) -> int | None:
        error = asked.exception()
        if error is None:
            return asked.result()
        # The tasks meet the same error, and log it. Any other one is a mistake, but no reason to end the job.
        level = logging.DEBUG if isinstance(error, BridgeError) else logging.WARNING
        _log.log(level, "%s: the job could not find out how far the topics reach (%r)", self._table.name, error)
        return None
