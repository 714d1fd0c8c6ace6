"""What this Python process of Spark's keeps from task to task."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark import SparkFiles, TaskContext

from bridge.engine.ports import RunningTask
from bridge.engine.process.process_cache import ProcessCache


def running_task() -> RunningTask | None:
    """Return the task that this process runs; None in the driver's and in planners' processes."""
    context = TaskContext.get()
    if context is None:
        return None
    return RunningTask(context.attemptNumber(), Path(SparkFiles.getRootDirectory()))


# PySpark reuses its worker processes, and the globals of an importable module stay in them.
CACHE: Final = ProcessCache(running_task)
"""The cache of this process."""
