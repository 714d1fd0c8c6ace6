"""The Spark session of a job: the settings that the bridge depends on, and those that were measured to matter."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from bridge.config import SparkSettings
from spark.rows import BLOCKS_IN_BATCH
from spark.sink import KafkaLanesSink
from spark.source import ScyllaCdcSource

_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    # Between the JVM and Python on one machine; with the frozen garbage collector it halves a small micro-batch's time.
    "spark.python.unix.domain.socket.enabled": "true",
    # How often an idle query asks for new offsets; the default of 10 ms costs 7 % of a core.
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOCKS_IN_BATCH),
    # Killed tasks are retried; a lane's progress makes that safe.
    "spark.task.maxFailures": "4",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "10s",
    # What is asked for every two seconds, whole.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
_LOCAL: Final = re.compile(r"^local(?:\[(?P<threads>\*|\d+)\])?$")
_LOCAL_TRIES: Final = 4


def master_of(settings: SparkSettings) -> str:
    """The master; a plain local one is told to retry tasks, which `local[N]` alone never does."""
    match = _LOCAL.match(settings.master)
    if match is None:
        return settings.master
    return f"local[{match['threads'] or 1},{_LOCAL_TRIES}]"


def cores_of(settings: SparkSettings) -> int:
    """Cores that work lanes, as far as the settings say: those of a local master, else of the configured executors."""
    match = re.match(r"^local(?:\[(\*|\d+)(?:,\d+)?\])?$", settings.master)
    if match is not None:
        threads = match[1] or "1"
        return (os.cpu_count() or 1) if threads == "*" else int(threads)
    properties = settings.properties
    executors = int(properties.get("spark.executor.instances", 1))
    return max(1, executors * int(properties.get("spark.executor.cores", 1)))


def build_session(name: str, settings: SparkSettings) -> SparkSession:
    """A session with source and sink registered; workers run this very interpreter."""
    # Unset, PySpark picks another interpreter and fails only with "failed to connect back".
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name).master(master_of(settings))
    properties = dict(_DEFAULTS)
    if settings.master.startswith("local"):
        properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for key, value in (properties | {key: _text(value) for key, value in settings.properties.items()}).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _outlive_sigterm(session)
    session.dataSource.register(ScyllaCdcSource)
    session.dataSource.register(KafkaLanesSink)
    return session


def _outlive_sigterm(session: SparkSession) -> None:
    """Have the JVM ignore SIGTERM: whoever stops the job by a signal to all of its processes means the job.

    systemd does so, and `timeout`. The JVM must not shut down under the job that is about to stop it; it ends with
    the job, however that ends, because its standard input does.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # there is no other way to the JVM
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
