"""No CPU second of a process tree is lost, whoever ends first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from bench.processes import cpu_time as processes
from bench.processes.bridge_run import Measured, environment
from bench.processes.cpu_time import CpuTotal, ProcessStat, RoleTimes, ThreadTimes
from bench.processes.watch import MACHINE, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_BURN = """
    import os, signal, time

    def burn(seconds):
        while time.process_time() < seconds:
            pass
"""


def _stat(pid: int, parent: int, own_s: float, inherited_s: float = 0.0) -> ProcessStat:
    return ProcessStat(pid, parent, 1000 + pid, own_s, inherited_s, 0)


def _metered(script: str, folder: Path) -> Measured:
    report = folder / "report.json"
    program = textwrap.dedent(_BURN) + textwrap.dedent(script)
    subprocess.run(
        [sys.executable, "-m", "bench.processes.meter", str(report), "--", sys.executable, "-c", program],
        check=True, timeout=60, env=environment(),
    )  # fmt: skip
    return Measured.read(report)


def test_a_command_with_spaces_and_parentheses_does_not_shift_the_fields() -> None:
    """Fields are counted from behind the command's last parenthesis."""
    fields = ["0"] * 50
    fields[0], fields[1] = "S", "42"
    fields[11:15] = ["100", "50", "30", "20"]
    fields[19], fields[21] = "777", "3"
    found = processes.parse_stat(f"7 (a) b (c) {' '.join(fields)}")
    ticks = os.sysconf("SC_CLK_TCK")
    assert found == ProcessStat(7, 42, 777, 150 / ticks, 50 / ticks, 3 * os.sysconf("SC_PAGE_SIZE"))


def test_this_very_process_is_seen_below_its_parent() -> None:
    """What /proc says about a running process is found in its parent's tree."""
    (found,) = [one for one in processes.descendants(os.getppid(), processes.everyone()) if one.pid == os.getpid()]
    assert found.rss_bytes > 0
    assert processes.pss_bytes(found) > 0


def test_the_tree_is_all_levels_without_the_root() -> None:
    """Children's children belong to it, other processes don't."""
    found = processes.descendants(1, [_stat(1, 0, 0), _stat(2, 1, 0), _stat(3, 2, 0), _stat(9, 8, 0)])
    assert [one.pid for one in found] == [2, 3]


def test_what_a_parent_inherits_is_counted_once() -> None:
    """A child that is waited for leaves its times with its parent, also what it used after the last look."""
    total = CpuTotal()
    assert total.look([_stat(2, 1, 1.0), _stat(3, 2, 5.0)], 0.0) == 6.0
    assert total.look([_stat(2, 1, 2.0, inherited_s=5.5)], 0.0) == 7.5
    assert total.look([], 7.5) == 7.5


def test_times_that_nobody_inherits_are_kept() -> None:
    """A child of a process that ignores SIGCHLD takes its times away; what was last seen of it still counts."""
    total = CpuTotal()
    assert total.look([_stat(2, 1, 1.0), _stat(3, 2, 5.0)], 0.0) == 6.0
    assert total.look([_stat(2, 1, 1.5)], 0.0) == 6.5
    assert total.look([_stat(2, 1, 2.5)], 0.0) == 7.5
    assert total.look([], 2.5) == 7.5


def test_a_parent_read_before_it_inherits_is_not_counted_twice() -> None:
    """Between reading a parent and its child the child may end; the next look sets that right."""
    total = CpuTotal()
    total.look([_stat(2, 1, 1.0), _stat(3, 2, 5.0)], 0.0)
    assert total.look([_stat(2, 1, 1.0)], 0.0) == 6.0
    assert total.look([_stat(2, 1, 1.0, inherited_s=5.0)], 0.0) == 6.0


def test_a_process_with_a_used_up_pid_is_another_one() -> None:
    """A pid that the system gives out again does not take the earlier process's times over."""
    total = CpuTotal()
    total.look([ProcessStat(3, 1, 10, 5.0, 0.0, 0)], 0.0)
    assert total.look([ProcessStat(3, 1, 99, 1.0, 0.0, 0)], 5.0) == 6.0


def test_roles_add_up_to_the_total() -> None:
    """A process that ran only between two samples is counted as `other`."""
    times = RoleTimes()
    mine = ProcessStat(os.getpid(), os.getppid(), 1, 2.0, 0.0, 0)
    times.look([mine], os.getpid())
    assert times.shares(3.0) == {"driver": 2.0, "other": 1.0}


def test_a_process_that_is_ending_keeps_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has ended but still counts has no command line any more; it stays what it was."""
    roles = iter(("planner", ""))
    monkeypatch.setattr(processes, "role", lambda _one, _main: next(roles))
    times = RoleTimes()
    for own_s in (2.0, 9.0):
        times.look([ProcessStat(7, 1, 1, own_s, 0.0, 0)], 1)
    assert times.shares(9.0) == {"planner": 9.0, "other": 0.0}


def test_the_meter_counts_children_that_ended_early(tmp_path: Path) -> None:
    """A child that ended and was waited for, long before the tree's end, is in the sum."""
    measured = _metered(
        """
        if os.fork() == 0:
            burn(0.3)
            os._exit(0)
        os.wait()
        burn(0.3)
        """,
        tmp_path,
    )
    assert measured.exit == 0
    assert 0.5 < measured.cpu_s < 3


def test_the_meter_adopts_orphans(tmp_path: Path) -> None:
    """A grandchild whose parent has gone belongs to the tree still: the meter waits for it and counts it."""
    measured = _metered(
        """
        if os.fork() == 0:
            if os.fork() == 0:
                burn(0.5)
                os._exit(0)
            os._exit(0)
        """,
        tmp_path,
    )
    assert 0.45 < measured.cpu_s < 3


def test_the_meter_counts_children_that_nobody_waits_for(tmp_path: Path) -> None:
    """A parent that ignores SIGCHLD, as PySpark's daemon does, loses no more than the last moments of a child."""
    measured = _metered(
        """
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if os.fork() == 0:
            burn(1.0)
            os._exit(0)
        try:
            os.wait()
        except ChildProcessError:
            pass
        """,
        tmp_path,
    )
    assert 0.6 < measured.cpu_s < 4


def test_the_meter_passes_the_commands_exit_status_on(tmp_path: Path) -> None:
    """A command that fails is seen to have failed."""
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench.processes.meter", str(report), "--"]
    command += [sys.executable, "-c", "raise SystemExit(3)"]
    assert subprocess.run(command, check=False, timeout=60, env=environment()).returncode == 3
    assert Measured.read(report).exit == 3


def test_threads_are_told_apart_and_those_that_ended_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A thread's time counts under its name without its number; what was seen of it stays when it has ended."""

    def have(threads: dict[int, tuple[str, int]]) -> None:
        for thread, (name, nanoseconds) in threads.items():
            folder = tmp_path / "7" / "task" / str(thread)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "comm").write_text(f"{name}\n")
            (folder / "schedstat").write_text(f"{nanoseconds} 0 0\n")

    monkeypatch.setattr(processes, "_PROC", tmp_path)
    times = ThreadTimes()
    have({7: ("python", 10**9), 8: ("rdk:broker-1", 2 * 10**9), 9: ("rdk:broker12", 3 * 10**9), 10: ("python", 10**9)})
    times.look([_stat(7, 1, 6.0)], 7)
    have({7: ("python", 4 * 10**9)})
    shutil.rmtree(tmp_path / "7" / "task" / "9")
    times.look([_stat(7, 1, 9.0)], 7)
    assert times.totals() == {
        ("driver", "main"): 4.0,
        ("driver", "rdk:broker"): 5.0,
        ("driver", processes.OTHER_PYTHON): 1.0,
    }


def test_a_watch_counts_what_is_below_and_not_whom_it_is_below() -> None:
    """The times of a process that has ended and was waited for are its parent's, and count for those below it."""
    script = textwrap.dedent(_BURN) + textwrap.dedent(
        """
        input()
        burn(0.3)
        if os.fork() == 0:
            burn(0.5)
            os._exit(0)
        os.wait()
        print("done", flush=True)
        input()
        """
    )
    began_s = time.time()
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            with Watch(below={"below": [process.pid]}, of={"itself": [process.pid]}) as watch:
                assert process.stdin is not None
                assert process.stdout is not None
                deadline_s = time.monotonic() + 20
                # What is done before the first look is not seen.
                while not watch._samples.get("below"):
                    assert time.monotonic() < deadline_s
                    time.sleep(0.01)
                print(file=process.stdin, flush=True)
                assert process.stdout.readline() == "done\n"
                while watch.cpu_s_between("below", began_s, time.time()) < 0.45 and time.monotonic() < deadline_s:
                    time.sleep(0.05)
        finally:
            process.kill()
    found_s = watch.cpu_s_between("below", began_s, time.time())
    assert 0.45 <= found_s < 3
    assert watch.cpu_s_between(MACHINE, began_s, time.time()) > found_s - 0.3
