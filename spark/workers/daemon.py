"""The Python daemon of an executor (`spark.python.daemon.module`): PySpark's own, after it has imported everything.

So the daemon imports once for all of its workers. On the job's machine, the fork server starts the daemon itself with
everything imported (`spark.workers.fork_server`).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from spark.workers import fork_server
from spark.workers.disconnect import PYSPARK_DAEMON, tolerating_disconnect


def main() -> None:
    """Run PySpark's daemon in this process."""
    os.environ.update(fork_server.WITHOUT_THREADS)
    if not fork_server.preload():
        # Forks would lack the threads. PySpark's own daemon then has each worker import for itself.
        os.execv(sys.executable, [sys.executable, "-m", PYSPARK_DAEMON, *sys.argv[1:]])  # noqa: S606
    daemon: Any = import_module(PYSPARK_DAEMON)
    daemon.worker = tolerating_disconnect(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
