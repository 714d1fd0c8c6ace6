"""What a running job does about a task, and about a checkpoint's store, that does not answer any more."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from bridge.engine.table.stall_watch import LEAST_PATIENCE_S
from bridge.model.times import UnixMillis
from bridge.runtime.java import find_java
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.jars import Jars
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import TableSchema
from tests.chaos import fault_points
from tests.chaos.fault_points import Point
from tests.integration.cli.test_monitoring import Port
from tests.integration.support.histories import table
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

STALLED_AFTER_S = 5
"""Below a third of the least patience, which is what counts then."""
POINT: Point = "mid-produce"
IDLE_REPORTS = 3
STARTS_WITHIN_S = 450
"""For a start of the job on a machine that others use as well."""


class Writer:
    """Tables of one keyspace, and a writer that writes to one of them when the test says so."""

    def __init__(self, session: WritingSession, schemas: Sequence[TableSchema]) -> None:
        cluster = SimulatedCluster(session, seed=1)
        cluster.reset()
        cluster.add_generation(UnixMillis(system_clock_us() // 1000 - 60_000))
        self.schemas = schemas
        self._tables = [SimulatedTable(schema) for schema in schemas]
        for made in self._tables:
            made.drop(session)
            made.create(session)
        self._simulator = Simulator(session, cluster, self._tables, seed=1)
        self._work = [Workload(schema, seed=1, keys=50) for schema in schemas]

    def write(self, number: int, mutations: int) -> None:
        """Write to the table of this number."""
        work = self._work[number]
        self._simulator.write_many(self._tables[number], ((system_clock_us(), work.next()) for _ in range(mutations)))

    @property
    def written(self) -> list[Any]:
        return list(self._simulator.oracle)

    def written_to(self, number: int) -> int:
        name = self.schemas[number].full_name
        return sum(f"{change.keyspace}.{change.table}" == name for change in self.written)


def job_of(local_stack: LocalStack, folder: Path, name: str, writer: Writer, **sections: Any) -> BridgeJob:
    settings: dict[str, Any] = {
        "monitoring": {"stalled_after_s": STALLED_AFTER_S},
        "kafka": {"transaction_timeout_ms": 10_000},
        "spark": {"lanes": 1},
    }
    tables = [schema.full_name for schema in writer.schemas]
    environment = fault_points.environment(folder / "faults")
    return BridgeJob(local_stack, folder, name, tables, settings | sections, environment)


def said(job: BridgeJob, pattern: str) -> re.Match[str] | None:
    return re.search(pattern, job.log.read_text(encoding="utf-8", errors="replace"))


def arrived(job: BridgeJob, number: int) -> int:
    return job.arrived(job.config.topic_of(job.config.tables[number]))


def test_table_whose_task_hangs_is_started_again(
    session: WritingSession, local_stack: LocalStack, tmp_path: Path
) -> None:
    """A worker is stopped inside a transaction: its table starts again by itself, once, and the other one goes on.

    The log names the table, how long it stood and the process that it waited for, which is gone afterwards. A table
    without anything to read is left alone, however long.
    """
    writer = Writer(session, [table("hung", "a"), table("hung", "b")])
    with job_of(local_stack, tmp_path, "hungtask", writer) as job:
        for number in range(2):
            writer.write(number, 30)
        job.start()
        for number in range(2):
            wait_for("the first changes", lambda n=number: arrived(job, n) >= writer.written_to(n), STARTS_WITHIN_S)
        port = Port(job)
        fault_points.arm(tmp_path / "faults", POINT, "stop")
        writer.write(0, 30)
        wait_for("the task that hangs", lambda: fault_points.fired(tmp_path / "faults", POINT), 200)
        while_it_hangs = 0
        while said(job, "the job stops it and starts it again") is None:
            writer.write(1, 5)
            wait_for("the other table's changes", lambda: arrived(job, 1) >= writer.written_to(1), 200)
            while_it_hangs += 1
        assert while_it_hangs > 1
        assert arrived(job, 0) < writer.written_to(0)
        found = said(
            job,
            r"hung\.a: its query has shown no progress for (\d+) s, while it waits for lane 0 in process (\d+); "
            r"the job stops it and starts it again",
        )
        assert found is not None, job.log_tail()
        assert int(found[1]) >= LEAST_PATIENCE_S
        wait_for("the table's changes", lambda: arrived(job, 0) >= writer.written_to(0), STARTS_WITHIN_S)
        wait_for("the end of the process that hung", lambda: not psutil.pid_exists(int(found[2])), 30)
        # Both tables have nothing to read from now on.
        batches = port.figures()["batch_duration_seconds_count"]
        idle_s = IDLE_REPORTS * LEAST_PATIENCE_S
        began = system_clock_us()
        wait_for("a long time with nothing to read", lambda: system_clock_us() - began > idle_s * 1e6, idle_s + 30)
        assert port.figures()["batch_duration_seconds_count"] >= batches
        assert port.figures()["stall_restarts_total"] == 1, job.log_tail()
        assert port.get("/readyz")[0] == 200
        assert job.stop() == 0
        verdict = job.verdict(writer.schemas, writer.written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"


@pytest.fixture(scope="module")
def hanging_store(shared_jars: Path, local_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled `HangingFileSystem`."""
    del local_stack  # the jars are there once it is up
    import pyspark

    folder = tmp_path_factory.mktemp("hanging")
    against = [str(jar) for jar in (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar")]
    source = Path(__file__).parents[1] / "support" / "java" / "HangingFileSystem.java"
    Jars(shared_jars, find_java()).compile(source, os.pathsep.join(against), folder)
    return folder


def test_job_whose_checkpoint_store_hangs_ends_and_goes_on_when_started_again(
    session: WritingSession, local_stack: LocalStack, hanging_store: Path, tmp_path: Path
) -> None:
    """Spark cannot be freed from a store that never answers: the job says so and ends, to be started again.

    No process of it is left, and nothing is lost or doubled.
    """
    writer, hangs = Writer(session, [table("hung_store", "t")]), tmp_path / "hangs"
    spark = {
        "lanes": 1,
        "checkpoint": f"hanging://{tmp_path / 'checkpoint'}",
        "properties": {
            "spark.driver.extraClassPath": str(hanging_store),
            "spark.hadoop.fs.hanging.impl": "HangingFileSystem",
            "spark.hadoop.hanging.while": str(hangs),
            "spark.sql.streaming.stopTimeout": "5s",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.local.dir": str(tmp_path / "scratch"),
        },
    }
    with job_of(local_stack, tmp_path, "hungstore", writer, spark=spark) as job:
        writer.write(0, 30)
        job.start()
        wait_for("the first changes", lambda: arrived(job, 0) >= writer.written_to(0), STARTS_WITHIN_S)
        hangs.touch()
        writer.write(0, 30)
        assert job.process is not None
        status = job.process.wait(450)
        assert status == 1, job.log_tail()
        found = said(
            job,
            r"hung_store\.t: its query has shown no progress for \d+ s, while it waits for the checkpoint's files, and "
            r"can't be stopped: Spark gave up the stop \(\w+\)\. The job ends, so that it can be started again",
        )
        assert found is not None, job.log_tail()
        wait_for("the end of all processes", lambda: not fault_points.processes(tmp_path / "faults"), 30)
        hangs.unlink()
        job.start()
        wait_for("the rest", lambda: arrived(job, 0) >= writer.written_to(0), STARTS_WITHIN_S)
        assert job.stop() == 0
        verdict = job.verdict(writer.schemas, writer.written)
    assert verdict.clean, f"{verdict}\n{verdict.examples}"
