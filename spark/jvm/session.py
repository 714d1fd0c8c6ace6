"""The Spark session of a job: the settings that the bridge depends on, and those that were measured to matter."""

from __future__ import annotations

import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent import futures
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.config.document import SparkSettings
from bridge.errors import StartupError
from bridge.runtime import log_setup
from bridge.runtime.background import run_interruptibly
from bridge.runtime.java import find_java
from spark.jvm.launcher import SparkJvm, java_options

_log = logging.getLogger(__name__)

_DEFAULTS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    # Between the JVM and Python on one machine; with the frozen garbage collector it halves a small micro-batch's time.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "spark.workers.daemon",
    # How often an idle query asks for new offsets; the default of 10 ms costs 7 % of a core.
    "spark.sql.streaming.pollingDelay": "100ms",
    # A micro-batch has one row for each lane: code made for it, which the first one compiles, is a tenth of a start.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Killed tasks are retried; a lane's progress makes that safe.
    "spark.task.maxFailures": "4",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "10s",
    # The checkpoint is a plan, not the truth: checksums would double its files, of which each takes a process (chmod).
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Nor is it one folder for long: it may be deleted under a query, whose next plans then lie in a new one.
    "spark.sql.streaming.checkpoint.verifyMetadataExists.enabled": "false",
    # With them lanes report (`spark.job.progress_report`), which looks twice a second.
    "spark.sql.streaming.numRecentProgressUpdates": "100",
}
_MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_FORKS: Final = {
    _MANAGER: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # One of their own: who else asks for this machine's files would get the same, and some (buffers of the stores s3a
    # and abfs, for one) cast it to the class it is by default.
    "fs.file.impl.disable.cache": "true",
}
"""Settings of the session's queries, for a checkpoint among this machine's files. By default Hadoop forks `chmod` and
`readlink` for each file, of which a micro-batch writes two: more than half of a small one's time."""
_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_HADOOP_ELSEWHERE: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
_LOGS_ELSEWHERE: Final = ("SPARK_CONF_DIR", "SPARK_HOME")
_LOCAL: Final = re.compile(r"^local(?:\[(?P<threads>\*|\d+)\])?$")
_LOCAL_TRIES: Final = 4
_MOST_TURNS: Final = 8
"""Up to how many lanes a core nothing is said."""
_GIVE_UP_S: Final = 5.0


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


def crowded(settings: SparkSettings, lanes: int) -> Iterator[str]:
    """What is to be said of far more lanes than there are cores, as far as the settings say how many there are."""
    cores = cores_of(settings)
    if _LOCAL.match(settings.master) and lanes > _MOST_TURNS * cores:
        yield (
            f"{lanes} lanes are worked {cores} at a time, and each has a transaction of its own in every micro-batch; "
            "with about as many lanes as cores (spark.lanes, tables[].lanes) it goes quicker"
        )


class ComingSession:
    """A session whose JVM comes up while something else is done.

    With a local master that is all of Spark. With another, executors are asked for only when the session is wanted.
    """

    def __init__(self, name: str, settings: SparkSettings, *, python: str | None = None) -> None:
        """Start the JVM; workers run this very interpreter.

        Args:
            name: the job's.
            settings: of Spark.
            python: what Spark's Python processes on this machine are started with, in place of the interpreter.

        Raises:
            StartupError: there is no Java, or it can't be started.
        """
        is_local = settings.master.startswith("local")
        self.warm = python is not None and is_local
        """Whether it is that command that Spark starts: executors elsewhere would be told the same path."""
        # Unset, PySpark picks another interpreter and fails only with "failed to connect back".
        started = python if python is not None and is_local else sys.executable
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = started
        self._properties = _properties(name, settings)
        self._of_queries = _of_queries(settings)
        self._jvm = SparkJvm(self._properties)
        self._context: Future[SparkContext] | None = None
        if is_local:
            self._context = Future()
            threading.Thread(target=self._make_context_ahead, args=[self._context], daemon=True).start()

    def result(self) -> SparkSession:
        """The session, with the source registered.

        Raises:
            StartupError: Spark's JVM does not start.
            PySparkException, Py4JError: Spark did not come up.
        """
        # Not in the main thread: there Spark makes Ctrl-C its own, which is a stop of ours.
        context = run_interruptibly(self._make_context) if self._context is None else self._context.result()
        # Each thread has one of its own in the JVM, and Spark goes by the session that was made there.
        session = SparkSession(context, options={**self._properties, **self._of_queries})
        _outlive_sigterm(session)
        # Not needed by the JVM's start, and the longest of all imports.
        from spark.source.source import ScyllaCdcSource

        session.dataSource.register(ScyllaCdcSource)
        return session

    def wait(self, timeout_s: float) -> None:
        """Let the JVM end, after the session; as `SparkJvm.wait`."""
        self._jvm.wait(timeout_s)

    def give_up(self) -> None:
        """End the JVM: the session is not wanted."""
        with log_setup.silence_library("py4j"):
            self._jvm.end()
            if self._context is not None:
                # Who may be talking to the JVM finds it gone, which is no news.
                futures.wait([self._context], _GIVE_UP_S)

    def _make_context_ahead(self, made: Future[SparkContext]) -> None:
        try:
            made.set_result(self._make_context())
        except BaseException as error:  # noqa: BLE001  # handed over whole to the thread that asks
            made.set_exception(error)

    def _make_context(self) -> SparkContext:
        conf = SparkConf(loadDefaults=False).setAll(list(self._properties.items()))
        try:
            context = SparkContext(conf=conf, gateway=self._jvm.connect())
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise StartupError(_why_no_jvm()) from error
        _quieten(context)
        return context


def build_session(name: str, settings: SparkSettings) -> SparkSession:
    """A session with the source registered; errors as `ComingSession`."""
    return ComingSession(name, settings).result()


def _properties(name: str, settings: SparkSettings) -> dict[str, str]:
    given = {key: _text(value) for key, value in settings.properties.items()}
    options = [*java_options(given.get("spark.driver.extraJavaOptions", "")), *_without_traces()]
    properties = dict(_DEFAULTS) | {"spark.driver.defaultJavaOptions": shlex.join(options)}
    if settings.master.startswith("local"):
        properties |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    handed_on = os.environ.get(log_setup.VARIABLE)
    if handed_on is not None:
        properties[f"spark.executorEnv.{log_setup.VARIABLE}"] = handed_on
    properties |= given
    return properties | {"spark.app.name": name, "spark.master": master_of(settings)}


def _without_traces() -> list[str]:
    """Have Spark's JVM leave out stack traces, except at level debug and where somebody else says how it logs."""
    if os.environ.get(log_setup.VARIABLE, "").startswith("debug") or any(map(os.environ.get, _LOGS_ELSEWHERE)):
        return []
    return [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"]


def _of_queries(settings: SparkSettings) -> Mapping[str, str]:
    """What holds for the session's queries, and not for all that Spark does with Hadoop's file systems."""
    given = settings.properties
    own_way = _MANAGER in given or "spark.hadoop.fs.file.impl" in given
    return _WITHOUT_FORKS if _is_checkpoint_local(settings) and not own_way else {}


def _is_checkpoint_local(settings: SparkSettings) -> bool:
    """Whether it is known to lie among this machine's files: a path alone may be one of Hadoop's default store."""
    if settings.checkpoint.startswith("file:"):
        return True
    elsewhere = "spark.hadoop.fs.defaultFS" in settings.properties or any(map(os.environ.get, _HADOOP_ELSEWHERE))
    return _SCHEME.match(settings.checkpoint) is None and not elsewhere


def _why_no_jvm() -> str:
    try:
        java = find_java()
    except StartupError as error:
        return f"Spark's JVM does not start. {error}"
    return (
        f"Spark's JVM ({java.command}, Java {java.major}) does not start; what it says stands above. It is started "
        "with spark.properties, such as spark.driver.memory and spark.driver.extraJavaOptions"
    )


def _quieten(context: SparkContext) -> None:
    """Have the end of the JVM's connection for accumulators, of which we have none, not print a traceback."""

    def ended(_request: object, _address: object) -> None:
        _log.debug("Spark's JVM has closed its connection for accumulators", exc_info=True)

    context._accumulatorServer.handle_error = ended  # type: ignore[method-assign,assignment]  # noqa: SLF001


def activate(session: SparkSession) -> None:
    """Make the session this thread's own: Spark looks for the registered sources and sinks in the thread's session."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # PySpark does so itself, but in its first thread alone
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _outlive_sigterm(session: SparkSession) -> None:
    """Have the JVM ignore SIGTERM: whoever stops the job by a signal to all of its processes means the job.

    systemd does so, and `timeout`. The JVM must not shut down under the job that is about to stop it; it ends with
    the job, however that ends, because its standard input does.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # there is no other way to the JVM
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
