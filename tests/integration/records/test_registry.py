"""The real schema registry: subjects, refusals, schemas that others register, and its absence while the job runs."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from bridge.adapters.registry.client import Registry
from bridge.cli import main
from bridge.model.times import UnixMillis
from sandbox.scylla.base.mutations import Mutation
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import paced, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from schemas.errors import IncompatibleSchemaError
from schemas.record_schemas import schema_text, value_schema
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = pytest.mark.integration

STRATEGIES = {
    "TopicName": ("{topic}-key", "{topic}-value"),
    "RecordName": ("{record}.Key", "{record}.Envelope"),
    "TopicRecordName": ("{topic}-{record}.Key", "{topic}-{record}.Envelope"),
}


def table(keyspace: str, name: str) -> TableSchema:
    columns = (
        Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("ck", parse("bigint"), ColumnKind.CLUSTERING, 0),
        Column("v", parse("text"), ColumnKind.REGULAR),
    )
    return TableSchema(keyspace, name, columns)


@pytest.fixture
def captured(session: WritingSession) -> TableSchema:
    """A captured table that nothing was written to."""
    schema = table(f"reg_{uuid.uuid4().hex[:8]}", "t")
    SimulatedTable(schema).create(session)
    return schema


def config_file(stack: LocalStack, folder: Path, schema: TableSchema, **registry: object) -> str:
    settings: dict[str, Any] = {
        "name": schema.keyspace,
        "scylla": {"contact_points": stack.cql},
        "kafka": {"bootstrap_servers": stack.kafka},
        "registry": {"url": stack.registry, **registry},
        "tables": [schema.full_name],
        "startup": {"patience_s": 10},
    }
    path = folder / "bridge.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return str(path)


def call(stack: LocalStack, path: str, body: dict[str, str] | None = None) -> Any:
    """Ask the registry past the code under test."""
    request = urllib.request.Request(
        f"{stack.registry}/{path}",
        method="GET" if body is None else "PUT",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return json.load(answer)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_subjects(local_stack: LocalStack, captured: TableSchema, tmp_path: Path, strategy: str) -> None:
    """Schemas are registered under the subjects of each strategy, and found there again."""
    config = config_file(local_stack, tmp_path, captured, subject_name_strategy=strategy)
    assert main.main(["schemas", "-c", config, "--register"]) == 0
    names = {"topic": captured.full_name, "record": captured.full_name}
    expected = {pattern.format_map(names) for pattern in STRATEGIES[strategy]}
    assert {subject for subject in call(local_stack, "subjects") if captured.keyspace in subject} == expected
    manual = config_file(local_stack, tmp_path, captured, subject_name_strategy=strategy, auto_register=False)
    assert main.main(["validate", "-c", manual, "--online"]) == 0


def test_incompatible(
    local_stack: LocalStack, captured: TableSchema, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A schema that a subject's rule forbids is refused before anything starts, and taken when the rule allows it."""
    subject = f"{captured.full_name}-value"
    registry = Registry(local_stack.registry)
    registry.register(
        subject, schema_text({"type": "record", "name": "Envelope", "namespace": captured.full_name, "fields": []})
    )
    config = config_file(local_stack, tmp_path, captured)
    assert main.main(["validate", "-c", config, "--online"]) == 2
    refused = capsys.readouterr().err
    assert f"{captured.full_name}: schema registry {local_stack.registry}: subject {subject} refuses" in refused
    assert "by its rule BACKWARD" in refused
    assert call(local_stack, f"subjects/{subject}/versions") == [1]

    ours = schema_text(value_schema(captured))
    with pytest.raises(IncompatibleSchemaError, match=r"its rule BACKWARD: .*/fields/0") as caught:
        registry.register(subject, ours)
    assert (caught.value.subject, caught.value.rule) == (subject, "BACKWARD")
    call(local_stack, f"config/{subject}", {"compatibility": "FORWARD"})
    assert registry.register(subject, ours) > 0
    registry.close()


def arrived(job: BridgeJob, schema: TableSchema) -> int:
    """How many changes of a table have arrived."""
    assert job.process is not None
    assert job.process.poll() is None, job.log_tail()
    return job.arrived(job.config.topic_of(job.config.table(schema.keyspace, schema.name)))


class Writer:
    """Writes to two tables of one cluster, and knows what must arrive."""

    def __init__(self, session: WritingSession, schemas: list[TableSchema]) -> None:
        cluster = SimulatedCluster(session, seed=7)
        cluster.reset()
        cluster.add_generation(UnixMillis(system_clock_us() // 1000 - 5_000))
        self._tables = {schema: SimulatedTable(schema) for schema in schemas}
        for simulated in self._tables.values():
            simulated.create(session)
        self.simulator = Simulator(session, cluster, list(self._tables.values()), seed=7)
        self._mutations: dict[TableSchema, Iterator[Mutation]] = {
            schema: iter(Workload(schema, seed=7, keys=50)) for schema in schemas
        }

    def write(self, schema: TableSchema, count: int = 100) -> None:
        taken = list(islice(self._mutations[schema], count))
        self.simulator.write_many(self._tables[schema], paced(taken, count=count))

    def written(self, schema: TableSchema) -> int:
        return sum(1 for change in self.simulator.oracle if change.table == schema.name)


def test_outage(session: WritingSession, local_stack: LocalStack, tmp_path: Path) -> None:
    """Schemas that others register are waited for; without the registry what is known flows on, and the rest waits."""
    keyspace = f"reg_{uuid.uuid4().hex[:8]}"
    known, fresh = table(keyspace, "known"), table(keyspace, "fresh")
    writer = Writer(session, [known, fresh])
    registry = {"auto_register": False, "subject_name_strategy": "TopicRecordName", "request_timeout_ms": 2_000}
    settings = {"registry": registry, "spark": {"lanes": 1}}
    with BridgeJob(local_stack, tmp_path, keyspace, [known.full_name, fresh.full_name], settings) as job:
        config = str(tmp_path / f"{keyspace}.yaml")
        assert job.start().wait(60) == 2, job.log_tail()
        topic = job.config.topic_of(job.config.table(keyspace, "fresh"))
        assert f"subject {topic}-{keyspace}.fresh.Key does not hold the needed schema" in job.log_tail()
        assert main.main(["schemas", "-c", config, "--register"]) == 0

        def all_arrived(schema: TableSchema) -> bool:
            return arrived(job, schema) == writer.written(schema)

        job.start()
        writer.write(known)
        wait_for("the changes of the table whose schemas get known", lambda: all_arrived(known))
        local_stack.kill("registry")
        try:
            writer.write(known)
            wait_for("known schemas without the registry", lambda: all_arrived(known))
            writer.write(fresh)
            waiting = f"{fresh.full_name}: schema registry {local_stack.registry}: look up subject {topic}"
            wait_for("the outage in the log", lambda: waiting in job.log.read_text(errors="replace"))
            doomed = job.workers()
            assert doomed, "no Python worker was running"
            for worker in doomed:
                with suppress(psutil.NoSuchProcess):
                    worker.kill()
            psutil.wait_procs(doomed, timeout=10)
            writer.write(known)
            wait_for("known schemas in fresh workers without the registry", lambda: all_arrived(known))
            assert arrived(job, fresh) == 0
        finally:
            local_stack.start("registry")
        wait_for("the changes that waited for the registry", lambda: all_arrived(fresh))
        assert job.stop() == 0, job.log_tail()
        verdict = job.verdict([known, fresh], writer.simulator.oracle)
        assert verdict.clean, f"{verdict}\n{verdict.examples}\n{job.log_tail()}"
