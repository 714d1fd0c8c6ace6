"""The job from its command line to its exit status: one Spark application with a query for each captured table.

Exit statuses: 0 stopped as asked; 1 failed while running; 2 refused before anything was written.
"""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


def _log_unexpected(error: Exception) -> int:
    _log.error("%s: %s (please report this; --log-level debug shows where it comes from)", type(error).__name__, error)
    _log.debug("where it comes from:", exc_info=error)
    return EXIT_FAILED


def _end_before_start(signum: int, _frame: FrameType | None) -> None:
    _log.info("%s: stopped before anything was started", signal.Signals(signum).name)
    raise SystemExit(0)


def _check_servers(config: BridgeConfig) -> None:
    # The JVM starts while Python imports this.
    from bridge.cli.preflight import checks

    checks.check_all(config, report=_log.info, warn=_log.warning, resuming=True)


@dataclass(frozen=True, slots=True)
class StartSteps:
    """The steps of a start that reach beyond this process.

    Attributes:
        start_fork_server: starts the fork server; raises OSError if this machine can't run it.
        start_session: starts Spark's JVM in the background.
        check_servers: checks servers and tables; raises BridgeError if the job must not begin.
    """

    start_fork_server: Callable[[], ForkServer] = ForkServer
    start_session: Callable[..., StartingSession] = StartingSession
    check_servers: Callable[[BridgeConfig], None] = _check_servers


def main(argv: Sequence[str] | None = None, *, steps: StartSteps | None = None) -> int:
    """Run the command line of `python -m spark.job`; return the exit status.

    Args:
        argv: the arguments; None for those of this process.
        steps: of the start; None for those of a real job.
    """
    steps = steps or StartSteps()
    parser = argparse.ArgumentParser(prog="python -m spark.job", description="Publish CDC changes to Kafka.")
    parser.add_argument("-c", "--config", required=True, help="the configuration file")
    parser.add_argument("--once", action="store_true", help="publish what can be read now, then stop")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    log_setup.replace_closed_streams()
    arguments = parser.parse_args(argv)
    log_setup.setup(arguments.log_level)
    # A container's first process ignores signals without a handler, and a start may wait long for its servers.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_before_start)
    try:
        config = loader.load(arguments.config)
        log_setup.setup(arguments.log_level, form=config.logging.format)
        log_setup.export_settings(arguments.log_level, config.logging.format)
        with _open_fork_server(config.spark, steps) as python:
            return _start(config, python, steps, once=arguments.once)
    except ConfigError as error:
        for problem in error.problems:
            _log.error("%s", problem)
        return EXIT_REFUSED
    except BridgeError as error:
        for line in str(error).splitlines():
            _log.error("%s", line)
        return EXIT_REFUSED
    except Exception as error:  # noqa: BLE001  # the outermost handler, for a person to read
        return _log_unexpected(error)


@contextmanager
def _open_fork_server(settings: SparkSettings, steps: StartSteps) -> Iterator[str | None]:
    """Yield the command that Spark runs as its Python; None for the interpreter itself."""
    if not settings.fast_start:
        yield None
        return
    try:
        server = steps.start_fork_server()
    except OSError as error:
        # The fork server only saves time.
        _log.info("Spark's Python processes start cold (%s); TMPDIR names another folder", error)
        yield None
        return
    try:
        yield server.python
    finally:
        server.close()


def _start(config: BridgeConfig, python: str | None, steps: StartSteps, *, once: bool) -> int:
    """Check the servers while Spark comes up, then run the job; return its exit status.

    Raises:
        BridgeError: a check has failed; nothing was begun.
    """
    session = steps.start_session(config.name, config.spark, python=python)
    try:
        # The JVM starts while Python imports this.
        from spark.job import supervisor

        steps.check_servers(config)
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
    """Have SIGTERM and SIGINT set an event. Call this in the main thread.

    Python runs a signal handler in the main thread, which may hold the event's own lock at that moment: a handler that
    sets the event would wait for itself for ever. So the handler only puts the signal into a `SimpleQueue`, which is
    safe anywhere, and another thread sets the event.

    Args:
        stop: the event; the main thread may be waiting for it.
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
