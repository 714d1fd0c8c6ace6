from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from sandbox.demo.child_process import ChildProcess, ProcessMeter
from sandbox.demo.errors import DemoError
from sandbox.stack.processes import wait_until

PARENT = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({status}))
# A child that changes its process group, as PySpark's worker daemon does, and ignores SIGTERM.
child = "import os, signal, time; os.setpgid(0, 0); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
started = subprocess.Popen([sys.executable, "-c", child])
print("ready", flush=True)
print("something is odd", file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that starts a child of its own; see `write`."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write(tmp_path)
    return "parent"


def write(folder: Path, status: int = 0) -> None:
    (folder / "parent.py").write_text(PARENT.format(status=status), encoding="utf-8")


def start(module: str, folder: Path) -> ChildProcess:
    child = ChildProcess("The program", module, [], log=folder / "log", output=folder / "output")
    assert wait_until(lambda: "ready" in (folder / "output").read_text(encoding="utf-8"), 20)
    return child


def alive(members: list[psutil.Process]) -> list[psutil.Process]:
    return [member for member in members if member.is_running() and member.status() != psutil.STATUS_ZOMBIE]


def test_nothing_outlives_the_block(module: str, tmp_path: Path) -> None:
    """Descendants end too, in any process group and however the block ends."""
    members: list[psutil.Process] = []

    def interrupted() -> None:
        with start(module, tmp_path) as child:
            members.extend(child.members())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(members) == 2
    assert alive(members) == []


def test_a_polite_stop(module: str, tmp_path: Path) -> None:
    """SIGTERM, then the exit status; what the program left behind ends with the block."""
    with start(module, tmp_path) as child:
        members = child.members()
        child.require_running()
        assert child.stop(20) == 0
        assert child.status == 0
        assert len(alive(members)) == 1
    assert alive(members) == []


def test_a_bad_exit_status_comes_with_the_log(module: str, tmp_path: Path) -> None:
    """The message names the status and the log, and shows its end."""
    write(tmp_path, status=3)
    with start(module, tmp_path) as child:
        assert wait_until(lambda: "odd" in (tmp_path / "log").read_text(encoding="utf-8"), 20)
        with pytest.raises(DemoError, match="status 3 instead of 0") as failure:
            child.stop(20)
        assert "something is odd" in str(failure.value)
        assert str(tmp_path / "log") in str(failure.value)
        with pytest.raises(DemoError, match="ended with status 3"):
            child.require_running()


def test_a_program_that_does_not_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given up after the time, and ended by force at the end of the block."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    program = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)"
    (tmp_path / "stubborn.py").write_text(f"{program}; time.sleep(60)", encoding="utf-8")
    with start("stubborn", tmp_path) as child:
        with pytest.raises(DemoError, match="did not stop within 0 s"):
            child.stop(0.2)
        assert child.status is None
    assert not psutil.pid_exists(child.pid)


def test_a_child_has_a_session_of_its_own(module: str, tmp_path: Path) -> None:
    """Ctrl-C at the terminal does not reach it; who started it decides."""
    with start(module, tmp_path) as child:
        assert os.getsid(child.pid) == child.pid != os.getsid(0)


def test_the_meter_counts_processes_that_have_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU time of a descendant stays in the sum, and memory is the most at a time."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    busy = "import time; end = time.process_time() + 0.6\nwhile time.process_time() < end: pass\ntime.sleep(1)"
    program = (
        f"import subprocess, sys, time\nprint('ready', flush=True)\nsubprocess.run([sys.executable, '-c', {busy!r}])"
    )
    (tmp_path / "busy.py").write_text(f"{program}\ntime.sleep(60)", encoding="utf-8")
    with start("busy", tmp_path) as child:
        meter = ProcessMeter(child, every_s=0.0)

        def once_more() -> bool:
            meter.sample()
            return meter.cpu_s > 0.3

        assert wait_until(once_more, 30)
        assert wait_until(lambda: len(child.members()) == 1, 30)
        meter.sample()
        assert meter.cpu_s > 0.3
        assert meter.peak_memory_bytes > 5 << 20
