"""`scylla-cdc-bridge run`: the command line becomes the job."""

from __future__ import annotations

import argparse
import os
import sys

from bridge.config.file import loader
from bridge.runtime import signals


def run(arguments: argparse.Namespace) -> int:
    """Become the job. A file that is wrong is refused here already, without starting Spark.

    The process is replaced, not a child started, so that the Python job itself gets the signals.
    """
    loader.load(arguments.config)
    command = [sys.executable, "-m", "spark.job", "-c", arguments.config, "--log-level", arguments.log_level]
    sys.stdout.flush()
    with signals.blocked():
        os.execv(sys.executable, [*command, *(["--once"] if arguments.once else [])])  # noqa: S606  # our own interpreter
    raise AssertionError("execv came back")
