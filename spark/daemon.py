"""What an executor starts as its Python daemon (`spark.python.daemon.module`): PySpark's own, which imports first.

So that is done once for all of its workers. Beside the job even the daemon starts warm (`spark.nursery`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from spark import nursery

Worker: TypeAlias = Callable[..., int]
"""PySpark's loop of one worker process: a socket and whether it is trusted -> an exit code."""

_GONE: Final = 1
_PYSPARKS: Final = "pyspark.daemon"


def main() -> None:
    """Be PySpark's daemon."""
    os.environ.update(nursery.WITHOUT_THREADS)
    if not nursery.preload():
        # Threads would be missing in forks: PySpark's own way, by which each worker imports for itself.
        os.execv(sys.executable, [sys.executable, "-m", _PYSPARKS, *sys.argv[1:]])  # noqa: S606
    daemon: Any = import_module(_PYSPARKS)
    daemon.worker = ending_with_spark(daemon.worker)
    daemon.manager()


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
    if getattr(daemon.__spec__, "name", None) == _PYSPARKS and daemon.worker.__module__ == daemon.__name__:
        daemon.worker = ending_with_spark(daemon.worker)


if __name__ == "__main__":
    main()
