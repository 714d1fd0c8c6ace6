"""What the fork client makes of Python's arguments."""

from __future__ import annotations

import sys

import pytest

from spark.workers import fork_client


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-m", "pyspark.daemon", "pyspark.worker"], ["-m", "spark.workers.daemon", "pyspark.worker"]),
        (["-m", "spark.workers.daemon", "pyspark.worker"], ["-m", "spark.workers.daemon", "pyspark.worker"]),
        (["-m", "pyspark.worker", "pyspark.daemon"], ["-m", "pyspark.worker", "pyspark.daemon"]),
        (["-c", "pyspark.daemon"], ["-c", "pyspark.daemon"]),
        (["-m"], ["-m"]),
        ([], []),
    ],
)
def test_our_daemon_takes_the_place_of_pysparks(
    words: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's own prints a traceback for each planner's answer that Spark drops."""
    started: list[list[str]] = []
    monkeypatch.delenv(fork_client.VARIABLE, raising=False)
    fork_client.main(lambda _path, command: started.append(command), words)
    assert started == [[sys.executable, *expected]]
