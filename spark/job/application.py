"""The job: every captured table's query in one Spark application, from configuration to clean stop.

`spark.job` runs it. Exit statuses: 0 stopped as asked; 1 failed while running; 2 refused before anything was written.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Final

from bridge.config.document import BridgeConfig, SparkSettings
from bridge.config.file import loader
from bridge.errors import BridgeError, ConfigError, StartupError
from bridge.runtime import log_setup
from spark.jvm.session import StartingSession
from spark.workers.fork_server import ForkServer

_log = logging.getLogger(__name__)

EXIT_FAILED: Final = 1
EXIT_REFUSED: Final = 2


def _unexpected(error: Exception) -> int:
    _log.error("%s: %s (please report this; --log-level debug shows where it comes from)", type(error).__name__, error)
    _log.debug("where it comes from:", exc_info=error)
    return EXIT_FAILED


def _end_before_start(signum: int, _frame: FrameType | None) -> None:
    _log.info("%s: stopped before anything was started", signal.Signals(signum).name)
    raise SystemExit(0)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of `python -m spark.job`."""
    parser = argparse.ArgumentParser(prog="python -m spark.job", description="Publish CDC changes to Kafka.")
    parser.add_argument("-c", "--config", required=True, help="the configuration file")
    parser.add_argument("--once", action="store_true", help="publish what can be read now, then stop")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    log_setup.replace_closed_streams()
    arguments = parser.parse_args(argv)
    log_setup.setup(arguments.log_level)
    # A container's first process ignores signals that it does not handle, and a start may wait long for its servers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_before_start)
    try:
        config = loader.load(arguments.config)
        log_setup.setup(arguments.log_level, form=config.logging.format)
        log_setup.export_settings(arguments.log_level, config.logging.format)
        with _fork_server(config.spark) as python:
            return _start(config, python, once=arguments.once)
    except ConfigError as error:
        for problem in error.problems:
            _log.error("%s", problem)
        return EXIT_REFUSED
    except BridgeError as error:
        for line in str(error).splitlines():
            _log.error("%s", line)
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001  # the one place where a person, not a program, gets the error
        return _unexpected(error)


@contextmanager
def _fork_server(settings: SparkSettings) -> Iterator[str | None]:
    """Give the command by which Spark starts Python processes; None for the interpreter itself."""
    if not settings.fast_start:
        yield None
        return
    try:
        server = ForkServer()
    except OSError as error:
        # The fork server only saves time.
        _log.info("Spark's Python processes start cold (%s); TMPDIR names another folder", error)
        yield None
        return
    try:
        yield server.python
    finally:
        server.close()


def _start(config: BridgeConfig, python: str | None, *, once: bool) -> int:
    """Look at everything while Spark comes up, then run; gives the exit status.

    Raises:
        BridgeError: something is not as it must be, and nothing was begun.
    """
    session = StartingSession(config.name, config.spark, python=python)
    try:
        # Not before: the JVM starts while all this is imported.
        from bridge.cli.preflight import checks
        from spark.job import supervisor

        checks.check_all(config, report=_log.info, warn=_log.warning, resuming=True)
    except BaseException:
        session.give_up()
        raise
    stop = threading.Event()
    stop_on_signals(stop)
    try:
        return supervisor.run(config, session, stop, once=once)
    except StartupError:
        session.give_up()
        raise


def stop_on_signals(stop: threading.Event) -> None:
    """Have SIGTERM and SIGINT set an event that the main thread may be waiting for; call in that thread.

    A handler runs there, wherever that thread is: inside of the event's own lock it would wait for itself for ever. A
    simple queue can be put to from everywhere, and another thread does the rest.
    """
    asked: SimpleQueue[int] = SimpleQueue()

    def pass_on() -> None:
        while True:
            number = asked.get()
            _log.info("%s: stopping", signal.Signals(number).name)
            stop.set()

    def ask(signum: int, _frame: FrameType | None) -> None:
        asked.put(signum)

    threading.Thread(target=pass_on, name="signals", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
