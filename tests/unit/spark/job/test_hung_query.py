"""How a running job meets queries that hang: they are stopped and started again, or end the job."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.spark.job.fakes import AT_ONCE, Hung, Journal, Query, StoppingJobState, config_of, job_state_of, run_job

IMPATIENT = replace(AT_ONCE, stalled_after_s=0.01, least_patience_s=0.0, first_patience_s=0.0)


def test_hung_query_is_started_again_beside_other_tables(caplog: pytest.LogCaptureFixture) -> None:
    """The log names table, time and what it waited for; the status page and a metric count it; the other table goes on.

    Its task's process is ended after the stop: Spark only closes its connection.
    """
    hung, good, journal = Hung(), Query(3000, None), Journal()
    job_state = job_state_of("a.hung", "a.good")
    queries: dict[str, Any] = {"a.hung": [hung, Query(3, None)], "a.good": [good]}
    assert run_job(queries, once=True, job_state=job_state, intervals=IMPATIENT, journal=journal) == 0
    assert hung.stopped
    assert journal.killed == ["a.hung"]
    assert journal.failed == [(hung, False)]
    found, other = job_state.snapshot().tables
    assert (found.stall_restarts, found.failures, found.starts, found.state) == (1, 1, 2, "finished")
    assert (other.stall_restarts, other.failures, other.starts) == (0, 0, 1)
    reason = "a.hung: its query has shown no progress for 0 s, while it waits for lane 1 in process 4711"
    assert caplog.messages == [
        f"{reason}; the job stops it and starts it again",
        f"{reason} (failure 1; starting again in 0 s)",
    ]


def test_refused_stop_is_tried_again_without_the_tasks() -> None:
    """Spark gives a stop up after a while; the query's thread may then wait for a task's process."""
    hung, journal = Hung(refusals=1), Journal()
    queries: dict[str, Any] = {"a.b": [hung, Query(3, None)]}
    assert run_job(queries, once=True, intervals=IMPATIENT, journal=journal) == 0
    assert hung.stopped
    assert journal.killed == ["a.b", "a.b"]


def test_query_that_can_not_be_stopped_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """With an error that says why, and exit status 1; other tables are stopped in order."""
    good = Query(10**9, None)
    queries: dict[str, Any] = {"a.hung": [Hung(refusals=9)], "a.good": [good]}
    assert run_job(queries, once=False, intervals=IMPATIENT) == 1
    assert good.stopped
    assert caplog.messages[-1] == (
        "a.hung: its query has shown no progress for 0 s, while it waits for lane 1 in process 4711, and can't be "
        "stopped: Spark gave up the stop (PySparkException). The job ends, so that it can be started again"
    )


class Endless(Hung):
    """A query whose stop does not return before `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def stop(self) -> None:
        self.let_go.wait(60)
        super().stop()


def test_stop_that_does_not_return_ends_the_job(caplog: pytest.LogCaptureFixture) -> None:
    """The bound is the job's own, whatever Spark's settings are; also where the job would outlive its tables."""
    hung, began_s = Endless(), time.monotonic()
    intervals = replace(IMPATIENT, stop_hung_s=0.05)
    try:
        assert run_job({"a.b": [hung]}, once=False, outlive_tables=True, intervals=intervals) == 1
    finally:
        hung.let_go.set()
    assert time.monotonic() - began_s < 30
    assert "can't be stopped: the stop has not ended within 0 s" in caplog.messages[-1]


def test_stop_of_the_job_waits_for_the_stop_of_a_hung_query() -> None:
    """But no longer than for any other query."""
    began_s, job_state = time.monotonic(), StoppingJobState(config_of("a.b"), 10**9)

    class Stopping(Endless):
        def stop(self) -> None:
            job_state.stop.set()
            super().stop()

    hung = Stopping()
    try:
        assert run_job({"a.b": [hung]}, once=False, job_state=job_state, intervals=replace(IMPATIENT, stop_s=0.05)) == 0
    finally:
        hung.let_go.set()
    assert time.monotonic() - began_s < 30


@pytest.mark.parametrize("name", ["a.idle", "a.growing", "a.silent", "a.paced"])
def test_query_that_only_waits_is_left_alone(name: str) -> None:
    """One with nothing to read, one that publishes, one whose Kafka is away, one whose turn has not come."""
    waiting, journal = Hung(), Journal()
    waiting.reports = int(name == "a.idle")
    job_state = StoppingJobState(config_of(name), 300)
    assert run_job({name: [waiting]}, once=False, job_state=job_state, intervals=IMPATIENT, journal=journal) == 0
    assert journal.starts == [(name, False)]
    assert job_state.snapshot().tables[0].stall_restarts == 0
