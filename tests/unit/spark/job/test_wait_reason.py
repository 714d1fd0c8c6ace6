"""What a query that hangs waits for, as the log names it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.adapters.task_processes import TaskProcess
from spark.job.wait_reason import describe_wait

RUN = "6f1d"
QUERY: Any = SimpleNamespace(runId=RUN, status={"message": "Processing new data"})
PROCESSES = [TaskProcess(0, 4711, 1), TaskProcess(3, 4712, 1)]
STREAMING = "org.apache.spark.sql.execution.streaming."


class Thread:
    """A thread of the JVM."""

    def __init__(self, name: str) -> None:
        self._name = name

    def getName(self) -> str:  # noqa: N802  # Java's name
        return self._name


def session_of(stacks: dict[str, list[str]]) -> Any:
    """A session whose JVM has threads with these stacks, by name."""
    frames = {
        Thread(name): [SimpleNamespace(getClassName=lambda of=of: of) for of in stack] for name, stack in stacks.items()
    }
    threads = SimpleNamespace(getAllStackTraces=lambda: frames)
    java = SimpleNamespace(lang=SimpleNamespace(Thread=threads))
    return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=SimpleNamespace(java=java)))


@pytest.mark.parametrize(
    ("stack", "processes", "expected"),
    [
        (
            ["sun.misc.Unsafe", "org.apache.spark.scheduler.DAGScheduler"],
            PROCESSES,
            "lane 0 in process 4711, lane 3 in",
        ),
        (["sun.misc.Unsafe", "org.apache.spark.scheduler.DAGScheduler"], [], "while it waits for its tasks"),
        (["java.io.File", f"{STREAMING}checkpointing.OffsetSeqLog"], PROCESSES, "while it waits for the checkpoint's"),
        (["java.nio.Net", f"{STREAMING}PythonStreamingSourceRunner"], [], "while it waits for the planner's process"),
        (["java.lang.Thread"], PROCESSES, "while it waits for lane 0 in process 4711"),
        (["java.lang.Thread"], [], 'while Spark says "Processing new data"'),
    ],
)
def test_wait_is_named(stack: list[str], processes: list[TaskProcess], expected: str) -> None:
    """By the stack of the query's own thread, and by the processes that work on its lanes."""
    others = {"stream execution thread for ks.u [id = 2, runId = 77aa]": ["CommitLog"], f"task of {RUN}": ["CommitLog"]}
    session = session_of({**others, f"stream execution thread for ks.t [id = 1, runId = {RUN}]": stack})
    assert expected in describe_wait(session, QUERY, processes)


def test_wait_without_a_thread_is_named_by_spark() -> None:
    """The query's thread may have ended just now."""
    assert describe_wait(session_of({"main": ["DAGScheduler"]}), QUERY, []) == 'while Spark says "Processing new data"'
