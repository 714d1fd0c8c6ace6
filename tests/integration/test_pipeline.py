"""From the log to a plain consumer, on real servers and with the real job: once, in order, whatever dies."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest

from bridge.adapters.scylla import CqlSession
from bridge.local.stack import LocalStack
from bridge.model.times import timeuuid_of
from tests.integration.histories import history, table
from tests.integration.poison import contradiction
from tests.integration.running import BridgeJob, job_reached, wait_for

pytestmark = pytest.mark.integration

POISON_LOW = bytes(7) + b"\x09"
MakeJob = Callable[..., BridgeJob]


@pytest.fixture
def bridge(local_stack: LocalStack, tmp_path: Path) -> Iterator[MakeJob]:
    """Makes jobs; what still runs of them at the test's end is killed."""
    with ExitStack() as jobs:

        def make(name: str, tables: list[str], settings: dict[str, Any] | None = None) -> BridgeJob:
            return jobs.enter_context(BridgeJob(local_stack, tmp_path, name, tables, settings or {}))

        yield make


def test_order_holds_over_two_generation_changes_for_ten_thousand_keys(session: CqlSession, bridge: MakeJob) -> None:
    """10,000 keys written over three generations arrive once, each in its order."""
    schema = table("pipe_order", "t")
    written = history(session, schema, seed=3, changes=40_000, keys=10_000)
    assert len({change.key for change in written}) > 9_500
    assert len({change.generation_ms for change in written}) == 3
    job = bridge("order", ["pipe_order.t"])
    job.run_once()
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"


def kill_jvm(job: BridgeJob) -> None:
    job.jvm().kill()
    assert job.process is not None
    assert job.process.wait(60) == 1


def kill_workers_then_group(job: BridgeJob) -> None:
    doomed = job.workers()
    assert doomed, "no Python worker was running"
    for worker in doomed:
        with suppress(psutil.NoSuchProcess):
            worker.kill()
    psutil.wait_procs(doomed, timeout=10)
    before = job.committed()
    wait_for("the job going on after its workers were killed", lambda: job.committed() > before)
    job.kill_group()


def kill_group(job: BridgeJob) -> None:
    job.kill_group()


def test_three_kills_change_nothing(session: CqlSession, bridge: MakeJob) -> None:
    """`kill -9` of the JVM, of workers and of everything at random moments: each change and each dead letter once."""
    schema = table("pipe_kill", "t")
    written = history(session, schema, seed=4, changes=30_000, keys=2_000)
    # What can't be carried, all over: a dead letter is committed with its neighbours, or not at all.
    poisoned = []
    for change in written[::100]:
        time = timeuuid_of(change.timestamp_us, POISON_LOW)
        key = dict(zip(("pk", "part"), change.partition_key, strict=True)) | {"ck": bytes(8)}
        contradiction(session, "pipe_kill.t", change.stream_id, time, key, "v")
        poisoned.append((change.stream_id.hex(), str(UUID(bytes=time))))
    # Small windows and transactions, so that there is much to interrupt.
    settings = {
        "reading": {"confidence_ms": 500, "max_window_ms": 15_000},
        "publishing": {
            "topic": "kill.{keyspace}.{table}",
            "dead_letter_topic": "kill.dead",
            "max_transaction_records": 100,
        },
        "spark": {"trigger_interval_ms": 0},
    }
    job = bridge("kill", ["pipe_kill.t"], settings)
    rng = random.Random()  # a random moment each time; the oracle decides, not the schedule
    killers: list[Callable[[BridgeJob], None]] = [kill_jvm, kill_workers_then_group, kill_group]
    rng.shuffle(killers)
    reached = 0
    for killer in killers:
        job.start()
        goal = reached + rng.randint(100, 3_000)
        wait_for("the job publishing", partial(job_reached, job, goal), 120)
        killer(job)
        reached = job.committed()
    assert reached < len(written), "everything was published before the last kill; nothing was interrupted"
    job.run_once()
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}\n{[killer.__name__ for killer in killers]}"
    letters = [json.loads(record.value or b"") for record in job.records_of("kill.dead")]
    assert sorted((letter["stream_id"], letter["time"]) for letter in letters) == sorted(poisoned)


def test_lanes_and_checkpoint_may_change_over_a_crash(session: CqlSession, bridge: MakeJob, tmp_path: Path) -> None:
    """A killed job that comes back with more lanes, with fewer, without its checkpoint loses and doubles nothing."""
    schema = table("pipe_lanes", "t")
    written = history(session, schema, seed=5, changes=20_000, keys=1_000)
    settings = {
        "reading": {"confidence_ms": 500, "max_window_ms": 15_000},
        "publishing": {"topic": "lanes.{keyspace}.{table}", "max_transaction_records": 100},
        "spark": {"lanes": 2, "trigger_interval_ms": 0},
    }
    job = bridge("lanes", ["pipe_lanes.t"], settings)
    reached = 0
    for lanes, goal in ((2, 700), (5, 1_500), (1, 1_000)):
        settings["spark"]["lanes"] = lanes
        job.start()
        wait_for(f"the job publishing with {lanes} lanes", partial(job_reached, job, reached + goal), 120)
        job.kill_group()
        reached = job.committed()
    shutil.rmtree(tmp_path / "checkpoint")
    settings["spark"]["lanes"] = 3
    job.run_once()
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    # The log is younger than what it holds, and yet the same one all along.
    assert "made anew" not in job.log.read_text(encoding="utf-8", errors="replace")
