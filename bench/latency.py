"""Measures latency at a steady rate: from a change's write timestamp to its arrival at a read_committed consumer."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from bench.data import topics
from bench.data.fill import Cluster
from bench.data.tables import KEYSPACE
from bench.data.topics import Follower
from bench.errors import BenchError
from bench.figures import Figures, percentile
from bench.processes.bridge_run import ROOT, BridgeRun, Measured, Servers, environment, new_name

_WRITER_READY_S: Final = 120.0
_FIRST_RECORD_S: Final = 300.0
_CAUGHT_UP_S: Final = 300.0
_REST_S: Final = 60.0
_SETTLE_S: Final = 5.0
"""Time before and after the measurement: the kill must not hit measured changes that a lane still holds."""
_LEFTOVERS_S: Final = 1.0
"""Time for receiving the records that were committed before the kill."""
_POLL_S: Final = 0.01
_POLL_MOST: Final = 1000
_BACKLOG_MARGIN_US: Final = 2_000_000


class Writer:
    """Runs `bench.data.writer` as a process during a `with` block."""

    def __init__(self, cql: str, table: str, *, rate: float, most_seconds: float, cluster: Cluster) -> None:
        self._command = [
            sys.executable, "-m", "bench.data.writer", "--cql", cql, "--table", table, "--rate", str(rate),
            "--most-seconds", str(most_seconds), "--vnodes", str(cluster.vnodes), "--shards", str(cluster.shards),
            "--seed", str(cluster.seed),
        ]  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, env=environment(), text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        threading.Thread(target=self._collect, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def answer(self, name: str, timeout_s: float) -> Any:
        """Wait for a line of the writer, and return its value for a name.

        Raises:
            BenchError: the writer ended, or printed nothing in time.
        """
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise BenchError(f"the writer printed nothing within {timeout_s:.0f} s") from None
        if not line:
            raise BenchError(f"the writer ended with status {self._process.wait()}")
        return json.loads(line)[name]

    def check(self) -> None:
        """See that it still runs.

        Raises:
            BenchError: it has ended.
        """
        if self._process.poll() is not None:
            raise BenchError(f"the writer ended with status {self._process.poll()}")

    def stop(self) -> int:
        """End the writer and return the number of changes that it wrote."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        written: int = self.answer("written", _REST_S)
        return written

    def _collect(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


class _Receipts:
    """The records that the consumer has received so far."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self.count = 0
        self.positions: set[bytes] = set()
        self.latest_us = 0
        self.measure_from_us = self.measure_until_us = 0
        self.latencies_ms: list[float] = []

    def poll(self) -> None:
        for seen in self._follower.poll(_POLL_S, _POLL_MOST):
            self.count += 1
            self.positions.add(seen.position)
            at_us = topics.written_us(seen.position)
            self.latest_us = max(self.latest_us, at_us)
            if self.measure_from_us <= at_us < self.measure_until_us:
                self.latencies_ms.append((seen.received_us - at_us) / 1000)


def latency(
    folder: Path,
    servers: Servers,
    table: str,
    *,
    rate: float,
    seconds: float,
    lanes: int,
    settings: Mapping[str, Any],
    cluster: Cluster,
) -> Figures:
    """Write at a steady rate, measure after the bridge has caught up, kill it, and check that no change is lost.

    Raises:
        BenchError: writer or bridge failed, the bridge did not catch up, or a change is missing or doubled.
    """
    run = BridgeRun(
        folder,
        servers,
        name=new_name(table, "latency"),
        tables=[f"{KEYSPACE}.{table}"],
        settings={**settings, "spark": {**settings.get("spark", {}), "lanes": lanes}},
        once=False,
    )
    confidence_ms: int = settings["reading"]["confidence_ms"]
    most_seconds = seconds + _SETTLE_S + _FIRST_RECORD_S + _CAUGHT_UP_S
    with Writer(servers.cql, table, rate=rate, most_seconds=most_seconds, cluster=cluster) as writer:
        writer.answer("ready", _WRITER_READY_S)
        with run:
            _await_topic(servers.kafka, run)
            with Follower(servers.kafka, run.topic) as follower:
                receipts = _Receipts(follower)
                _measure_steadily(run, writer, receipts, seconds, confidence_ms)
                measured = run.kill()
                recovery_s = _recover(run, writer, receipts)
                written = writer.stop()
                _until(
                    run, None, receipts, _REST_S, f"publish all of {written} changes",
                    lambda: len(receipts.positions) >= written,
                )  # fmt: skip
            run.stop()
    if receipts.count != written:
        raise BenchError(f"{run.topic} is wrong: {written} changes written, {receipts.count} records.{run.tail()}")
    topics.delete(servers.kafka, run.topic, run.progress_topic)
    return {**_latency_figures(receipts, measured, seconds), "recovery_s": recovery_s}


def _measure_steadily(run: BridgeRun, writer: Writer, receipts: _Receipts, seconds: float, confidence_ms: int) -> None:
    """Wait until the bridge has caught up with the writer, then until it has published what is measured."""
    _until(run, writer, receipts, _FIRST_RECORD_S, "publish a record", lambda: receipts.count > 0)
    behind_us = confidence_ms * 1000 + _BACKLOG_MARGIN_US
    _until(
        run, writer, receipts, _CAUGHT_UP_S, "catch up with the writer",
        lambda: receipts.latest_us > _now_us() - behind_us,
    )  # fmt: skip
    receipts.measure_from_us = _now_us() + round(_SETTLE_S * 1e6)
    receipts.measure_until_us = receipts.measure_from_us + round(seconds * 1e6)
    _until(
        run, writer, receipts, seconds + _SETTLE_S + 60, "keep up", lambda: _now_us() > receipts.measure_until_us
    )  # fmt: skip
    _until(
        run, writer, receipts, _REST_S, "publish what was measured",
        lambda: receipts.latest_us > receipts.measure_until_us + _SETTLE_S * 1e6,
    )  # fmt: skip


def _latency_figures(receipts: _Receipts, measured: Measured, seconds: float) -> Figures:
    found = sorted(receipts.latencies_ms)
    used_s = measured.cpu_s_between(receipts.measure_from_us / 1e6, receipts.measure_until_us / 1e6)
    return {
        "latency_ms": {
            "p50": percentile(found, 0.50),
            "p90": percentile(found, 0.90),
            "p99": percentile(found, 0.99),
            "max": found[-1],
        },
        "latency_changes": len(found),
        "latency_rate_per_s": len(found) / seconds,
        "latency_cpu_cores": used_s / seconds,
    }


def _recover(run: BridgeRun, writer: Writer, receipts: _Receipts) -> float:
    """Restart the killed bridge; return the seconds from its start to the arrival of its first record."""
    until_s = time.monotonic() + _LEFTOVERS_S
    while time.monotonic() < until_s:
        receipts.poll()
    before, began_s = receipts.count, time.monotonic()
    run.__enter__()
    _until(run, writer, receipts, _FIRST_RECORD_S, "recover from SIGKILL", lambda: receipts.count > before)
    return time.monotonic() - began_s


def _until(run: BridgeRun, writer: Writer | None, receipts: _Receipts, timeout_s: float, what: str, done: Any) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline_s:
            raise BenchError(
                f"the bridge did not {what} within {timeout_s:.0f} s; {receipts.count} records so far.{run.tail()}"
            )
        run.check()
        if writer is not None:
            writer.check()
        receipts.poll()


def _await_topic(kafka: str, run: BridgeRun) -> None:
    deadline_s = time.monotonic() + _FIRST_RECORD_S
    while not topics.exists(kafka, run.topic):
        if time.monotonic() > deadline_s:
            raise BenchError(f"the bridge did not make its topic within {_FIRST_RECORD_S:.0f} s.{run.tail()}")
        run.check()
        time.sleep(0.2)


def _now_us() -> int:
    return time.time_ns() // 1000
