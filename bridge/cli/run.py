"""The command `run`: replaces this process by the job."""

from __future__ import annotations

import argparse
import os
import sys

from bridge.config.file import loader
from bridge.runtime import signals


def run(arguments: argparse.Namespace) -> int:
    """Check the file, then replace this process by the job, so that signals reach the job itself.

    Raises:
        ConfigError: the file has problems; Spark is not started.
    """
    loader.load(arguments.config)
    command = [sys.executable, "-m", "spark.job", "-c", arguments.config, "--log-level", arguments.log_level]
    sys.stdout.flush()
    with signals.blocked():
        os.execv(sys.executable, [*command, *(["--once"] if arguments.once else [])])  # noqa: S606  # our own interpreter
    raise AssertionError("execv came back")
