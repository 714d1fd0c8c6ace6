"""Random faults on the real stack, judged by a plain consumer; short here, as long as one likes by `make chaos`."""

from __future__ import annotations

import os
import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.chaos.outcome import Leg
from tests.chaos.run import Run
from tests.integration.support.histories import history, table
from tests.integration.support.running import BridgeJob, job_reached, wait_for

pytestmark = pytest.mark.integration

BACKLOG = 500_000
STREAM_ROWS = 10_000


LEGS = (
    Leg(1, 0.1, ("second job", "stop a worker"), least=2),
    Leg(37, 0.1, ("second job",), least=1),
    Leg(25, 0.1, ("kill a worker", "err at a point", "kill the broker"), least=3),
)
"""The second leg's other job has a checkpoint and a number of lanes of its own."""


def test_three_short_runs(local_stack: LocalStack, tmp_path: Path) -> None:
    """Two jobs named alike, with one checkpoint and lane count or two; what wakes late; what dies or errs midway.

    Nothing is missing, doubled or out of order, and of two jobs the one that is fenced says why.
    """
    outcomes = Run(local_stack, tmp_path / "run", LEGS, say=print, rate_per_s=20).carry_out()
    for outcome in outcomes:
        print(outcome)
        assert outcome.clean, f"{outcome}\n{outcome.counts.examples}\n{outcome.problems}"
    assert len(outcomes) == len(LEGS)
    jobs = [path.parent for path in tmp_path.glob("run/job*/*.log")]
    assert len(jobs) == 3
    assert [path for path in jobs if (path / "checkpoint").is_dir()], "each job had the same checkpoint"
    logs = [path.read_text(errors="replace") for path in tmp_path.glob("run/job*/*.log")]
    fenced = [log for log in logs if "another job of the same name" in log and "has taken it over from this one" in log]
    assert len(fenced) >= 2


@pytest.mark.skipif(
    os.environ.get("SCYLLA_CDC_BRIDGE_CHAOS") != "backlog", reason="takes minutes: `make chaos-backlog` runs it"
)
@pytest.mark.timeout(3000)
def test_two_kills_while_a_backlog_is_drained(session: WritingSession, local_stack: LocalStack, tmp_path: Path) -> None:
    """500,000 changes with over 10,000 rows of a stream in each window, two times SIGKILL: none missing or doubled.

    ScyllaDB's connector for Kafka Connect doubled 112,401 and left out 76,900 under this.
    """
    schema = table("chaos_backlog", "t")
    written = history(
        session, schema, seed=8, changes=BACKLOG, keys=10_000, generations_s_ago=(600,), vnodes=2, shards=1
    )
    settings: dict[str, Any] = {"publishing": {"topic": "backlog.{keyspace}.{table}", "max_transaction_records": 5_000}}
    streams = len({change.stream_id for change in written})
    # The first window is a minute.
    assert len(written) / streams * 60 / 590 > STREAM_ROWS
    rng = random.Random()
    with BridgeJob(local_stack, tmp_path, "backlog", ["chaos_backlog.t"], settings) as job:
        reached = 0
        for _ in range(2):
            job.start()
            goal = reached + rng.randint(20_000, 150_000)
            wait_for("the job publishing", partial(job_reached, job, goal), 600)
            job.kill_group()
            reached = job.committed()
            print(f"killed after {reached} of {len(written)}")
        assert reached < len(written), "everything was published before the last kill; nothing was interrupted"
        job.run_once(900)
        verdict = job.verdict([schema], written, within_s=900)
    print(verdict)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
