"""What the job makes of failures, and of its settings."""

from __future__ import annotations

import pytest

from bridge.config import SparkSettings
from bridge.errors import BridgeError, ConfigError, DataLossError, FencedError, RetriableError
from spark.job import _is_hopeless, _what_went_wrong
from spark.session import cores_of, master_of

WORKER_TRACE = """[STREAM_FAILED] Query failed. SQLSTATE: XXKST
An exception was thrown from the Python worker: Traceback (most recent call last):
  File "spark/sink.py", line 70, in write
bridge.errors.RetriableError: Kafka at k:9092: begin failed
During handling of the above exception, another exception occurred:
Traceback (most recent call last):
bridge.errors.DataLossError: ks.t lane 1 of 2: the cursor lies before the window
 SQLSTATE: 38000
"""


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
        (RuntimeError("bridge.assembly.IncompleteGroupError: no end"), True),
        (RuntimeError("bridge.lane_reader.ColumnsChangedError: more"), False),
        (FencedError("taken over"), False),
        (RuntimeError("pyspark.errors.X: something else"), False),
    ],
)
def test_what_no_further_try_can_mend_ends_the_job(failure: Exception, hopeless: bool) -> None:
    """Lost progress, poison and wrong settings stop the table; servers that fail are tried again."""
    assert _is_hopeless(failure) is hopeless


def test_failure_of_spark_itself_is_told_in_a_line() -> None:
    """A failure that is not ours keeps its first line only."""
    assert _what_went_wrong(RuntimeError("\nJob aborted\n\tat org.apache...")) == "RuntimeError: Job aborted"


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
    assert cores_of(settings) == cores


def test_failure_of_somebody_elses_python_is_told_by_its_last_line() -> None:
    """Of a traceback, the exception itself is quoted."""
    failure = RuntimeError(
        "[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  x\nKeyError: 'a'\n"
    )
    assert _what_went_wrong(failure) == "RuntimeError: KeyError: 'a'"
