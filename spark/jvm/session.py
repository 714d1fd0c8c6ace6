"""Starts the Spark session of a job while the job checks its servers."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from concurrent.futures import Future
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from bridge.config.document import SparkSettings
from bridge.config.process import AUTHENTICATE, COMMON_FOLDER
from bridge.errors import StartupError
from bridge.runtime import log_setup
from bridge.runtime.background import run_interruptibly
from bridge.runtime.java import find_java
from spark.jvm.launcher import DirectJvm, DriverJvm, ScriptedJvm
from spark.jvm.settings import application_properties, query_properties

_log = logging.getLogger(__name__)

_GIVE_UP_S: Final = 5.0
_SECRET: Final = f"{AUTHENTICATE}.secret"

StartJvm = Callable[[Mapping[str, str]], DriverJvm]
"""Starts a driver's JVM with the application's properties."""


class StartingSession:
    """A Spark session that starts in the background.

    With a local master all of Spark starts at once. With another master, Spark asks for executors when the session is
    first wanted.
    """

    def __init__(
        self, name: str, settings: SparkSettings, *, python: str | None = None, start_jvm: StartJvm | None = None
    ) -> None:
        """Start the JVM.

        Args:
            name: the job's.
            settings: of Spark.
            python: the command by which Spark starts Python processes on this machine; None for this very interpreter.
            start_jvm: starts the JVM; None for the way that `settings` name.

        Raises:
            StartupError: there is no Java, or it can't be started.
        """
        is_local = settings.master.startswith("local")
        self.is_warm = python is not None and is_local
        """Whether Spark uses `python`. It does not with executors elsewhere, where that path does not exist."""
        # If this is unset, PySpark chooses another interpreter and fails with no more than "failed to connect back".
        command = python if python is not None and is_local else sys.executable
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = command
        self._properties = application_properties(name, settings)
        # Spark makes no secret for executors of its own on this machine. Through the gateway, it is in no command line.
        self._secret = {_SECRET: secrets.token_hex(32)} if settings.master.startswith("local-cluster") else {}
        self._query_properties = query_properties(settings)
        self._jvm = (start_jvm or (DirectJvm if settings.fast_start else ScriptedJvm))(self._properties)
        self._context: Future[SparkContext] | None = None
        if is_local:
            self._context = Future()
            threading.Thread(target=self._fill_context, args=[self._context], daemon=True).start()

    def result(self) -> SparkSession:
        """Return the session, with the source registered; waits until Spark is up.

        Raises:
            StartupError: Spark's JVM does not start.
            PySparkException, Py4JError: Spark fails to start.
        """
        # Not in the main thread: there Spark would handle Ctrl-C, which is the job's to handle.
        context = run_interruptibly(self._make_context) if self._context is None else self._context.result()
        # Each thread of the JVM has a session of its own, and Spark uses the one that was made in the thread.
        session = self._make_session(context, {**self._properties, **self._query_properties})
        _ignore_sigterm(session)
        # The JVM's start does not need this import, which takes the longest of all.
        from spark.source.source import ScyllaCdcSource

        session.dataSource.register(ScyllaCdcSource)
        return session

    def wait(self, timeout_s: float) -> None:
        """Wait for the JVM to end, after the session has stopped.

        Raises:
            subprocess.TimeoutExpired: it has not ended within `timeout_s`.
        """
        self._jvm.wait(timeout_s)

    def give_up(self) -> None:
        """End the JVM; the session is not wanted any more."""
        with log_setup.silence_library("py4j"):
            self._jvm.end()
            if self._context is not None:
                # The thread that talks to the JVM loses its connection, which is no news.
                futures.wait([self._context], _GIVE_UP_S)

    def _fill_context(self, context: Future[SparkContext]) -> None:
        try:
            context.set_result(self._make_context())
        except BaseException as error:  # noqa: BLE001  # `result` raises it in the thread that calls
            context.set_exception(error)

    def _make_context(self) -> SparkContext:
        conf = SparkConf(loadDefaults=False).setAll([*self._properties.items(), *self._secret.items()])
        try:
            context = SparkContext(conf=conf, gateway=self._jvm.connect())
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            raise StartupError(_explain_exit()) from error
        except Py4JJavaError as error:
            if _SECRET not in str(error):
                raise
            raise StartupError(
                f"{AUTHENTICATE} is on, and a standalone cluster needs one secret for all: give {COMMON_FOLDER} "
                "(docs/security.md)"
            ) from error
        _silence_accumulator_server(context)
        return context

    def _make_session(self, context: SparkContext, options: dict[str, str]) -> SparkSession:
        return SparkSession(context, options=options)


def activate(session: SparkSession) -> None:
    """Make the session this thread's own: Spark looks for registered sources in the session of the thread."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # PySpark does so itself, but in its first thread alone
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def _explain_exit() -> str:
    try:
        java = find_java()
    except StartupError as error:
        return f"Spark's JVM does not start. {error}"
    return (
        f"Spark's JVM ({java.command}, Java {java.major}) does not start; its own message stands above. It is started "
        "with spark.properties, such as spark.driver.memory and spark.driver.extraJavaOptions"
    )


def _silence_accumulator_server(context: SparkContext) -> None:
    """Log at level debug that the JVM closes the connection for accumulators; the bridge has no accumulators."""

    def log_end(_request: object, _address: object) -> None:
        _log.debug("Spark's JVM has closed its connection for accumulators", exc_info=True)

    context._accumulatorServer.handle_error = log_end  # type: ignore[method-assign,assignment]  # noqa: SLF001


def _ignore_sigterm(session: SparkSession) -> None:
    """Have the JVM ignore SIGTERM, which systemd and `timeout` send to all processes of a job in order to stop the job.

    The JVM must not shut down before the job has stopped its queries. It ends when its standard input closes, so it
    ends with the job in any case.
    """
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # there is no other way to the JVM
    jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), jvm.sun.misc.SignalHandler.SIG_IGN)
