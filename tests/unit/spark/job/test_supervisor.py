"""What the job makes of failures, and of its settings."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.config.document import BridgeConfig, SparkSettings, validate
from bridge.engine.lane_counts import configured_cores
from bridge.errors import (
    BridgeError,
    ConfigError,
    DataLossError,
    FencedError,
    NoGenerationError,
    PoisonError,
    RetriableError,
    StartupError,
)
from bridge.monitoring.state import JobState
from spark.job import supervisor
from spark.job.supervisor import Job, _is_hopeless, _what_went_wrong
from spark.job.table_query import Begun
from spark.jvm.session import StartingSession
from spark.jvm.settings import master_of

WORKER_TRACE = """[STREAM_FAILED] Query failed. SQLSTATE: XXKST
An exception was thrown from the Python worker: Traceback (most recent call last):
  File "bridge/engine/lane_task.py", line 70, in publish_lane
bridge.errors.RetriableError: Kafka at k:9092: begin failed
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
bridge.errors.DataLossError: ks.t lane 1 of 2: the cursor lies before the window
 SQLSTATE: 38000
"""


def test_own_error_is_told_in_its_own_words() -> None:
    """Wherever it was raised: what it is called in the code tells a user nothing."""
    assert _what_went_wrong(DataLossError("ks.t: the topic holds no cursor")) == "ks.t: the topic holds no cursor"
    assert _what_went_wrong(ConfigError(["a: bad", "b: bad"])) == "a: bad; b: bad"


def test_last_error_of_a_worker_decides() -> None:
    """Errors of Python workers come as text; the one that ended the attempt is the one that counts."""
    failure = RuntimeError(WORKER_TRACE)
    assert _is_hopeless(failure)
    assert _what_went_wrong(failure) == "ks.t lane 1 of 2: the cursor lies before the window"


@pytest.mark.parametrize(
    ("failure", "hopeless"),
    [
        (RetriableError("later"), False),
        (DataLossError("gone"), True),
        (BridgeError("no"), True),
        (ConfigError(["x: bad"]), True),
        (RuntimeError("bridge.errors.FencedError: taken over"), False),
        (RuntimeError("bridge.errors.PoisonError: column v"), True),
        (RuntimeError("bridge.errors.LayoutError: another job"), True),
        (RuntimeError("bridge.encoding.grouping.IncompleteGroupError: no end"), True),
        (RuntimeError("bridge.errors.AccessError: the old password"), False),
        (RuntimeError("bridge.errors.StartupError: a missing right"), True),
        (RuntimeError("bridge.reading.lane_merge.ColumnsChangedError: more"), False),
        (FencedError("taken over"), False),
        (RuntimeError("pyspark.errors.X: something else"), False),
    ],
)
def test_what_no_further_try_can_mend_ends_the_job(failure: Exception, hopeless: bool) -> None:
    """Lost progress, poison, wrong settings and missing rights stop the table; what may pass is tried again."""
    assert _is_hopeless(failure) is hopeless


def test_failure_of_spark_itself_is_told_in_a_line() -> None:
    """A failure that is not ours keeps one line only, which says what was thrown, with a message or without."""
    assert _what_went_wrong(RuntimeError("\nJob aborted\n\tat org.apache...")) == "RuntimeError: Job aborted"
    thrown = "An error occurred while calling o96.start.\n: java.io.IOException: disk full\n\tat org.apache..."
    assert _what_went_wrong(RuntimeError(thrown)) == "RuntimeError: java.io.IOException: disk full"
    silent = "An error occurred while calling o96.start.\n: java.util.concurrent.TimeoutException\n\tat org.apache..."
    assert _what_went_wrong(RuntimeError(silent)) == "RuntimeError: java.util.concurrent.TimeoutException"


def test_hang_up_of_a_process_is_told_as_one() -> None:
    """Of a killed process that plans Spark says no more than its operating system does."""
    hint = " (perhaps one of Spark's Python processes was killed)"
    assert _what_went_wrong(RuntimeError("Broken pipe")) == f"RuntimeError: Broken pipe{hint}"
    thrown = "An error occurred while calling o96.start.\n: java.io.EOFException\n\tat org.apache..."
    assert _what_went_wrong(RuntimeError(thrown)) == f"RuntimeError: java.io.EOFException{hint}"


@pytest.mark.parametrize(
    ("master", "made", "cores"),
    [
        ("local", "local[1,4]", 1),
        ("local[3]", "local[3,4]", 3),
        ("local[2,7]", "local[2,7]", 2),
        ("spark://host:7077", "spark://host:7077", 6),
    ],
)
def test_local_masters_retry_tasks(master: str, made: str, cores: int) -> None:
    """`local[N]` alone never retries a task; a cluster's cores come from its properties."""
    settings = SparkSettings(master=master, properties={"spark.executor.instances": 3, "spark.executor.cores": 2})
    assert master_of(settings) == made
    assert configured_cores(settings) == cores


def test_failure_of_somebody_elses_python_is_told_by_its_last_line() -> None:
    """Of a traceback, the exception itself is quoted."""
    failure = RuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  x\nKeyError: 'a'\n"
    )
    assert _what_went_wrong(failure) == "RuntimeError: KeyError: 'a'"


class Query:
    """A streaming query as far as the job looks at one: it is active for so many looks, then ends as told."""

    def __init__(self, looks: int, failure: Exception | None) -> None:
        self.looks, self.failure, self.stopped = looks, failure, False
        self.recentProgress: list[Any] = []
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


class Settling(Query):
    """One that only finishes what the lanes of a former layout had begun."""


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


class StoppingJobState(JobState):
    """A job_state that asks for the stop at the supervisor's so manieth round."""

    def __init__(self, config: BridgeConfig, rounds: int) -> None:
        super().__init__(config, "0", lambda: 0.0)
        self.left, self.stop = rounds, threading.Event()

    def tick(self) -> None:
        super().tick()
        self.left -= 1
        if self.left == 0:
            self.stop.set()


def run_job(
    monkeypatch: pytest.MonkeyPatch,
    queries: dict[str, list[Query | Exception | threading.Event]],
    *,
    once: bool,
    job_state: JobState | None = None,
    warm: bool = False,
    starts: list[tuple[str, bool]] | None = None,
    answer: threading.Event | None = None,
    watched: list[list[str]] | None = None,
    failed: list[tuple[Query | None, bool]] | None = None,
    **sections: Any,
) -> int:
    starts = [] if starts is None else starts
    failed = [] if failed is None else failed
    answer = answer or threading.Event()

    class Table:
        def __init__(self, _session: object, _config: object, table: Any, *_: object) -> None:
            self.name = f"{table.keyspace}.{table.table}"
            self.change_topic = f"topic of {self.name}"

        def start(self, *, once: bool, settled: bool) -> Begun:
            del once
            starts.append((self.name, settled))
            found = queries[self.name].pop(0)
            if isinstance(found, threading.Event):
                found.wait(60)
                raise RetriableError("Kafka is away")
            if isinstance(found, Exception):
                raise found
            query: Any = found
            return Begun(query, settles=isinstance(found, Settling))

        def look(self, query: Query, *, ended: bool) -> None:
            looked.append((query, ended))

        def failed(self, query: Query | None, *, by_spark: bool) -> None:
            failed.append((query, by_spark))

        def sum_up(self) -> None:
            summed_up.append((self.name, len(looked)))

        def stopped(self) -> None:
            assert looked[-1][1]

        def changes(self) -> str:
            if self.name.endswith("asked"):
                answer.wait(60)
                raise AssertionError("no such column")
            return "column v int was dropped" if self.name.endswith("altered") else ""

        def paced_for_s(self) -> float:
            return 0.03 if self.name.endswith("paced") else 0.0

        def close(self) -> None:
            closed.append(self.name)

    class Watch:
        def __init__(self, _settings: object) -> None:
            pass

        def look(self, topics: Any) -> None:
            if watched is not None:
                watched.append(topics())

    monkeypatch.setattr(supervisor, "TableQuery", Table)
    monkeypatch.setattr(supervisor, "TopicWatch", Watch)
    monkeypatch.setattr(supervisor, "_LOOK_EVERY_S", 0.001)
    monkeypatch.setattr(supervisor, "_LOOK_AT_STARTS_EVERY_S", 0.001)
    monkeypatch.setattr(supervisor, "_LOOK_AT_REST_EVERY_S", 0.001)
    session: Any = None
    closed: list[str] = []
    looked: list[tuple[Query, bool]] = []
    summed_up: list[tuple[str, int]] = []
    config = config_of(*queries, **sections)
    job_state = job_state or JobState(config, "0", lambda: 0.0)
    stop = job_state.stop if isinstance(job_state, StoppingJobState) else threading.Event()
    status = None
    try:
        status = Job(session, config, stop, once=once, job_state=job_state, warm=warm).run()
    finally:
        assert closed == [f"{table.keyspace}.{table.table}" for table in config.tables]
        # What the last micro-batch reports comes with its end.
        assert {query for query, _ in looked} == {query for query, ended in looked if ended}
        # Told of each table, and only when everything was counted.
        assert [name for name, _ in summed_up] in ([closed] if once and status == 0 else [[], closed] if once else [[]])
        assert all(ended for _, at in summed_up for _, ended in looked[at - 1 : at])
    return status


@pytest.mark.parametrize("looks", range(5))
def test_table_that_can_not_go_on_is_told_and_fails_the_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, looks: int
) -> None:
    """Whenever its query ends, lost progress is logged with its reason, and the exit status is 1."""
    failing = Query(looks, RuntimeError("bridge.errors.DataLossError: the cursor lies before the window"))
    assert run_job(monkeypatch, {"a.b": [failing]}, once=True) == 1
    assert "a.b stops: the cursor lies before the window" in caplog.text


@pytest.mark.parametrize(("warm", "looks_left"), [(False, False), (True, True)])
def test_queries_wait_for_each_others_planners_unless_these_are_warm(
    monkeypatch: pytest.MonkeyPatch, warm: bool, looks_left: bool
) -> None:
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

    assert run_job(monkeypatch, {"a.first": [first], "a.second": [Second(1, None)]}, once=True, warm=warm) == 0
    assert (left_at_start[0] > 0) is looks_left


def test_other_tables_go_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A table that stops does not end the others, but the job's exit status tells of it."""
    queries = {
        "a.bad": [Query(0, RuntimeError("bridge.errors.PoisonError: column v"))],
        "a.good": [Query(50, None)],
    }
    good = queries["a.good"][0]
    assert run_job(monkeypatch, queries, once=True) == 1
    assert good.looks < 0, "the good table's query was not awaited"
    assert "a.bad stops: column v" in caplog.text


@pytest.mark.parametrize(
    ("once", "runs", "given_up", "attempt", "often"),
    [
        (False, [True, True], [None, None], None, "at rest"),
        (False, [True, False], [None, "it can't go on"], None, "at rest"),
        (False, [True, False], [None, None], None, "now and then"),
        # Its end is near.
        (True, [True, True], [None, None], None, "now and then"),
        (False, [True, True], [None, None], object(), "a start"),
    ],
)
def test_queries_that_run_are_looked_at_less_often(
    once: bool, runs: list[bool], given_up: list[str | None], attempt: object, often: str
) -> None:
    """Each look costs, and where all run or have ended nothing is soon to be done."""
    tables = [
        SimpleNamespace(runs=run, given_up=why, attempt=attempt, verdict=None)
        for run, why in zip(runs, given_up, strict=True)
    ]
    job: Any = SimpleNamespace(_once=once, _tables=tables)
    pauses_s = {
        supervisor._LOOK_AT_REST_EVERY_S: "at rest",
        supervisor._LOOK_EVERY_S: "now and then",
        supervisor._LOOK_AT_STARTS_EVERY_S: "a start",
    }
    assert pauses_s[Job._look_again_in_s(job)] == often


def test_change_topics_of_tables_that_run_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of no others: a table that has stopped publishes nothing."""
    watched: list[list[str]] = []
    queries = {
        "a.bad": [Query(0, RuntimeError("bridge.errors.PoisonError: column v"))],
        "a.good": [Query(50, None)],
    }
    assert run_job(monkeypatch, queries, once=True, watched=watched) == 1
    assert watched[-1] == ["topic of a.good"]


def test_what_was_changed_in_a_table_is_told_with_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A schema that the registry refuses comes from an ALTER TABLE, which the error names."""
    failing = Query(1, RuntimeError("bridge.errors.StartupError: subject a.altered-value refuses the schema"))
    assert run_job(monkeypatch, {"a.altered": [failing]}, once=True) == 1
    assert (
        "a.altered stops: subject a.altered-value refuses the schema "
        "(changed since the job began to read the table: column v int was dropped)"
    ) in caplog.text


def test_passing_failures_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that failed is no reason to give a table up."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    queries = {"a.b": [Query(1, RuntimeError("bridge.errors.RetriableError: Kafka is away")), Query(3, None)]}
    assert run_job(monkeypatch, queries, once=True) == 0
    assert queries == {"a.b": []}


class JavaError(Py4JJavaError):
    """One without a JVM to ask what it says."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return "An error occurred while calling o96.start.\n: java.io.IOException: no such bucket\n\tat org.apache..."


@pytest.mark.parametrize("failure", [JavaError(), AnalysisException("no process could be started")])
def test_what_spark_refuses_a_table_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    """A checkpoint's store that is away while one query starts anew is tried again, and said."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    good = Query(50, None)
    assert run_job(monkeypatch, {"a.bad": [failure, Query(1, None)], "a.good": [good]}, once=True) == 0
    assert good.looks < 0
    assert "a.bad: " in caplog.text
    assert "starting again" in caplog.text


def test_tables_know_whose_failures_theirs_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a query, of a start; Spark's own, and those of the bridge, which Spark may tell in its words."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    failed: list[tuple[Query | None, bool]] = []
    sparks = Query(1, RuntimeError("[STREAMING_CHECKPOINT_MISSING_METADATA_FILE] Checkpoint location c"))
    ours = Query(1, RuntimeError("pyspark.errors: bridge.errors.RetriableError: Kafka is away"))
    queries = {"a.b": [sparks, JavaError(), RetriableError("ScyllaDB is away"), ours, Query(1, None)]}
    assert run_job(monkeypatch, queries, once=True, failed=failed) == 0
    assert failed == [(sparks, True), (None, True), (None, False), (ours, False)]


def test_nothing_stays_behind_a_jvm_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables' temporary files go, although their queries can't be stopped any more."""

    class Gone(Query):
        @property
        def isActive(self) -> bool:  # noqa: N802  # PySpark's name
            raise Py4JNetworkError("gone")

    with pytest.raises(Py4JNetworkError):
        run_job(monkeypatch, {"a.b": [Gone(0, None)]}, once=False)


def test_query_that_failed_waits_for_its_turn_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start asks all streams anew at once: no sooner than scylla.requests_per_second allows."""
    waits: dict[str, float] = {}

    class Told(JobState):
        def set_retrying(self, table: str, reason: str, after_s: float) -> None:
            waits[table] = after_s

    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    queries = {
        name: [Query(1, RuntimeError("bridge.errors.RetriableError: Kafka is away")), Query(3, None)]
        for name in ("a.free", "a.paced")
    }
    assert run_job(monkeypatch, queries, once=True, job_state=Told(config_of(*queries), "0", lambda: 7.0)) == 0
    assert waits == {"a.free": 0.01, "a.paced": 0.03}


def test_lanes_are_settled_beside_other_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a former layout had begun is finished first, then the table is started anew; others go on meanwhile."""
    settling, other = Settling(200, None), Query(3, None)
    job_state, starts = JobState(config_of("a.relaid", "a.other"), "0", lambda: 7.0), list[tuple[str, bool]]()
    left_at_end: list[int] = []

    def finished(table: str) -> None:
        left_at_end.append(settling.looks)
        JobState.set_finished(job_state, table)

    monkeypatch.setattr(job_state, "set_finished", finished)
    queries: dict[str, Any] = {"a.relaid": [settling, Query(3, None)], "a.other": [other]}
    assert run_job(monkeypatch, queries, once=True, job_state=job_state, starts=starts) == 0
    assert starts == [("a.relaid", False), ("a.other", False), ("a.relaid", True)]
    assert left_at_end[0] > 0
    relaid = job_state.snapshot().tables[0]
    assert (relaid.state, relaid.starts, relaid.failures) == ("finished", 1, 0)


def test_lanes_that_could_not_be_settled_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the query fails that was to settle them, or they do not stand level behind it."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    failing = Settling(1, RuntimeError("bridge.errors.RetriableError: Kafka is away"))
    uneven, starts = RetriableError("its 2 lanes do not stand level yet"), list[tuple[str, bool]]()
    queries: dict[str, Any] = {"a.b": [failing, Settling(1, None), uneven, Settling(1, None), Query(1, None)]}
    assert run_job(monkeypatch, queries, once=True, starts=starts) == 0
    assert [settled for _, settled in starts] == [False, False, True, False, True]


def test_stop_ends_what_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop does not wait until lanes stand level."""
    settling, job_state = Settling(10**6, None), StoppingJobState(config_of("a.b"), 50)
    assert run_job(monkeypatch, {"a.b": [settling]}, once=False, job_state=job_state) == 0
    assert settling.stopped


@pytest.mark.parametrize("stop_at", [None, 50])
def test_nothing_waits_for_what_was_changed_in_a_table(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stop_at: int | None
) -> None:
    """A ScyllaDB that does not answer holds up neither pulse nor stop, and the table's end is told all the same."""
    monkeypatch.setattr(supervisor, "_CHANGES_WITHIN_S", 60.0 if stop_at else 0.01)
    job_state, answer = StoppingJobState(config_of("a.asked"), stop_at or 10**6), threading.Event()
    began_s = time.monotonic()
    try:
        queries: dict[str, Any] = {"a.asked": [PoisonError("column v")]}
        assert run_job(monkeypatch, queries, once=False, job_state=job_state, answer=answer) == 1
    finally:
        answer.set()
    assert time.monotonic() - began_s < 30
    assert caplog.messages == ["a.asked stops: column v"]
    assert (job_state.left == 0) is (stop_at is not None)


def test_what_was_changed_and_can_not_be_found_out_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Then the table's end is told without it."""
    answer = threading.Event()
    answer.set()
    assert run_job(monkeypatch, {"a.asked": [PoisonError("column v")]}, once=False, answer=answer) == 1
    assert caplog.messages == [
        "a.asked: what was changed in it is not known (no such column)",
        "a.asked stops: column v",
    ]


def test_board_is_told_what_becomes_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts, failures and the end of each table are on the status page."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.01)
    queries = {
        "a.good": [Query(1, RuntimeError("bridge.errors.RetriableError: Kafka is away")), Query(3, None)],
        "a.bad": [Query(0, RuntimeError("bridge.errors.PoisonError: column v"))],
    }
    job_state = JobState(config_of(*queries), "0", lambda: 7.0)
    assert run_job(monkeypatch, queries, once=True, job_state=job_state) == 1
    good, bad = job_state.snapshot().tables
    assert (good.state, good.starts, good.failures) == ("finished", 2, 1)
    assert (bad.state, bad.reason, bad.starts, bad.failures) == ("stopped", "column v", 1, 1)


def test_table_without_streams_is_waited_for_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no failure, is said once, and others run meanwhile, as tablets do in a cluster without a generation."""
    monkeypatch.setattr(supervisor, "_FIRST_GENERATION_EVERY_S", 0)
    good = Query(3, None)
    none_yet = NoGenerationError("test:1 has no CDC generation yet")
    job_state = StoppingJobState(config_of("a.young", "a.good"), 200)
    queries = {"a.young": [none_yet, none_yet, none_yet, Query(10**9, None)], "a.good": [good]}
    assert run_job(monkeypatch, queries, once=False, job_state=job_state) == 0
    young = job_state.snapshot().tables[0]
    assert (young.state, young.starts, young.failures) == ("running", 1, 0)
    assert caplog.messages == ["a.young: test:1 has no CDC generation yet. Waiting for it"]
    assert good.looks < 0


def test_run_that_is_to_end_waits_for_no_streams(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With `--once` what can be read now is nothing, then."""
    none_yet = NoGenerationError("test:1 has no CDC generation yet")
    job_state = JobState(config_of("a.young", "a.good"), "0", lambda: 7.0)
    assert (
        run_job(monkeypatch, {"a.young": [none_yet], "a.good": [Query(3, None)]}, once=True, job_state=job_state) == 0
    )
    assert [table.state for table in job_state.snapshot().tables] == ["finished", "finished"]
    assert caplog.messages == ["a.young: test:1 has no CDC generation yet. There is nothing to read"]


def test_servers_may_be_away_for_as_long_as_they_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many failures there were, the next pause is the longest one, and a number."""
    monkeypatch.setattr(supervisor, "_LONGEST_BACKOFF_S", 0.0)
    away = [RetriableError("ScyllaDB is away") for _ in range(1100)]
    assert run_job(monkeypatch, {"a.b": [*away, Query(1, None)]}, once=True) == 0


def test_start_that_hangs_holds_up_no_other_tables_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Starts are made one after the other, but not behind one that takes its time; that is said now and then."""
    monkeypatch.setattr(supervisor, "_STOP_WITHIN_S", 0.01)
    monkeypatch.setattr(supervisor, "_ALONE_FOR_S", 0.05)
    monkeypatch.setattr(supervisor, "_REMIND_EVERY_S", 0.1)
    hanging, starts = threading.Event(), list[tuple[str, bool]]()
    job_state = StoppingJobState(config_of("a.hanging", "a.other"), 1000)
    queries = {"a.hanging": [hanging], "a.other": [Query(10**9, None)]}
    try:
        assert run_job(monkeypatch, queries, once=False, job_state=job_state, starts=starts) == 0
    finally:
        hanging.set()
    assert starts == [("a.hanging", False), ("a.other", False)]
    assert "a.hanging: its start has been under way for 0 s; do the servers and" in caplog.text


@pytest.mark.parametrize(
    ("failure", "sparks"),
    [
        (RuntimeError("java.lang.IllegalStateException: batch 5 doesn't exist"), True),
        (RuntimeError("bridge.errors.RetriableError: Kafka is away"), False),
        (RetriableError("Kafka is away"), False),
        (RuntimeError("An error occurred while calling o1.x.\njava.io.EOFException"), False),
        (
            RuntimeError("planPartitions: Traceback (most recent call last):\njson.decoder.JSONDecodeError: Expecting"),
            True,
        ),
        (RuntimeError("org.apache.spark.SparkException: Python worker failed to connect back."), False),
        (RuntimeError("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"), False),
        (RuntimeError("Job aborted\nTraceback (most recent call last):\n  File x\nKeyError: 'k'"), False),
    ],
)
def test_only_sparks_own_failures_are_held_against_the_checkpoint(failure: Exception, sparks: bool) -> None:
    """A worker that was killed, or a mistake of ours, says nothing of its files."""
    assert supervisor._is_sparks(failure) is sparks


def test_neither_pulse_nor_stop_nor_other_tables_wait_for_a_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A start that hangs in a library leaves the supervisor at work, and is left behind when the job is to stop."""
    monkeypatch.setattr(supervisor, "_STOP_WITHIN_S", 0.01)
    hanging, failing = threading.Event(), Query(3, RuntimeError("bridge.errors.PoisonError: column v"))
    job_state = StoppingJobState(config_of("a.failing", "a.hanging"), 50)
    began_s = time.monotonic()
    try:
        assert (
            run_job(monkeypatch, {"a.failing": [failing], "a.hanging": [hanging]}, once=False, job_state=job_state) == 1
        )
    finally:
        hanging.set()
    assert time.monotonic() - began_s < 30
    assert [table.state for table in job_state.snapshot().tables] == ["stopped", "starting"]
    assert caplog.messages == ["a.failing stops: column v", "a.hanging: stopped in the midst of its start"]


def test_start_that_ends_with_the_stop_leaves_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a start still gives is stopped with the rest."""
    query, job_state = Query(10**6, None), StoppingJobState(config_of("a.b"), 1)
    assert run_job(monkeypatch, {"a.b": [query]}, once=False, job_state=job_state) == 0
    assert query.stopped


@pytest.mark.parametrize(
    ("outlive", "once", "rounds_left"), [(True, False, False), (False, False, True), (True, True, True)]
)
def test_job_may_outlive_its_tables(
    monkeypatch: pytest.MonkeyPatch, outlive: bool, once: bool, rounds_left: bool
) -> None:
    """When every table was given up the job ends, unless it is to go on saying so until it is stopped."""
    job_state = StoppingJobState(config_of("a.b"), 50)
    queries: dict[str, list[Any]] = {"a.b": [PoisonError("column v")]}
    status = run_job(monkeypatch, queries, once=once, job_state=job_state, monitoring={"outlive_tables": outlive})
    assert status == 1
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
    """Whoever signals all processes of the job at once means a stop; what was committed stays either way."""

    def fail() -> None:
        raise failure

    coming: Any = SimpleNamespace(result=fail)
    monitor: Any = SimpleNamespace(job_state=None)
    stop = threading.Event()
    assert supervisor._run(config_of("a.b"), coming, stop, monitor, once=False) == supervisor._EXIT_FAILED
    assert words in caplog.text
    caplog.clear()
    stop.set()
    assert supervisor._run(config_of("a.b"), coming, stop, monitor, once=False) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize(
    ("home", "says", "words"),
    [
        (None, "", "JAVA_HOME is .*nowhere, but there is no bin/java in it"),
        ("jdk8", 'openjdk version "1.8.0_292"', "is Java 8, but 17 or newer is needed"),
        ("jdk17", 'openjdk version "17.0.9"', r"Java 17\) does not start; .*spark.properties"),
    ],
)
def test_missing_java_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None, says: str, words: str
) -> None:
    """Spark only says that its gateway exited; which Java that was, or that there is none, is found out."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere" if home is None else tmp_path / "jdk"))
    # Spark's own way there: its JVM ends before it has told a port.
    builder: Any = SparkSession.builder
    monkeypatch.setattr(type(builder), "getOrCreate", _no_gateway)
    with pytest.raises(StartupError, match=f"Spark's JVM .*{words}"):
        StartingSession("job", SparkSettings()).result()


def _no_gateway(_builder: object) -> None:
    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
