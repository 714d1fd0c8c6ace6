"""How a running job meets the failures, the recoveries and the end of one table."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from bridge.errors import NoGenerationError, RetriableError, UnpublishableError
from bridge.monitoring.state import JobState
from tests.unit.spark.job.fakes import (
    AT_ONCE,
    Journal,
    Query,
    Recovering,
    StoppingJobState,
    config_of,
    job_state_of,
    run_job,
)

AWAY = "bridge.errors.RetriableError: Kafka is away"


@pytest.mark.parametrize("looks", range(5))
def test_table_that_can_not_go_on_fails_the_job(caplog: pytest.LogCaptureFixture, looks: int) -> None:
    """Whenever its query ends, lost progress is logged with its reason, and the exit status is 1."""
    failing = Query(looks, RuntimeError("bridge.errors.DataLossError: the cursor lies before the window"))
    assert run_job({"a.b": [failing]}, once=True) == 1
    assert "a.b stops: the cursor lies before the window" in caplog.text


def test_changes_of_a_table_are_logged_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A schema that the registry refuses comes from an ALTER TABLE, which the error names."""
    failing = Query(1, RuntimeError("bridge.errors.StartupError: subject a.altered-value refuses the schema"))
    assert run_job({"a.altered": [failing]}, once=True) == 1
    assert (
        "a.altered stops: subject a.altered-value refuses the schema "
        "(changed since the job began to read the table: column v int was dropped)"
    ) in caplog.text


def test_passing_failures_are_tried_again() -> None:
    """A server that failed is no reason to give a table up."""
    queries = {"a.b": [Query(1, RuntimeError(AWAY)), Query(3, None)]}
    assert run_job(queries, once=True) == 0
    assert queries == {"a.b": []}


class JavaError(Py4JJavaError):
    """An error without a JVM behind it."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return "An error occurred while calling o96.start.\n: java.io.IOException: no such bucket\n\tat org.apache..."


@pytest.mark.parametrize("failure", [JavaError(), AnalysisException("no process could be started")])
def test_what_spark_refuses_a_table_does_not_end_the_others(
    caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    """A checkpoint's store that is away while one query starts again is logged and tried again."""
    good = Query(50, None)
    assert run_job({"a.bad": [failure, Query(1, None)], "a.good": [good]}, once=True) == 0
    assert good.looks < 0
    assert "a.bad: " in caplog.text
    assert "starting again" in caplog.text


def test_tables_learn_whose_failures_theirs_were() -> None:
    """Failures of a query or of a start; Spark's own, and the bridge's, which Spark may quote."""
    journal = Journal()
    sparks = Query(1, RuntimeError("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location c"))
    ours = Query(1, RuntimeError(f"pyspark.errors: {AWAY}"))
    queries = {"a.b": [sparks, JavaError(), RetriableError("ScyllaDB is away"), ours, Query(1, None)]}
    assert run_job(queries, once=True, journal=journal) == 0
    assert journal.failed == [(sparks, True), (None, True), (None, False), (ours, False)]


def test_failed_query_waits_for_its_share_of_requests() -> None:
    """Its start asks all streams at once: no sooner than scylla.requests_per_second allows."""
    waits: dict[str, float] = {}

    class Recording(JobState):
        def set_retrying(self, table: str, reason: str, after_s: float) -> None:
            waits[table] = after_s

    queries = {name: [Query(1, RuntimeError(AWAY)), Query(3, None)] for name in ("a.free", "a.paced")}
    assert run_job(queries, once=True, job_state=Recording(config_of(*queries), "0", lambda: 7.0)) == 0
    assert waits == {"a.free": 0.01, "a.paced": 0.03}


def test_servers_may_be_away_for_as_long_as_they_like() -> None:
    """Every failure is followed by another start; the test of the restart policy has thousands of them."""
    away = [RetriableError("ScyllaDB is away") for _ in range(50)]
    intervals = replace(AT_ONCE, longest_backoff_s=0.0)
    assert run_job({"a.b": [*away, Query(1, None)]}, once=True, intervals=intervals) == 0


def test_lanes_are_recovered_beside_other_tables() -> None:
    """The interrupted micro-batch of a former layout is finished first, then the table starts again; others go on."""
    recovering, other, journal = Recovering(200, None), Query(3, None), Journal()
    left_at_end: list[int] = []

    class Recording(JobState):
        def set_finished(self, table: str) -> None:
            left_at_end.append(recovering.looks)
            super().set_finished(table)

    queries: dict[str, Any] = {"a.relaid": [recovering, Query(3, None)], "a.other": [other]}
    job_state = Recording(config_of(*queries), "0", lambda: 7.0)
    assert run_job(queries, once=True, job_state=job_state, journal=journal) == 0
    assert journal.starts == [("a.relaid", False), ("a.other", False), ("a.relaid", True)]
    assert left_at_end[0] > 0
    relaid = job_state.snapshot().tables[0]
    assert (relaid.state, relaid.starts, relaid.failures) == ("finished", 1, 0)


def test_lanes_that_could_not_be_recovered_are_tried_again() -> None:
    """The query that recovers the lanes may fail, or leave them apart."""
    failing, journal = Recovering(1, RuntimeError(AWAY)), Journal()
    uneven = RetriableError("its 2 lanes do not stand level yet")
    queries: dict[str, Any] = {"a.b": [failing, Recovering(1, None), uneven, Recovering(1, None), Query(1, None)]}
    assert run_job(queries, once=True, journal=journal) == 0
    assert [recovered for _, recovered in journal.starts] == [False, False, True, False, True]


def test_stop_ends_a_recovery() -> None:
    """A stop does not wait until lanes stand level."""
    recovering, job_state = Recovering(10**6, None), StoppingJobState(config_of("a.b"), 50)
    assert run_job({"a.b": [recovering]}, once=False, job_state=job_state) == 0
    assert recovering.stopped


@pytest.mark.parametrize("stop_at", [None, 50])
def test_nothing_waits_for_the_changes_of_a_table(caplog: pytest.LogCaptureFixture, stop_at: int | None) -> None:
    """A ScyllaDB that does not answer delays neither the loop nor a stop, and the table's end is logged."""
    job_state, answer = StoppingJobState(config_of("a.asked"), stop_at or 10**6), threading.Event()
    began_s = time.monotonic()
    intervals = replace(AT_ONCE, changes_s=60.0 if stop_at else 0.01)
    try:
        queries: dict[str, Any] = {"a.asked": [UnpublishableError("column v")]}
        assert run_job(queries, once=False, job_state=job_state, answer=answer, intervals=intervals) == 1
    finally:
        answer.set()
    assert time.monotonic() - began_s < 30
    assert caplog.messages == ["a.asked stops: column v"]
    assert (job_state.left == 0) is (stop_at is not None)


def test_changes_that_can_not_be_found_out_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The table's end is logged without them."""
    answer = threading.Event()
    answer.set()
    assert run_job({"a.asked": [UnpublishableError("column v")]}, once=False, answer=answer) == 1
    assert caplog.messages == [
        "a.asked: the job could not find out what has changed in the table (no such column)",
        "a.asked stops: column v",
    ]


def test_board_shows_what_becomes_of_a_table() -> None:
    """Starts, failures and the end of each table are on the status page."""
    queries = {
        "a.good": [Query(1, RuntimeError(AWAY)), Query(3, None)],
        "a.bad": [Query(0, RuntimeError("bridge.errors.UnpublishableError: column v"))],
    }
    job_state = job_state_of(*queries)
    assert run_job(queries, once=True, job_state=job_state) == 1
    good, bad = job_state.snapshot().tables
    assert (good.state, good.starts, good.failures) == ("finished", 2, 1)
    assert (bad.state, bad.reason, bad.starts, bad.failures) == ("stopped", "column v", 1, 1)


def test_table_without_streams_is_waited_for_and_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """It is no failure and logged once. Others run meanwhile, as tablets do in a cluster without a generation."""
    good = Query(3, None)
    none_yet = NoGenerationError("test:1 has no CDC generation yet")
    job_state = StoppingJobState(config_of("a.young", "a.good"), 200)
    queries = {"a.young": [none_yet, none_yet, none_yet, Query(10**9, None)], "a.good": [good]}
    assert run_job(queries, once=False, job_state=job_state, intervals=replace(AT_ONCE, first_generation_s=0)) == 0
    young = job_state.snapshot().tables[0]
    assert (young.state, young.starts, young.failures) == ("running", 1, 0)
    assert caplog.messages == ["a.young: test:1 has no CDC generation yet. Waiting for it"]
    assert good.looks < 0


def test_run_that_is_to_end_waits_for_no_streams(caplog: pytest.LogCaptureFixture) -> None:
    """With `--once` there is nothing to read then."""
    none_yet = NoGenerationError("test:1 has no CDC generation yet")
    job_state = job_state_of("a.young", "a.good")
    assert run_job({"a.young": [none_yet], "a.good": [Query(3, None)]}, once=True, job_state=job_state) == 0
    assert [table.state for table in job_state.snapshot().tables] == ["finished", "finished"]
    assert caplog.messages == ["a.young: test:1 has no CDC generation yet. There is nothing to read"]
