"""What the job makes of the failures of Spark, its JVM and its Python processes."""

from __future__ import annotations

import pytest

from bridge.errors import BridgeError, ConfigError, DataLossError, FencedError, RetriableError
from spark.job.failures import Failure, describe_error

WORKER_TRACE = """[STREAM_FAILED] Query failed. SQLSTATE: XXKST
An exception was thrown from the Python worker: Traceback (most recent call last):
  File "bridge/engine/lane_task.py", line 70, in publish_lane
bridge.errors.RetriableError: Kafka at k:9092: begin failed
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
bridge.errors.DataLossError: ks.t lane 1 of 2: the cursor lies before the window
 SQLSTATE: 38000
"""


def test_own_error_keeps_its_message() -> None:
    """The name of its class tells a user nothing."""
    assert describe_error(DataLossError("ks.t: the topic holds no cursor")) == "ks.t: the topic holds no cursor"
    assert describe_error(ConfigError(["a: bad", "b: bad"])) == "a: bad; b: bad"


def test_last_error_of_a_worker_decides() -> None:
    """Errors of Python workers come as text; the last one ended the attempt."""
    failure = Failure.of(RuntimeError(WORKER_TRACE))
    assert failure.is_hopeless
    assert failure.message == "ks.t lane 1 of 2: the cursor lies before the window"


@pytest.mark.parametrize(
    ("error", "hopeless"),
    [
        (RetriableError("later"), False),
        (DataLossError("gone"), True),
        (BridgeError("no"), True),
        (ConfigError(["x: bad"]), True),
        (RuntimeError("bridge.errors.FencedError: taken over"), False),
        (RuntimeError("bridge.errors.UnpublishableError: column v"), True),
        (RuntimeError("bridge.errors.LayoutError: another job"), True),
        (RuntimeError("bridge.encoding.grouping.IncompleteGroupError: no end"), True),
        (RuntimeError("bridge.errors.AccessError: the old password"), False),
        (RuntimeError("bridge.errors.StartupError: a missing right"), True),
        (RuntimeError("bridge.reading.lane_merge.ColumnsChangedError: more"), False),
        (FencedError("taken over"), False),
        (RuntimeError("pyspark.errors.X: something else"), False),
    ],
)
def test_what_no_further_attempt_can_mend_is_hopeless(error: Exception, hopeless: bool) -> None:
    """Lost progress, unpublishable changes, wrong settings and missing rights stop the table; others are retried."""
    assert Failure.of(error).is_hopeless is hopeless


def test_failure_of_spark_itself_keeps_one_line() -> None:
    """The line names what was raised, with a message or without."""
    assert describe_error(RuntimeError("\nJob aborted\n\tat org.apache...")) == "RuntimeError: Job aborted"
    thrown = "An error occurred while calling o96.start.\n: java.io.IOException: disk full\n\tat org.apache..."
    assert describe_error(RuntimeError(thrown)) == "RuntimeError: java.io.IOException: disk full"
    silent = "An error occurred while calling o96.start.\n: java.util.concurrent.TimeoutException\n\tat org.apache..."
    assert describe_error(RuntimeError(silent)) == "RuntimeError: java.util.concurrent.TimeoutException"


def test_killed_process_is_hinted_at() -> None:
    """Spark's message about a killed planner process is only that of its operating system."""
    hint = " (perhaps one of Spark's Python processes was killed)"
    assert describe_error(RuntimeError("Broken pipe")) == f"RuntimeError: Broken pipe{hint}"
    thrown = "An error occurred while calling o96.start.\n: java.io.EOFException\n\tat org.apache..."
    assert describe_error(RuntimeError(thrown)) == f"RuntimeError: java.io.EOFException{hint}"


def test_failure_of_somebody_elses_python_is_described_by_its_last_line() -> None:
    """Of a traceback, the exception itself is quoted."""
    error = RuntimeError("[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  x\nKeyError: 'a'\n")
    assert describe_error(error) == "RuntimeError: KeyError: 'a'"


@pytest.mark.parametrize(
    ("error", "by_spark"),
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
def test_only_sparks_own_failures_count_against_the_checkpoint(error: Exception, by_spark: bool) -> None:
    """A worker that was killed, or a mistake of the bridge, is no evidence about the checkpoint's files."""
    assert Failure.of(error).by_spark is by_spark
