"""Runs the job: `python -m spark.job -c bridge.yaml` (what `scylla-cdc-bridge run` becomes).

Its imports take a second, so that signals are looked after before all others: this module itself imports next to
nothing. Exit statuses are those of `spark.job.application`.
"""

from __future__ import annotations

import logging
import os
import sys

from bridge.runtime import signals


def main() -> int:
    """The job, from its first instruction on; gives the exit status."""
    signals.terminate_immediately()
    from spark.job import application

    return application.main()


if __name__ == "__main__":
    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    # Not sys.exit: the gateway's threads may wait for a JVM that is gone.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
