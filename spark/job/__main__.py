"""Runs the job: `python -m spark.job -c bridge.yaml`. `scylla-cdc-bridge run` replaces its process by this one.

The job's imports take a second. This module imports next to nothing before it handles signals, so a signal ends the
process during that second too. Exit statuses are those of `spark.job.application`.
"""

from __future__ import annotations

import logging
import os
import sys

from bridge.runtime import signals


def main() -> int:
    """Run the job; return its exit status."""
    signals.terminate_immediately()
    from spark.job import application

    return application.main()


if __name__ == "__main__":
    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    # Not sys.exit: Py4J's threads may wait for a JVM that is gone.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
