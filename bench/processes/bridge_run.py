"""Runs the bridge as users do, as a process below a meter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from bench.errors import BenchError
from bench.figures import value_at
from bench.processes.cpu_time import descendants, everyone

ROOT: Final = Path(__file__).resolve().parents[2]
_STOP_WITHIN_S: Final = 60.0
_TAIL_LINES: Final = 30


@dataclass(frozen=True, slots=True)
class Servers:
    """Addresses of the stack that the bridge runs against."""

    cql: str
    kafka: str
    registry: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The report of `bench.processes.meter`."""

    exit: int
    cpu_s: float
    cpu_s_by_role: dict[str, float]
    processes: dict[str, int]
    peak_rss_mib: float
    peak_pss_mib: float
    began_s: float
    ended_s: float
    samples: list[tuple[float, float]]
    memory: list[tuple[float, dict[str, float]]]

    @classmethod
    def read(cls, path: Path) -> Self:
        """The meter's report."""
        form = json.loads(path.read_text(encoding="utf-8"))
        for name in ("samples", "memory"):
            form[name] = [(at, value) for at, value in form[name]]
        return cls(**form)

    def cpu_s_between(self, start_s: float, end_s: float) -> float:
        """CPU seconds used between two instants (s since the epoch)."""
        return value_at(self.samples, end_s) - value_at(self.samples, start_s)


class BridgeRun:
    """One run of the bridge. At the end of the `with` block, all its processes end.

    Attributes:
        topics: the change topic of each table.
        progress_topics: the progress topic of each table.

    Args:
        folder: folder for the configuration, the log, the checkpoint and the meter's report.
        name: the job's name, and the beginning of its topics' names.
        tables: each as `keyspace.table`.
        settings: further sections of the configuration file.
        once: whether to drain the log and then end.
    """

    def __init__(
        self, folder: Path, servers: Servers, *, name: str, tables: Sequence[str], settings: dict[str, Any], once: bool
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.topics = {table: f"{name}.changes.{table}" for table in tables}
        self.progress_topics = {table: f"{name}.progress.{table}" for table in tables}
        self.log = folder / f"{name}.log"
        self._report = folder / f"{name}.meter.json"
        self._config = folder / f"{name}.yaml"
        spark = {"checkpoint": str(folder / "checkpoints"), **settings.pop("spark", {})}
        self._config.write_text(
            yaml.safe_dump(
                {
                    "name": name,
                    "scylla": {"contact_points": [servers.cql]},
                    "kafka": {"bootstrap_servers": [servers.kafka]},
                    "registry": {"url": servers.registry},
                    "tables": list(tables),
                    "publishing": {"topic": f"{name}.changes.{{keyspace}}.{{table}}"},
                    "spark": spark,
                    **settings,
                }
            ),
            encoding="utf-8",
        )
        self._once = once
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "bench.processes.meter", str(self._report), "--"]
        command += [sys.executable, "-m", "spark.job", "-c", str(self._config)]
        if self._once:
            command.append("--once")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(),
                # The benchmark handles Ctrl-C and stops the bridge in order.
                start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    @property
    def topic(self) -> str:
        """The change topic of the first table."""
        return next(iter(self.topics.values()))

    @property
    def progress_topic(self) -> str:
        """The progress topic of the first table."""
        return next(iter(self.progress_topics.values()))

    @property
    def meter_pid(self) -> int:
        """The meter's process: the ancestor of all processes of the bridge."""
        assert self._process is not None
        return self._process.pid

    @property
    def job_pid(self) -> int | None:
        """The bridge's first process; None before it exists."""
        # Processes that the meter adopts start later.
        children = [one for one in everyone() if one.parent == self.meter_pid]
        return min(children, key=lambda one: one.start_ticks).pid if children else None

    @property
    def has_ended(self) -> bool:
        """Whether all processes of the bridge have ended."""
        assert self._process is not None
        return self._process.poll() is not None

    def check(self) -> None:
        """Check that the bridge runs.

        Raises:
            BenchError: it has ended. The message shows the end of its log.
        """
        assert self._process is not None
        status = self._process.poll()
        if status is not None:
            raise BenchError(f"the bridge ended with status {status}.{self.tail()}")

    def wait(self, timeout_s: float) -> Measured:
        """Wait until the bridge ends by itself.

        Raises:
            BenchError: it failed, or did not end in time. The message shows the end of its log.
        """
        assert self._process is not None
        try:
            status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise BenchError(f"the bridge did not end within {timeout_s:.0f} s.{self.tail()}") from None
        if status != 0:
            raise BenchError(f"the bridge ended with status {status}.{self.tail()}")
        return Measured.read(self._report)

    def stop(self) -> Measured:
        """Send SIGTERM and wait.

        Raises:
            BenchError: the bridge failed, or did not stop in time. The message shows the end of its log.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self.wait(_STOP_WITHIN_S)

    def kill(self) -> Measured:
        """Kill all processes of the bridge with SIGKILL, and return the meter's report.

        Entering the `with` statement again restarts the bridge.
        """
        assert self._process is not None
        deadline_s = time.monotonic() + _STOP_WITHIN_S
        while self._process.poll() is None:
            if time.monotonic() > deadline_s:
                raise BenchError(f"the bridge could not be killed within {_STOP_WITHIN_S:.0f} s.{self.tail()}")
            for one in descendants(self._process.pid, everyone()):
                with suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            time.sleep(0.02)
        return Measured.read(self._report)

    def tail(self) -> str:
        """The end of the bridge's log, as text that follows a sentence."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        return f" The end of its log, {self.log}:\n" + "\n".join(f"    {line}" for line in lines)


def environment() -> dict[str, str]:
    """The environment of helper processes, with which they find the same packages in any folder."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def new_name(table: str, kind: str) -> str:
    """Return a new job name, so that the job does not continue an earlier run."""
    return f"bench-{table}-{kind}-{time.time_ns() // 1_000_000}"
