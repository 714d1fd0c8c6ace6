"""Runs the real job in processes of its own, kills parts of it, and reads what arrived as any consumer would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.config.document import BridgeConfig, TableSettings, validate
from bridge.errors import RetriableError
from sandbox.scylla.oracle import ExpectedChange
from sandbox.stack.stack import LocalStack
from sandbox.verify.checker import Checker, Verdict
from schemas.cql.table import TableSchema

_REPOSITORY = Path(__file__).resolve().parents[3]


def wait_for(what: str, condition: Callable[[], bool], timeout_s: float = 90) -> None:
    """Wait until a condition holds, or fail saying what did not come about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:.0f} s"
        time.sleep(0.2)


@dataclass
class _Count:
    """Counts the records of a topic while they come."""

    reader: CommittedReader
    records: int = 0

    def so_far(self) -> int:
        while found := self.reader.poll(5_000, 0.2):
            self.records += len(found)
        return self.records


@dataclass
class BridgeJob:
    """The job of one configuration file, started and ended any number of times."""

    stack: LocalStack
    folder: Path
    name: str
    tables: list[Any]
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    _clients: ExitStack = field(default_factory=ExitStack, init=False)
    _looking: tuple[KafkaAdmin, CommittedReader] | None = field(default=None, init=False)
    _counts: dict[str, _Count] = field(default_factory=dict, init=False)

    def mapping(self) -> dict[str, Any]:
        base: dict[str, Any] = {
            "name": self.name,
            "scylla": {"contact_points": self.stack.cql},
            "kafka": {"bootstrap_servers": self.stack.kafka, "partitions": 4},
            "registry": {"url": self.stack.registry},
            "tables": self.tables,
            # A micro-batch of a new job takes seconds whatever is in it: read a log that was written ahead in few.
            "reading": {"confidence_ms": 500, "idle_interval_ms": 2000, "target_batch_ms": 20_000},
            "publishing": {"topic": self.name + ".{keyspace}.{table}"},
            "spark": {
                "master": "local[2]",
                "checkpoint": str(self.folder / "checkpoint"),
                "properties": {
                    "spark.local.dir": str(self.folder / "scratch"),
                    # A run of a minute never earns back what the second compiler costs: a third of a start's CPU time.
                    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                },
            },
        }
        for section, values in self.settings.items():
            base[section] = base.get(section, {}) | values
        return base

    @property
    def config(self) -> BridgeConfig:
        return validate(self.mapping())

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    def __enter__(self) -> BridgeJob:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything, whether or not the test passed."""
        self._clients.close()
        if self.process is not None and self.process.poll() is None:
            self.kill_group()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start the job as a process group of its own."""
        path = self.folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(self.mapping()), encoding="utf-8")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark.job", "-c", str(path), *arguments],
                cwd=_REPOSITORY,
                env=os.environ | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def run_once(self, timeout_s: float = 180) -> None:
        """Publish everything that can be read now."""
        status = self.start("--once").wait(timeout_s)
        assert status == 0, f"exit status {status}\n{self.log_tail()}"

    def stop(self) -> int:
        """Ask for a clean stop and give the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def jvm(self) -> psutil.Process:
        (found,) = [one for one in self._children() if Path(_command(one)[0]).name == "java"]
        return found

    def workers(self) -> list[psutil.Process]:
        """Python processes that Spark's daemons have forked; the daemons are forks of a warm process."""
        everyone = self._children()
        warm = {one.pid for one in everyone if "spark.workers.fork_server" in _command(one)}
        daemons = {one.pid for one in everyone if _parent(one) in warm}
        return [one for one in everyone if _parent(one) in daemons]

    def kill_group(self) -> None:
        """End every process of the job with SIGKILL."""
        assert self.process is not None
        doomed = self._children()
        os.killpg(self.process.pid, signal.SIGKILL)
        for one in doomed:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self.process.wait(30)
        psutil.wait_procs(doomed, timeout=30)

    def committed(self) -> int:
        """Committed records and markers so far in the change topics' partitions, roughly: their end offsets."""
        config = self.config
        admin, reader = self._kafka()
        total = 0
        for topic in map(config.topic_of, config.tables):
            total += sum(reader.end(topic, partition) for partition in range(admin.partitions(topic)))
        return total

    def arrived(self, topic: str) -> int:
        """How many committed records a topic has so far; what was counted before is not read again."""
        if topic not in self._counts:
            try:
                partitions = self._kafka()[0].partitions(topic)
            except RetriableError:  # a topic that was made just now has no leader yet
                return 0
            if partitions == 0:
                return 0
            reader = self._clients.enter_context(CommittedReader(self.config.kafka))
            reader.follow(topic, range(partitions))
            self._counts[topic] = _Count(reader)
        return self._counts[topic].so_far()

    def records(self, table: TableSettings, within_s: float = 60) -> Iterator[Record]:
        """What a table's topic holds, read with read_committed from its beginning to its end.

        `within_s` is for reading and for whatever is done with each record meanwhile.
        """
        return self.records_of(self.config.topic_of(table), within_s)

    def records_of(self, topic: str, within_s: float = 60) -> Iterator[Record]:
        """Return the number of committed records and markers of any topic."""
        partitions = range(KafkaAdmin(self.config.kafka).partitions(topic))
        with CommittedReader(self.config.kafka) as reader:
            yield from reader.read_to_end(topic, partitions, within_s)

    def verdict(
        self,
        tables: Iterable[TableSchema],
        expected: Iterable[ExpectedChange],
        *,
        full: Collection[str] = (),
        within_s: float = 60,
    ) -> Verdict:
        """Hold the topics against the oracle; `full` as of the checker, `within_s` as of `records` for each topic."""
        checker = Checker(tables, Registry(self.stack.registry), full=full)
        checker.expect(expected)
        for table in self.config.tables:
            for record in self.records(table, within_s):
                checker.see(record)
        return checker.close()

    def _kafka(self) -> tuple[KafkaAdmin, CommittedReader]:
        # Kept: a wait asks many times, and each client created again costs more than its question.
        if self._looking is None:
            kafka = self.config.kafka
            self._looking = KafkaAdmin(kafka), self._clients.enter_context(CommittedReader(kafka))
        return self._looking

    def _children(self) -> list[psutil.Process]:
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def job_reached(job: BridgeJob, goal: int) -> bool:
    """Whether a running job has begun its work and committed as much as this, by `BridgeJob.committed`."""
    assert job.process is not None
    assert job.process.poll() is None, job.log_tail()
    return "lanes, from" in job.log.read_text(errors="replace") and job.committed() >= goal


def _command(process: psutil.Process) -> list[str]:
    """The command line; empty when the process has ended meanwhile."""
    try:
        return process.cmdline() or [""]
    except psutil.NoSuchProcess:
        return [""]


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0
