"""What an executor starts as its Python daemon (`spark.python.daemon.module`): PySpark's own, which imports first.

So that is done once for all of its workers. Beside the job even the daemon starts warm (`spark.workers.fork_server`).
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from spark.workers import fork_server
from spark.workers.disconnect import PYSPARKS_DAEMON, ending_with_spark


def main() -> None:
    """Be PySpark's daemon."""
    os.environ.update(fork_server.WITHOUT_THREADS)
    if not fork_server.preload():
        # Threads would be missing in forks: PySpark's own way, by which each worker imports for itself.
        os.execv(sys.executable, [sys.executable, "-m", PYSPARKS_DAEMON, *sys.argv[1:]])  # noqa: S606
    daemon: Any = import_module(PYSPARKS_DAEMON)
    daemon.worker = ending_with_spark(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
