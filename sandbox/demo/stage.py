"""Sets the demo's stage: local stack, tables, generations, a recorded log, and the bridge's configuration."""

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
from bridge.model.cql_names import quoted
from bridge.model.times import UnixMillis, micros_of
from sandbox.cql.writing_session import WritingSession
from sandbox.demo import plan
from sandbox.errors import LocalStackError
from sandbox.recordings.expected import expected_changes
from sandbox.recordings.loader import load
from sandbox.recordings.recording import Recording
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.pacing import paced
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from schemas.cql.table import TableSchema

Say = Callable[[str], None]


@contextmanager
def running_stack(
    folder: Path, *, jars: Path, keep: bool, delete_data: Callable[[], bool], say: Say
) -> Iterator[LocalStack]:
    """The stack in a folder: the one that runs there, else one that is started, and stopped again at the end.

    Args:
        folder: of the stack.
        jars: folder of the servers' jars.
        keep: leave it running.
        delete_data: asked at the end whether to delete the data of the stack that is stopped; after a failure they
            stay in any case.
        say: gets lines on the progress.

    Raises:
        LocalStackError: it could not be started.
    """
    stack = _already_running(folder)
    if stack is not None:
        say(f"Using the local stack that runs in {folder}")
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
            say(f"The local stack goes on; stop it with: scylla-cdc-bridge local down --folder {folder}")
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
class Stage:
    """What stands in the server when the bridge starts.

    Attributes:
        simulated: schemas of the tables that the writer will write.
        recorded: schemas of the tables whose logs are loaded already.
        recorded_changes: what those logs hold.
        backlog: what was written to the simulated tables.
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


def prepare(stack: LocalStack, *, seed: int, say: Say) -> Stage:
    """Put generations, tables and the recorded logs into the server, in place of those of an earlier demo.

    Raises:
        RetriableError, BridgeError: the server failed.
    """
    session = WritingSession.connect(ScyllaSettings(contact_points=(stack.cql,), consistency="ONE"))
    try:
        for keyspace in (plan.KEYSPACE, plan.RECORDED_KEYSPACE):
            session.execute(f"DROP KEYSPACE IF EXISTS {quoted(keyspace)}")
        cluster = SimulatedCluster(session, seed=seed)
        # The recording's loader empties the generation tables too, and must so come before the first generation.
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
        say(f"Loaded {len(changes)} log rows that a real ScyllaDB node wrote ({_names(recorded)})")
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
    return Stage(written, recorded, changes, backlog, first_ms)


def _write_backlog(
    session: WritingSession, cluster: SimulatedCluster, tables: Sequence[plan.DemoTable], seed: int
) -> tuple[ExpectedChange, ...]:
    """A few changes of each table: once they have arrived, the bridge has caught up with it."""
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


def write_configuration(path: Path, stack: LocalStack, stage: Stage, *, name: str, folder: Path) -> None:
    """Write the bridge's configuration file, as a user would.

    Args:
        path: of the file.
        stack: where the servers are.
        stage: what to capture.
        name: of the job; with a new one nothing that an earlier demo published is in the way.
        folder: for Spark's checkpoint and scratch files.
    """
    settings = {
        "name": name,
        "scylla": {"contact_points": [stack.cql]},
        "kafka": {"bootstrap_servers": [stack.kafka]},
        "registry": {"url": stack.registry},
        # What was recorded is soon read: one lane is enough for it, and leaves the cores to the others.
        "tables": [
            *({"name": _cql_name(table), "lanes": 1} for table in stage.recorded),
            *(_cql_name(table) for table in stage.simulated),
        ],
        # ScyllaDB's leeway is 5 s; a confidence window as short as this is for one machine with one clock.
        "reading": {"confidence_ms": plan.CONFIDENCE_MS, "leeway_ms": plan.LEEWAY_MS},
        "publishing": {"topic": topic_of(name, "{keyspace}", "{table}")},
        "spark": {
            "checkpoint": str(folder / "checkpoint"),
            "properties": {"spark.local.dir": str((folder / "spark").absolute())},
        },
    }
    # By way of JSON: values that are texts of a class of their own are plain texts in the file.
    path.write_text(yaml.safe_dump(json.loads(json.dumps(settings)), sort_keys=False), encoding="utf-8")


def _cql_name(table: TableSchema) -> str:
    return f"{table.keyspace}.{table.name}"


def topic_of(name: str, keyspace: str, table: str) -> str:
    """The change topic of a table in a demo's job."""
    return f"{name}.{keyspace}.{table}"
