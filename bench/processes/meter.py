"""Runs a command and measures all its processes: `python -m bench.processes.meter REPORT -- COMMAND...`.

It is a process of its own, so that it waits for the command's process tree only. When the last process of the tree has
ended, it writes its report as JSON:

```
{"exit": 0, "cpu_s": 61.2, "cpu_s_by_role": {"driver": 3.1, "jvm": 20.0, "workers": 36.5, "planner": 1.2, "other": 0.4},
 "processes": {"driver": 1, "jvm": 1, "workers": 9}, "peak_rss_mib": 1500.0, "peak_pss_mib": 1100.0,
 "began_s": 1700000000.0, "ended_s": 1700000040.0, "samples": [[1700000000.2, 0.1], ...],
 "memory": [[1700000000.2, {"driver": 80.1, "jvm": 400.0, "workers": 610.5, "planner": 90.2}], ...]}
```

`samples` holds instants (s since the epoch) and the CPU seconds used until then, `memory` instants and the PSS of each
role in MiB.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from bench.processes.cpu_time import (
    CpuTotal,
    ProcessStat,
    RoleTimes,
    adopt_orphans,
    descendants,
    end_with_parent,
    ended_children_s,
    everyone,
    pss_bytes,
)

_LOOK_EVERY_S: Final = 0.2
_PSS_EVERY_LOOKS: Final = 5
_STOP_GRACE_S: Final = 30.0
_LEFT_BEHIND_GRACE_S: Final = 20.0
_MIB: Final = 1024 * 1024


class Meter:
    """Measures the tree below this process until it is empty."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._main: subprocess.Popen[bytes] | None = None
        self._exit: int | None = None
        self._deadline_s = float("inf")
        self._cpu = CpuTotal()
        self._roles = RoleTimes()
        self._samples: list[tuple[float, float]] = []
        self._memory: list[tuple[float, dict[str, float]]] = []
        self._peak_rss = 0
        self._looks = 0

    def stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Send SIGTERM to the command. This is a signal handler."""
        if self._main is not None and self._exit is None:
            self._main.send_signal(signal.SIGTERM)
        self._deadline_s = min(self._deadline_s, time.monotonic() + _STOP_GRACE_S)

    def run(self) -> dict[str, Any]:
        """Start the command and wait for the whole tree; gives the report."""
        began_s = time.time()
        self._main = main = subprocess.Popen(self._command)
        while True:
            self._reap(main)
            tree = descendants(os.getpid(), everyone())
            if self._exit is not None and not tree:
                break
            self._look(tree, main.pid)
            if time.monotonic() > self._deadline_s:
                self._kill(tree)
            time.sleep(_LOOK_EVERY_S)
        total_s = self._cpu.look((), ended_children_s())
        ended_s = time.time()
        self._samples.append((ended_s, total_s))
        return {
            "exit": self._exit,
            "cpu_s": total_s,
            "cpu_s_by_role": self._roles.shares(total_s),
            "processes": self._roles.counts(),
            "peak_rss_mib": self._peak_rss / _MIB,
            "peak_pss_mib": max((sum(roles.values()) for _, roles in self._memory), default=0.0),
            "began_s": began_s,
            "ended_s": ended_s,
            "samples": self._samples,
            "memory": self._memory,
        }

    def _reap(self, main: subprocess.Popen[bytes]) -> None:
        # Whoever has ended below us and has no other parent left; the main process is one of them.
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == main.pid:
                self._exit = main.returncode = os.waitstatus_to_exitcode(status)
                self._deadline_s = min(self._deadline_s, time.monotonic() + _LEFT_BEHIND_GRACE_S)

    def _look(self, tree: list[ProcessStat], main: int) -> None:
        self._samples.append((time.time(), self._cpu.look(tree, ended_children_s())))
        self._roles.look(tree, main)
        self._peak_rss = max(self._peak_rss, sum(one.rss_bytes for one in tree))
        if self._looks % _PSS_EVERY_LOOKS == 0:
            self._weigh(tree)
        self._looks += 1

    def _weigh(self, tree: list[ProcessStat]) -> None:
        weights: dict[str, float] = {}
        for one in tree:
            role = self._roles.role(one)
            weights[role] = weights.get(role, 0.0) + pss_bytes(one) / _MIB
        self._memory.append((time.time(), weights))

    def _kill(self, tree: list[ProcessStat]) -> None:
        for one in tree:
            try:
                os.kill(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def main(arguments: Sequence[str]) -> int:
    """The command line; gives the command's exit status."""
    report, separator, *command = arguments
    if separator != "--" or not command:
        print("usage: python -m bench.processes.meter REPORT -- COMMAND...", file=sys.stderr)
        return 2
    adopt_orphans()
    end_with_parent()
    meter = Meter(command)
    signal.signal(signal.SIGTERM, meter.stop)
    measured = meter.run()
    Path(report).write_text(json.dumps(measured), encoding="utf-8")
    exit_status: int = measured["exit"]
    return exit_status if exit_status >= 0 else 128 - exit_status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
