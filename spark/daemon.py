"""What Spark starts as its Python daemon (`spark.python.daemon.module`): PySpark's own, which imports before it forks.

Beside the job the work goes to a fork of its warm process (`spark.nursery`); an executor elsewhere has none, and
imports here, once for all of its workers.
"""

from __future__ import annotations

import os
import sys

from spark import nursery


def main() -> int:
    """Be a daemon, or stand for one; gives the exit status."""
    address = os.environ.get(nursery.VARIABLE)
    if address is not None:
        try:
            return nursery.ask(address)
        except OSError as error:
            sys.stderr.write(f"no warm Python process ({error}); starting a cold one\n")
    os.environ.update(nursery.WITHOUT_THREADS)
    if not nursery.preload():
        # Threads would be missing in forks: PySpark's own way, by which each worker imports for itself.
        os.execv(sys.executable, [sys.executable, "-m", "pyspark.daemon", *sys.argv[1:]])  # noqa: S606
    nursery.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
