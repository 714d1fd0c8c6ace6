"""The real job dies at every named point of the lane protocol, by an exception and by SIGKILL.

SIGKILL takes a job start for each point, which is minutes: `make chaos-matrix` (SCYLLA_CDC_BRIDGE_CHAOS=matrix) goes
through all of them; without it, every exception comes in one run, and SIGKILL at the point where Kafka and Spark
disagree on what is done. `tests/tools/chaos` goes through the whole matrix, and zombies too, over a broker in memory.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.chaos import fault_points
from tests.chaos.fault_points import POINTS, Point
from tests.integration.support.histories import history, table
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = pytest.mark.integration

WHOLE = os.environ.get("SCYLLA_CDC_BRIDGE_CHAOS") == "matrix"
KILLS: tuple[Point, ...] = POINTS if WHOLE else ("after commit",)
CHANGES = 4_000
SETTINGS: dict[str, Any] = {
    "reading": {"confidence_ms": 500, "max_window_ms": 45_000},
    "kafka": {"transaction_timeout_ms": 10_000},
    "publishing": {"topic": "matrix.{keyspace}.{table}", "max_transaction_records": 50},
    "spark": {"trigger_interval_ms": 0},
}


@pytest.mark.timeout(1200)
def test_dying_at_named_points(session: WritingSession, local_stack: LocalStack, tmp_path: Path) -> None:
    """After SIGKILL at one point after the other, and an exception at each, every change is there once, in order."""
    schema = table("crash_matrix", "t")
    written = history(session, schema, seed=6, changes=CHANGES, keys=500)
    faults = tmp_path / "faults"
    environment = fault_points.environment(faults)
    with BridgeJob(local_stack, tmp_path, "matrix", ["crash_matrix.t"], SETTINGS, environment) as job:
        for point in KILLS:
            fault_points.arm(faults, point, "kill")
            began_s = time.monotonic()
            status = job.start("--once").wait(300)
            assert fault_points.fired(faults, point), f"{point} was never reached\n{job.log_tail()}"
            assert status == -9, f"killed at {point}, but the job's status is {status}\n{job.log_tail()}"
            # What came into being between the search and the kill ends by itself, at the end of its input.
            left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in fault_points.survivors(faults)}
            print(f"not killed at {point}: {left or 'nothing'}")
            wait_for(f"the end of what was not killed at {point}", lambda: not fault_points.survivors(faults), 5)
            # A JVM's memory takes the kernel a moment.
            wait_for(f"the end of what was killed at {point}", lambda: not fault_points.processes(faults), 30)
            so_far = job.verdict([schema], written)
            print(f"killed at {point} after {time.monotonic() - began_s:.0f} s: {so_far}")
            assert so_far.missing, "everything was published before the kill; nothing was interrupted"
            flaws = so_far.doubled + so_far.out_of_order + so_far.wrong + so_far.unexpected
            assert flaws == 0, f"killed at {point}: {so_far}\n{so_far.examples}"
        for point in POINTS:
            fault_points.arm(faults, point, "exception")
        job.run_once(300)
        assert [point for point in POINTS if not fault_points.fired(faults, point)] == []
        verdict = job.verdict([schema], written)
    print(f"an exception at each point: {verdict}")
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
