"""Ends a worker process of PySpark's without a traceback when Spark closes the connection."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeAlias

Worker: TypeAlias = Callable[..., int]
"""PySpark's loop of one worker process: a socket and whether it is trusted -> an exit code."""

PYSPARK_DAEMON: Final = "pyspark.daemon"
_DISCONNECTED: Final = 1
"""The exit code of a worker whose connection Spark has closed."""


def tolerating_disconnect(worker: Worker) -> Worker:
    """Return a worker loop that ends without an error when Spark closes the connection.

    Spark closes it when a query stops during a task, and when a worker was idle for long. PySpark's own loop would
    print a traceback.
    """

    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except ConnectionError:
            return _DISCONNECTED

    return run


def tolerate_disconnect_here(main_module: ModuleType | None = None) -> None:
    """Do that in this process, if it is a worker of PySpark's own daemon; call it as early as possible.

    When the executors are on other machines, Spark starts planners on the driver's machine by PySpark's daemon. The
    process is a worker already when it imports the bridge.

    Args:
        main_module: the module that the process runs; None for `__main__`.
    """
    daemon: Any = sys.modules["__main__"] if main_module is None else main_module
    if getattr(daemon.__spec__, "name", None) == PYSPARK_DAEMON and daemon.worker.__module__ == daemon.__name__:
        daemon.worker = tolerating_disconnect(daemon.worker)
