"""Queries, tables and a job state for tests of the job, without Spark and without servers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from pyspark.errors import PySparkException

from bridge.config.document import BridgeConfig, validate
from bridge.engine.table.topic_watch import ChangeTopic, TopicWatch
from bridge.errors import RetriableError
from bridge.monitoring.state import JobState
from spark.job.supervisor import Job
from spark.job.table_query import StartedQuery
from spark.job.table_run import Intervals

AT_ONCE = Intervals(look_s=0.001, look_at_starts_s=0.001, look_at_rest_s=0.001, longest_backoff_s=0.01)
"""Looks often and waits for nothing long."""


def config_of(*tables: str, **sections: Any) -> BridgeConfig:
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "127.0.0.1:9042"},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "registry": {"url": "http://127.0.0.1:8081"},
            "tables": list(tables),
            **sections,
        }
    )


def job_state_of(*tables: str) -> JobState:
    return JobState(config_of(*tables), "0", lambda: 7.0)


class Query:
    """A streaming query as the job sees one: it is active for so many looks, then ends, with or without a failure."""

    reports = 1
    """How many reports of Spark's come with each look."""

    def __init__(self, looks: int, failure: Exception | None) -> None:
        self.looks, self.failure, self.stopped = looks, failure, False
        self.lastProgress: dict[str, Any] | None = {"batchId": 1}
        self.status: dict[str, Any] = {"isTriggerActive": False, "message": "Waiting for data to arrive"}

    @property
    def isActive(self) -> bool:  # noqa: N802  # PySpark's name
        self.looks -= 1
        return self.looks >= 0 and not self.stopped

    def exception(self) -> Exception | None:
        return self.failure

    def stop(self) -> None:
        self.stopped = True


class Hung(Query):
    """A query that reports nothing; it can be stopped only after so many refusals."""

    reports = 0

    def __init__(self, refusals: int = 0) -> None:
        super().__init__(10**9, None)
        self.refusals = refusals

    def stop(self) -> None:
        self.refusals -= 1
        if self.refusals >= 0:
            raise PySparkException("the stream thread was last executing")
        super().stop()


class Recovering(Query):
    """A query that only finishes what the lanes of a former layout had begun."""


class StoppingJobState(JobState):
    """A job state that stops the job in the given round of its loop."""

    def __init__(self, config: BridgeConfig, rounds: int) -> None:
        super().__init__(config, "0", lambda: 0.0)
        self.left, self.stop = rounds, threading.Event()

    def tick(self) -> None:
        super().tick()
        self.left -= 1
        if self.left == 0:
            self.stop.set()


@dataclass
class Journal:
    """What the job has asked of its tables.

    Attributes:
        starts: tables that were started, and whether their lanes had been recovered.
        looked: queries that were looked at, and whether they had ended.
        failed: queries that failed, and whether that was Spark's own failure.
        summed_up: tables, and how many looks there were before.
        closed: tables.
        killed: tables whose tasks were ended.
    """

    starts: list[tuple[str, bool]] = field(default_factory=list)
    looked: list[tuple[Query, bool]] = field(default_factory=list)
    failed: list[tuple[Query | None, bool]] = field(default_factory=list)
    summed_up: list[tuple[str, int]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)

    def check(self, tables: list[str], status: int | None, *, once: bool) -> None:
        """Assert that everything is closed, and that every query was checked once more after its end."""
        assert self.closed == tables
        assert {query for query, _ in self.looked} == {query for query, ended in self.looked if ended}
        # Sums come last, when everything was counted.
        summed_up = [name for name, _ in self.summed_up]
        assert summed_up in ([tables] if once and status == 0 else [[], tables] if once else [[]])
        assert all(ended for _, at in self.summed_up for _, ended in self.looked[at - 1 : at])


class FakeTable:
    """A table whose starts give the queries of a list: a failure is raised, and an event hangs until it is set.

    A table whose name ends with `asked` cannot describe its changes before `answer` is set. The topics of one whose
    name ends with `growing` grow; Kafka does not answer for one whose name ends with `silent`.
    """

    def __init__(self, name: str, queries: list[Any], journal: Journal, answer: threading.Event) -> None:
        self.name = name
        self.change_topic: ChangeTopic = cast("Any", f"topic of {name}")
        self._queries, self._journal, self._answer = queries, journal, answer
        self.reports, self._ends = 0, count()

    def start(self, *, once: bool, recovered: bool) -> StartedQuery:
        del once
        self._journal.starts.append((self.name, recovered))
        found = self._queries.pop(0)
        if isinstance(found, threading.Event):
            found.wait(60)
            raise RetriableError("Kafka is away")
        if isinstance(found, Exception):
            raise found
        return StartedQuery(found, recovers=isinstance(found, Recovering))

    def look(self, query: Any, *, ended: bool) -> None:
        self._journal.looked.append((query, ended))
        self.reports += query.reports

    def note_failure(self, query: Any, *, by_spark: bool) -> None:
        self._journal.failed.append((query, by_spark))

    def sum_up(self) -> None:
        self._journal.summed_up.append((self.name, len(self._journal.looked)))

    def describe_changes(self) -> str:
        if self.name.endswith("asked"):
            self._answer.wait(60)
            raise AssertionError("no such column")
        return "column v int was dropped" if self.name.endswith("altered") else ""

    def share_used_for_s(self) -> float:
        return 0.03 if self.name.endswith("paced") else 0.0

    def topics_end(self) -> int:
        if self.name.endswith("silent"):
            raise RetriableError("Kafka is away")
        return next(self._ends) if self.name.endswith("growing") else 7

    def describe_wait(self, query: Any) -> str:
        return "while it waits for lane 1 in process 4711"

    def kill_tasks(self) -> None:
        self._journal.killed.append(self.name)

    def close(self) -> None:
        self._journal.closed.append(self.name)


class RecordingWatch(TopicWatch):
    """Records which change topics the job wants compared."""

    def __init__(self) -> None:
        super().__init__(lambda _topics: {})
        self.watched: list[list[Any]] = []

    def look(self, topics: Any) -> None:
        self.watched.append(topics())


def run_job(
    queries: dict[str, Any],
    *,
    once: bool,
    job_state: JobState | None = None,
    warm: bool = False,
    outlive_tables: bool = False,
    intervals: Intervals = AT_ONCE,
    answer: threading.Event | None = None,
    watch: TopicWatch | None = None,
    journal: Journal | None = None,
) -> int:
    """Run a job over tables with the given queries; return its exit status."""
    journal, answer = journal or Journal(), answer or threading.Event()
    job_state = job_state or job_state_of(*queries)
    stop = job_state.stop if isinstance(job_state, StoppingJobState) else threading.Event()
    tables = [FakeTable(name, found, journal, answer) for name, found in queries.items()]
    status = None
    try:
        status = Job(
            tables,
            watch or RecordingWatch(),
            job_state,
            stop,
            once=once,
            outlive_tables=outlive_tables,
            warm=warm,
            intervals=intervals,
        ).run()
    finally:
        journal.check([*queries], status, once=once)
    return status
