"""How a job runs its tables side by side, and how it ends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from bridge.errors import UnpublishableError
from spark.job.supervisor import Job, run_monitored
from spark.job.table_run import Intervals
from tests.unit.spark.job.fakes import (
    AT_ONCE,
    Journal,
    Query,
    RecordingWatch,
    StoppingJobState,
    config_of,
    job_state_of,
    run_job,
)


@pytest.mark.parametrize(("warm", "looks_left"), [(False, False), (True, True)])
def test_queries_wait_for_each_others_planners_unless_these_are_warm(warm: bool, looks_left: bool) -> None:
    """Many cold planner processes at once would all miss the time that Spark gives them."""
    first = Query(20, None)
    first.lastProgress, first.status = None, {"isTriggerActive": True, "message": "Initializing sources"}
    left_at_start: list[int] = []

    class Second(Query):
        @property
        def isActive(self) -> bool:  # noqa: N802  # PySpark's name
            if not left_at_start:
                left_at_start.append(first.looks)
            return super().isActive

    assert run_job({"a.first": [first], "a.second": [Second(1, None)]}, once=True, warm=warm) == 0
    assert (left_at_start[0] > 0) is looks_left


def test_other_tables_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """A table that stops does not end the others, but it changes the job's exit status."""
    good = Query(50, None)
    queries = {"a.bad": [Query(0, RuntimeError("bridge.errors.UnpublishableError: column v"))], "a.good": [good]}
    assert run_job(queries, once=True) == 1
    assert good.looks < 0, "the good table's query was not awaited"
    assert "a.bad stops: column v" in caplog.text


@pytest.mark.parametrize(
    ("once", "runs", "given_up", "urgent", "often"),
    [
        (False, [True, True], [None, None], False, "at rest"),
        (False, [True, False], [None, "it can't go on"], False, "at rest"),
        (False, [True, False], [None, None], False, "now and then"),
        # Its end is near.
        (True, [True, True], [None, None], False, "now and then"),
        (False, [True, True], [None, None], True, "a start"),
    ],
)
def test_queries_that_run_are_looked_at_less_often(
    once: bool, runs: list[bool], given_up: list[str | None], urgent: bool, often: str
) -> None:
    """Each look costs, and where all tables run or have ended nothing is due soon."""
    tables = [
        SimpleNamespace(runs=run, given_up=why, is_urgent=urgent) for run, why in zip(runs, given_up, strict=True)
    ]
    intervals = Intervals()
    job: Any = SimpleNamespace(_once=once, _tables=tables, _intervals=intervals)
    pauses_s = {
        intervals.look_at_rest_s: "at rest",
        intervals.look_s: "now and then",
        intervals.look_at_starts_s: "a start",
    }
    assert pauses_s[Job._look_again_in_s(job)] == often


def test_change_topics_of_running_tables_are_watched() -> None:
    """And no others: a table that has stopped publishes nothing."""
    watch = RecordingWatch()
    queries = {
        "a.bad": [Query(0, RuntimeError("bridge.errors.UnpublishableError: column v"))],
        "a.good": [Query(50, None)],
    }
    assert run_job(queries, once=True, watch=watch) == 1
    assert watch.watched[-1] == ["topic of a.good"]


def test_nothing_stays_behind_a_jvm_that_ends() -> None:
    """The tables' temporary files go, although their queries can't be stopped any more."""

    class Gone(Query):
        @property
        def isActive(self) -> bool:  # noqa: N802  # PySpark's name
            raise Py4JNetworkError("gone")

    with pytest.raises(Py4JNetworkError):
        run_job({"a.b": [Gone(0, None)]}, once=False)


def test_start_that_hangs_holds_up_no_other_tables_start(caplog: pytest.LogCaptureFixture) -> None:
    """Tables start one after the other, but a slow start holds up the next one only for a while, and is logged."""
    hanging, journal = threading.Event(), Journal()
    job_state = StoppingJobState(config_of("a.hanging", "a.other"), 1000)
    queries = {"a.hanging": [hanging], "a.other": [Query(10**9, None)]}
    intervals = replace(AT_ONCE, stop_s=0.01, alone_s=0.05, remind_s=0.1)
    try:
        assert run_job(queries, once=False, job_state=job_state, journal=journal, intervals=intervals) == 0
    finally:
        hanging.set()
    assert journal.starts == [("a.hanging", False), ("a.other", False)]
    assert "a.hanging: its start has been under way for 0 s; do the servers and" in caplog.text


def test_neither_loop_nor_stop_nor_other_tables_wait_for_a_start(caplog: pytest.LogCaptureFixture) -> None:
    """A start that hangs in a library leaves the job at work, and is left behind when the job stops."""
    hanging, failing = threading.Event(), Query(3, RuntimeError("bridge.errors.UnpublishableError: column v"))
    job_state = StoppingJobState(config_of("a.failing", "a.hanging"), 50)
    queries: dict[str, Any] = {"a.failing": [failing], "a.hanging": [hanging]}
    began_s = time.monotonic()
    try:
        assert run_job(queries, once=False, job_state=job_state, intervals=replace(AT_ONCE, stop_s=0.01)) == 1
    finally:
        hanging.set()
    assert time.monotonic() - began_s < 30
    assert [table.state for table in job_state.snapshot().tables] == ["stopped", "starting"]
    assert caplog.messages == ["a.failing stops: column v", "a.hanging: stopped in the midst of its start"]


def test_start_that_ends_with_the_stop_leaves_no_query() -> None:
    """The query of a start that was under way is stopped with the rest."""
    query, job_state = Query(10**6, None), StoppingJobState(config_of("a.b"), 1)
    assert run_job({"a.b": [query]}, once=False, job_state=job_state) == 0
    assert query.stopped


@pytest.mark.parametrize(
    ("outlive", "once", "rounds_left"), [(True, False, False), (False, False, True), (True, True, True)]
)
def test_job_may_outlive_its_tables(outlive: bool, once: bool, rounds_left: bool) -> None:
    """When every table was given up the job ends, unless it is to go on until it is stopped."""
    job_state = StoppingJobState(config_of("a.b"), 50)
    assert (
        run_job({"a.b": [UnpublishableError("column v")]}, once=once, job_state=job_state, outlive_tables=outlive) == 1
    )
    assert (job_state.left > 0) is rounds_left


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Py4JNetworkError("gone"), "Spark's JVM has ended (Py4JNetworkError)"),
        (ConnectionRefusedError(111, "refused"), "Spark's JVM has ended (ConnectionRefusedError)"),
        (PySparkRuntimeError("JAVA_GATEWAY_EXITED", {}), "JAVA_GATEWAY_EXITED"),
    ],
)
def test_jvm_that_ends_fails_the_job_unless_it_was_to_stop(
    caplog: pytest.LogCaptureFixture, failure: Exception, words: str
) -> None:
    """A signal to all processes of the job at once means a stop; what was committed stays either way."""

    def fail() -> None:
        raise failure

    coming: Any = SimpleNamespace(result=fail)
    config, job_state, stop = config_of("a.b"), job_state_of("a.b"), threading.Event()
    assert run_monitored(config, coming, stop, job_state, once=False) == 1
    assert words in caplog.text
    caplog.clear()
    stop.set()
    assert run_monitored(config, coming, stop, job_state, once=False) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
