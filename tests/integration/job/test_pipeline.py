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
from confluent_kafka.admin import AdminClient

from bridge.model.times import timeuuid_of
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from tests.integration.support.histories import history, table
from tests.integration.support.running import BridgeJob, job_reached, wait_for
from tests.integration.support.unpublishable import contradiction

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


def kill_while_it_publishes(job: BridgeJob, killer: Callable[[BridgeJob], None], goal: int) -> int:
    """Start the job, kill it when so much is committed, and give what is committed then."""
    job.start()
    wait_for(f"the job publishing with {job.settings['spark']}", partial(job_reached, job, goal), 120)
    killer(job)
    return job.committed()


@pytest.mark.timeout(1200)
def test_kills_and_new_lanes_change_nothing(session: WritingSession, bridge: MakeJob, tmp_path: Path) -> None:
    """10,000 keys over three generations arrive once, each in its order, although the job is disturbed meanwhile.

    `kill -9` of the JVM, of workers and of everything at random moments, and each dead letter comes once, too; a killed
    job that comes back as it was, with more lanes, with fewer, without its checkpoint loses and doubles nothing.
    """
    schema = table("pipe_kill", "t")
    written = history(session, schema, seed=4, changes=40_000, keys=10_000, generations_s_ago=(300, 200, 100))
    assert len({change.key for change in written}) > 9_500
    assert len({change.generation_ms for change in written}) == 3
    # What can't be carried, all over: a dead letter is committed with its neighbours, or not at all.
    damaged = []
    for change in written[::100]:
        time = timeuuid_of(change.timestamp_us, POISON_LOW)
        key = dict(zip(("pk", "part"), change.partition_key, strict=True)) | {"ck": bytes(8)}
        contradiction(session, "pipe_kill.t", change.stream_id, time, key, "v")
        damaged.append((change.stream_id.hex(), str(UUID(bytes=time))))
    # Small windows and transactions, so that there is much to interrupt.
    reading = {"confidence_ms": 500, "max_window_ms": 15_000}
    publishing = {"topic": "kill.{keyspace}.{table}", "dead_letter_topic": "kill.dead", "max_transaction_records": 100}
    job = bridge("kill", ["pipe_kill.t"], {"reading": reading, "publishing": publishing, "spark": {}})
    rng = random.Random()  # a random moment each time; the oracle decides, not the schedule
    killers: list[Callable[[BridgeJob], None]] = [kill_jvm, kill_workers_then_group, kill_group]
    rng.shuffle(killers)
    reached = 0
    for lanes, killer in zip((2, 2, 5, 1), (*killers, kill_group), strict=True):
        job.settings["spark"] = {"lanes": lanes, "trigger_interval_ms": 0}
        reached = kill_while_it_publishes(job, killer, reached + rng.randint(100, 3_000))
    assert reached < len(written), "everything was published before the last kill; nothing was interrupted"
    shutil.rmtree(tmp_path / "checkpoint")
    # What is left has nothing to show but that it arrives.
    job.settings["spark"]["lanes"] = 3
    del reading["max_window_ms"], publishing["max_transaction_records"]
    job.run_once()
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}\n{[killer.__name__ for killer in killers]}"
    letters = [json.loads(record.value or b"") for record in job.records_of("kill.dead")]
    assert sorted((letter["stream_id"], letter["time"]) for letter in letters) == sorted(damaged)
    # The log is younger than what it holds, and yet the same one all along.
    assert "created again" not in job.log.read_text(encoding="utf-8", errors="replace")


def newest(folder: Path) -> Path:
    """The file of the micro-batch with the highest number."""
    return max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def write_garbage(plan: Path) -> None:
    newest(plan / "offsets").write_bytes(bytes(7) + b"not a plan")


def lose_most(plan: Path) -> None:
    """As when the folder is deleted while a micro-batch is planned, and the job is killed before that is done."""
    planned = newest(plan / "offsets")
    for path in [plan / "metadata", *plan.glob("offsets/*"), *plan.glob(f"commits/{planned.name}")]:
        if path != planned:
            path.unlink()


@pytest.mark.timeout(600)
def test_damaged_checkpoint_is_no_obstacle(session: WritingSession, bridge: MakeJob, tmp_path: Path) -> None:
    """What Spark can't go on with is only a plan: Kafka knows what was published."""
    schema = table("pipe_plan", "t")
    written = history(session, schema, seed=5, changes=6_000, keys=500, generations_s_ago=(300, 100))
    reading = {"confidence_ms": 500, "max_window_ms": 5_000}
    job = bridge("plan", ["pipe_plan.t"], {"reading": reading, "spark": {"lanes": 2, "trigger_interval_ms": 0}})
    plan = tmp_path / "checkpoint" / "plan" / "pipe_plan.t"
    reached = 0
    for number, damage in enumerate((write_garbage, lose_most)):
        reached = kill_while_it_publishes(job, kill_group, reached + 200)
        assert job.log.read_text(encoding="utf-8", errors="replace").count("The job recreates it") == number
        damage(plan)
    assert reached < len(written), "everything was published before the damage"
    del reading["max_window_ms"]
    job.run_once()
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    assert job.log.read_text(encoding="utf-8", errors="replace").count("The job recreates it") == 2


def delete_topic(stack: LocalStack, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": stack.kafka})
    client.delete_topics([topic], operation_timeout=30)[topic].result(30)
    wait_for(f"the end of topic {topic}", lambda: topic not in client.list_topics(timeout=10).topics)


@pytest.mark.timeout(600)
def test_published_table_without_cursors_begins_anew_only_if_that_is_accepted(
    local_stack: LocalStack, session: WritingSession, bridge: MakeJob, tmp_path: Path
) -> None:
    """Progress topic and checkpoint are gone, so only the change topic and the registry show what was published."""
    schema = table("pipe_lost", "t")
    written = history(session, schema, seed=9, changes=200, keys=20)
    job = bridge("lost", ["pipe_lost.t"])
    job.run_once()
    (settings,) = job.config.tables
    delete_topic(local_stack, job.config.progress_topic_of(settings))
    shutil.rmtree(tmp_path / "checkpoint")
    assert job.start("--once").wait(180) == 1
    log = job.log.read_text(encoding="utf-8", errors="replace")
    assert "pipe_lost.t: the progress topic lost.progress.pipe_lost.t holds no cursor" in log
    assert "or set reading.accept_data_loss for the next start" in log
    verdict = job.verdict([schema], written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
    published = len(list(job.records(settings)))
    job.settings["reading"] = {"accept_data_loss": True}
    job.run_once()
    assert len(list(job.records(settings))) == 2 * published
