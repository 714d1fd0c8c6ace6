"""Finds out what a query that hangs waits for, from its tasks' processes and the stack of its thread in the JVM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.adapters.task_processes import TaskProcess

_PLACES: Final = (
    (("CheckpointFileManager", "HDFSMetadataLog", "OffsetSeqLog", "CommitLog"), "the checkpoint's files"),
    (("PythonStreamingSourceRunner", "PythonMicroBatchStream", "PythonPlannerRunner"), "the planner's process"),
    (("DAGScheduler",), "its tasks"),
)
"""Parts of names of Spark's classes, and what a thread inside of them waits for. The first match counts."""


def describe_wait(session: SparkSession, query: StreamingQuery, processes: Sequence[TaskProcess]) -> str:
    """Return what a query waits for, as `while it waits for ...`.

    Args:
        session: of the query.
        query: the query.
        processes: those of this machine that work on its lanes.
    """
    place = _place_of(_stack_of(session, query))
    if place in ("its tasks", None) and processes:
        lanes = ", ".join(f"lane {one.lane} in process {one.pid}" for one in processes)
        return f"while it waits for {lanes}"
    if place is not None:
        return f"while it waits for {place}"
    return f'while Spark says "{query.status["message"]}"'


def _stack_of(session: SparkSession, query: StreamingQuery) -> Sequence[str]:
    """Return the classes in the stack of a query's thread, innermost first; empty when there is no such thread."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001  # PySpark has no way to the JVM's threads
    stacks = jvm.java.lang.Thread.getAllStackTraces()
    run_id = str(query.runId)
    for thread in stacks:
        if run_id in thread.getName() and thread.getName().startswith("stream execution"):
            return [str(frame.getClassName()) for frame in stacks[thread]]
    return []


def _place_of(stack: Sequence[str]) -> str | None:
    for names, place in _PLACES:
        if any(name in frame for name in names for frame in stack):
            return place
    return None
