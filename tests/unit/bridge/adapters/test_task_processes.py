"""How a task's process announces itself to the job, and how the job ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.adapters.planner_signals import SignalFolder
from bridge.adapters.task_processes import TaskProcess, TaskProcesses

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the kernel has no /proc")


@pytest.fixture
def path() -> Iterator[str]:
    folder = SignalFolder()
    yield folder.path
    folder.close()


def test_task_is_found_while_it_runs(path: str) -> None:
    """With its lane; not before, not after, and not after an exception."""
    processes = TaskProcesses(path)
    assert processes.find() == []
    with processes.announce(3):
        (found,) = processes.find()
        assert (found.lane, found.pid) == (3, os.getpid())
    assert processes.find() == []
    with pytest.raises(KeyError), processes.announce(3):
        raise KeyError
    assert processes.find() == []


@pytest.mark.parametrize("path", [None, "/no/such/folder/changes-came"], ids=["no job", "another machine"])
def test_task_elsewhere_is_not_known(path: str | None) -> None:
    """A task without a job, or on a machine without the job's folder, works all the same."""
    with TaskProcesses(path).announce(0):
        assert TaskProcesses(path).find() == []


def test_stopped_process_is_ended(path: str) -> None:
    """SIGKILL reaches a process that answers nothing else; afterwards it is not found any more, even as a zombie."""
    code = (
        "import sys, os, signal\nfrom bridge.adapters.task_processes import TaskProcesses\n"
        f"with TaskProcesses({path!r}).announce(1):\n    print('on', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        (found,) = TaskProcesses(path).find()
        assert (found.lane, found.pid) == (1, process.pid)
        found.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert TaskProcesses(path).find() == []


def test_id_that_is_used_again_is_not_ended(path: str) -> None:
    """A file that a killed task has left behind names a process of that id and that start, and no other."""
    (Path(path).parent / f"task-{os.getpid()}").write_text("0 1")
    (Path(path).parent / "task-1").write_text("torn")
    assert TaskProcesses(path).find() == []
    TaskProcess(0, os.getpid(), 1).kill()
