"""What becomes of a worker process of PySpark's when Spark hangs up: it ends, and says nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

Worker: TypeAlias = Callable[..., int]
"""PySpark's loop of one worker process: a socket and whether it is trusted -> an exit code."""

PYSPARKS_DAEMON: Final = "pyspark.daemon"
_GONE: Final = 1


def ending_with_spark(worker: Worker) -> Worker:
    """The same, for which it is no error that Spark closes the connection.

    It does so when a query is stopped in the midst of a task, and when a worker was idle for long. PySpark would print
    a traceback of the answer that nobody waits for.
    """

    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except ConnectionError:
            return _GONE

    return run


def let_go_quietly() -> None:
    """Have a worker of PySpark's own daemon end without a traceback when Spark lets go of it, which it does when idle.

    Beside a driver whose executors are elsewhere Spark starts that daemon for what plans and not for what works. By the
    time that ours is imported there, the worker is one already.
    """
    daemon: Any = sys.modules["__main__"]
    if getattr(daemon.__spec__, "name", None) == PYSPARKS_DAEMON and daemon.worker.__module__ == daemon.__name__:
        daemon.worker = ending_with_spark(daemon.worker)
