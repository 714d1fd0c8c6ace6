"""Prepares the demo: local stack, tables, generations, a recorded log, and the bridge's configuration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.config.document import ScyllaSettings
from bridge.model.times import UnixMillis, micros_of
from sandbox.demo import plan
from sandbox.errors import LocalStackError
from sandbox.recordings.expected import expected_changes
from sandbox.recordings.loader import load
from sandbox.recordings.recording import Recording
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.write_times import paced
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.names import quoted
from schemas.cql.table import TableSchema

Say = Callable[[str], None]


@contextmanager
def running_stack(
    folder: Path, *, jars: Path, keep: bool, delete_data: Callable[[], bool], say: Say
) -> Iterator[LocalStack]:
    """Use the stack that runs in a folder, or start one there and stop it at the end.

    Args:
        folder: the stack's folder.
        jars: folder of the servers' jars.
        keep: leave the stack running.
        delete_data: called at the end; returns whether to delete the data of the stopped stack. After a failure the
            data stay in any case.
        say: receives lines on the progress.

    Raises:
        LocalStackError: the stack could not be started.
    """
    stack = _already_running(folder)
    if stack is not None:
        say(f"Using the running local stack in {folder}")
        yield stack
        return
    say(f"Starting the local stack in {folder}")
    stack = LocalStack.up(folder, jars=jars, report=lambda line: say(f"  {line}"))
    failed = True
    try:
        yield stack
        failed = False
    finally:
        if keep:
            say(f"The local stack keeps running. Stop it with: scylla-cdc-bridge local down --folder {folder}")
        else:
            say("Stopping the local stack")
            stack.down(delete_data=not failed and delete_data())


def _already_running(folder: Path) -> LocalStack | None:
    try:
        stack = LocalStack.load(folder)
    except LocalStackError:
        return None
    return stack if all(one.is_up for one in stack.status()) else None


@dataclass(frozen=True, slots=True)
class Scenario:
    """The content of the CQL server when the bridge starts.

    Attributes:
        simulated: schemas of the tables that the writer will write.
        recorded: schemas of the tables with a recorded log.
        recorded_changes: changes in the recorded logs.
        backlog: changes that were written to the simulated tables.
        first_generation_ms: start of the simulated cluster's first generation.
    """

    simulated: tuple[TableSchema, ...]
    recorded: tuple[TableSchema, ...]
    recorded_changes: tuple[ExpectedChange, ...]
    backlog: tuple[ExpectedChange, ...]
    first_generation_ms: UnixMillis

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Every captured table."""
        return (*self.recorded, *self.simulated)


def prepare_scenario(stack: LocalStack, *, seed: int, say: Say) -> Scenario:
    """Write generations, tables and the recorded logs to the server, and remove those of an earlier demo.

    Raises:
        RetriableError, BridgeError: the server failed.
    """
    session = WritingSession.connect(ScyllaSettings(contact_points=(stack.cql,), consistency="ONE"))
    try:
        for keyspace in (plan.KEYSPACE, plan.RECORDED_KEYSPACE):
            session.execute(f"DROP KEYSPACE IF EXISTS {quoted(keyspace)}")
        cluster = SimulatedCluster(session, seed=seed)
        # The recording's loader also empties the generation tables, so load it before the first generation.
        cluster.reset()
        now_ms = UnixMillis(time.time_ns() // 1_000_000)
        recording = Recording.load(plan.RECORDED_SCENARIO)
        shift_ms = plan.recorded_shift_ms(_last_ms(recording), now_ms)
        load(session, recording, keyspace=plan.RECORDED_KEYSPACE, shift_ms=shift_ms)
        recorded = tuple(table.table_schema(plan.RECORDED_KEYSPACE) for table in recording.tables)
        changes = tuple(
            change
            for table in recording.tables
            for change in expected_changes(recording, table, keyspace=plan.RECORDED_KEYSPACE, shift_ms=shift_ms)
        )
        say(f"Loaded {len(changes)} changes that a real ScyllaDB node logged ({_names(recorded)})")
        first_ms = plan.first_generation_ms(now_ms)
        cluster.add_generation(first_ms)
        simulated = plan.tables()
        for one in simulated:
            one.table.create(session)
        log = ChangeLog(session)
        for schema in (*recorded, *(one.table.table_schema for one in simulated)):
            log.check_captured(schema.keyspace, schema.name)
        backlog = _write_backlog(session, cluster, simulated, seed)
    finally:
        session.close()
    written = tuple(one.table.table_schema for one in simulated)
    say(f"Wrote {len(backlog)} changes to new tables ({_names(written)})")
    return Scenario(written, recorded, changes, backlog, first_ms)


def _write_backlog(
    session: WritingSession, cluster: SimulatedCluster, tables: Sequence[plan.DemoTable], seed: int
) -> tuple[ExpectedChange, ...]:
    """Write a few changes of each table: when they have arrived, the bridge has caught up with the table."""
    simulator = Simulator(session, cluster, [one.table for one in tables], seed=seed, rfc_variant=True)
    for one in tables:
        mutations = paced(one.workload(seed), count=plan.BACKLOG_WRITES)
        simulator.write_many(one.table, mutations)
    return tuple(simulator.oracle)


def _last_ms(recording: Recording) -> UnixMillis:
    times = (row[1] for table in recording.tables for row in table.loadable_log)
    return UnixMillis(max(micros_of(time) for time in times if time is not None) // 1000)


def _names(tables: tuple[TableSchema, ...]) -> str:
    return ", ".join(table.full_name for table in tables)


def write_configuration(path: Path, stack: LocalStack, scenario: Scenario, *, name: str, folder: Path) -> None:
    """Write the bridge's configuration file, as a user would.

    Args:
        path: path of the file.
        stack: the servers.
        scenario: the tables to capture.
        name: name of the job. Use a new name for each run, because topics and progress belong to it.
        folder: folder for Spark's checkpoint and scratch files.
    """
    settings = {
        "name": name,
        "scylla": {"contact_points": [stack.cql]},
        "kafka": {"bootstrap_servers": [stack.kafka]},
        "registry": {"url": stack.registry},
        # One lane is enough for the short recorded logs, and leaves the cores to the other tables.
        "tables": [
            *({"name": _cql_name(table), "lanes": 1} for table in scenario.recorded),
            *(_cql_name(table) for table in scenario.simulated),
        ],
        # ScyllaDB's leeway is 5 s. Such a short confidence window is safe only with one machine and one clock.
        "reading": {"confidence_ms": plan.CONFIDENCE_MS, "leeway_ms": plan.LEEWAY_MS},
        "publishing": {"topic": topic_of(name, "{keyspace}", "{table}")},
        "spark": {
            "checkpoint": str(folder / "checkpoint"),
            "properties": {"spark.local.dir": str((folder / "spark").absolute())},
        },
    }
    # Through JSON, because safe_dump refuses subclasses of str.
    path.write_text(yaml.safe_dump(json.loads(json.dumps(settings)), sort_keys=False), encoding="utf-8")


def _cql_name(table: TableSchema) -> str:
    return f"{table.keyspace}.{table.name}"


def topic_of(name: str, keyspace: str, table: str) -> str:
    """The change topic of a table in a demo's job."""
    return f"{name}.{keyspace}.{table}"
