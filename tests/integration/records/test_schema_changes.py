"""Tables that change while the job runs: each row arrives under the right schema, and what can't arrive is said."""

from __future__ import annotations

import json
import shutil
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.request import Request, urlopen

import pytest

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.encoding.group_encoder import POSITION_HEADER
from bridge.model.times import UnixMillis
from sandbox.scylla.base.mutations import Insert, Mutation
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.tables import SimulatedTable, create_keyspace
from sandbox.scylla.write_times import system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.verify.checker import Checker
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import CqlType, parse, resolve
from schemas.record_schemas import schema_text, value_schema
from schemas.wire.framing import unframe
from tests.integration.support.running import BridgeJob, wait_for

pytestmark = pytest.mark.integration

KEYSPACE = "alter_run"
KEYS = 20


Types = dict[str, list[tuple[str, CqlType]]]
SPOT: Types = {"spot": [("x", parse("int"))]}
WIDER_SPOT: Types = {"spot": [*SPOT["spot"], ("y", parse("text"))]}


def spot(*fields: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(one)) + one for one in fields)


def table(name: str, *, pk: str = "pk", ck: str = "ck", types: Types = SPOT, **values: str) -> TableSchema:
    key = (
        Column(pk, parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column(ck, parse("bigint"), ColumnKind.CLUSTERING, 0),
    )
    columns = (Column(column, resolve(parse(kind), types), ColumnKind.REGULAR) for column, kind in values.items())
    return TableSchema(KEYSPACE, name, (*key, *columns))


@pytest.fixture(scope="module")
def cluster(session: WritingSession) -> SimulatedCluster:
    made = SimulatedCluster(session, seed=11)
    made.reset()
    made.add_generation(UnixMillis(system_clock_us() // 1000 - 10_000))
    return made


@dataclass
class Written:
    """A table as it changes, with all that was written under each of its schemas."""

    session: WritingSession
    cluster: SimulatedCluster
    schemas: list[TableSchema]
    changes: list[list[ExpectedChange]] = field(default_factory=list)

    def create(self) -> None:
        SimulatedTable(self.schemas[-1]).create(self.session)

    @property
    def schema(self) -> TableSchema:
        return self.schemas[-1]

    @property
    def count(self) -> int:
        return sum(map(len, self.changes))

    def simulator(
        self, delta: Literal["full", "keys"] = "full"
    ) -> tuple[Simulator, SimulatedTable, list[ExpectedChange]]:
        simulated = SimulatedTable(self.schema, CdcOptions(delta=delta))
        simulator = Simulator(self.session, self.cluster, [simulated], seed=len(self.changes))
        mine: list[ExpectedChange] = []
        self.changes.append(mine)
        return simulator, simulated, mine

    def write(self, rows: int = KEYS, **values: bytes) -> None:
        """Insert a row for each key, under the newest schema."""
        self.write_with(*self.simulator(), rows=rows, **values)

    def write_with(
        self, simulator: Simulator, simulated: SimulatedTable, mine: list[ExpectedChange], *, rows: int, **values: bytes
    ) -> None:
        for number in range(rows):
            key = (number % KEYS).to_bytes(4, "big")
            insert = Insert(((number // KEYS).to_bytes(8, "big"),), dict(values))
            mine += simulator.write(simulated, Mutation((key,), (insert,)), system_clock_us())

    def alter(self, to: TableSchema, base: Sequence[str], log: Sequence[str]) -> None:
        """Carry out ALTER TABLE on base and log, as ScyllaDB does in one step."""
        for name, clauses in ((self.schema.name, base), (self.schema.log_table, log)):
            for clause in clauses:
                self.session.execute(f"ALTER TABLE {KEYSPACE}.{name} {clause}")
        self.schemas.append(to)

    def options(self, *, enabled: bool = True, delta: str = "full", ttl_s: int = 86_400) -> None:
        name = f"{KEYSPACE}.{self.schema.name}"
        options = f"'enabled': {str(enabled).lower()}, 'delta': '{delta}', 'ttl': {ttl_s}"
        self.session.execute(f"ALTER TABLE {name} WITH cdc = {{{options}}}")


def records(job: BridgeJob, topic: str) -> list[Record]:
    return list(job.records_of(topic))


def arrived(job: BridgeJob, written: Written) -> bool:
    assert job.process is not None
    assert job.process.poll() is None, job.log_tail()
    return job.arrived(f"{job.name}.{KEYSPACE}.{written.schema.name}") >= written.count


def wait(what: str, condition: Callable[[], bool]) -> None:
    wait_for(what, condition, timeout_s=240)


def says(job: BridgeJob, *words: str) -> bool:
    assert job.process is not None
    assert job.process.poll() is None, job.log_tail()
    lines = job.log.read_text(encoding="utf-8", errors="replace").splitlines()
    return any(all(word in line for word in words) for line in lines)


def no_compatibility(stack: LocalStack, subject: str) -> None:
    request = Request(
        f"{stack.registry}/config/{subject}",
        data=b'{"compatibility": "NONE"}',
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        method="PUT",
    )
    with urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def version_of(stack: LocalStack, subject: str, schema: TableSchema) -> int:
    request = Request(
        f"{stack.registry}/subjects/{subject}",
        data=json.dumps({"schema": schema_text(value_schema(schema))}).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urlopen(request, timeout=10) as answer:
        return int(json.load(answer)["version"])


def check(stack: LocalStack, written: Written, found: Iterable[Record]) -> list[int]:
    """Hold every record against what was written; gives the number of the schema of each, in the topic's order."""
    registry = Registry(stack.registry)
    forms = [json.loads(json.dumps(value_schema(schema))) for schema in written.schemas]
    checkers = [Checker([schema], registry) for schema in written.schemas]
    phases: dict[bytes, int] = {}
    for phase, changes in enumerate(written.changes):
        for change in changes:
            phases[change.stream_id + change.time + change.batch_seq_no.to_bytes(4, "big")] = phase
        for checker in checkers:
            checker.expect(changes)
    used: list[int] = []
    for record in found:
        assert record.value is not None
        form = json.loads(registry.get(unframe(record.value)[0]))
        number = forms.index(form)
        assert number >= schema_of_phase(written, phases[record.headers[POSITION_HEADER]]), "an older schema"
        checkers[number].see(record)
        used.append(number)
    verdicts = [checker.close() for checker in checkers]
    assert sum(verdict.arrived for verdict in verdicts) == written.count == len(used)
    for verdict in verdicts:
        bad = verdict.wrong, verdict.doubled, verdict.unexpected, verdict.out_of_order
        assert not any(bad), f"{verdict}\n{verdict.examples}"
    return used


def schema_of_phase(written: Written, phase: int) -> int:
    """Which schema was the newest when a phase's writes began."""
    return PHASE_SCHEMAS[phase] if written.schema.name == "t" else phase


PHASE_SCHEMAS = [0, 0, 1, 2, 3, 4, 5, 5, 5, 5, 5]
"""Of the phases of `test_a_table_changes_while_the_job_runs`: the schema that was newest when each began."""


def test_a_table_changes_while_the_job_runs(
    local_stack: LocalStack, session: WritingSession, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """ADD, DROP, ADD again, ALTER TYPE, RENAME, keys only and back, CDC off and on, a new table: one run of the job.

    A second table whose change the registry refuses stops with an error that names it, and the first goes on.
    """
    create_keyspace(session, KEYSPACE)
    session.execute(f"CREATE TYPE {KEYSPACE}.spot (x int)")
    written = Written(session, cluster, [table("t", note="text", n="int", p="frozen<spot>")])
    refused = Written(session, cluster, [table("refused", v="text")])
    written.create()
    refused.create()
    topic = f"alter.{KEYSPACE}.t"
    with BridgeJob(local_stack, tmp_path, "alter", [f"{KEYSPACE}.t", f"{KEYSPACE}.refused"]) as job:
        written.write(note=b"first", n=bytes(4), p=spot(bytes(4)))
        refused.write(v=b"first")
        job.start()
        wait("the first changes", lambda: arrived(job, written) and arrived(job, refused))
        no_compatibility(local_stack, f"{topic}-value")
        _change_columns(session, job, written)
        _rename_keys(job, written, refused)
        _change_cdc_options(job, written)
        _recreate(session, job, written)

        used = check(local_stack, written, records(job, topic))
        assert set(used) == set(range(len(written.schemas)))
        versions = [version_of(local_stack, f"{topic}-value", schema) for schema in written.schemas]
        assert versions == sorted(versions), "registered in another order than they came in"
        assert len(records(job, f"alter.{KEYSPACE}.refused")) == refused.count
        assert job.stop() == 1  # for the table that was given up
        _recreate_between_two_runs(session, job, written)


def _change_columns(session: WritingSession, job: BridgeJob, written: Written) -> None:
    # ADD, while a writer that does not know of it goes on.
    simulator = written.simulator()
    writer = threading.Thread(target=lambda: written.write_with(*simulator, rows=600, note=b"meanwhile"))
    writer.start()
    written.alter(
        table("t", note="text", n="int", extra="text", p="frozen<spot>"),
        ["ADD extra text"],
        ['ADD (extra text, "cdc$deleted_extra" boolean)'],
    )
    written.write(note=b"second", extra=b"new")
    writer.join(60)
    wait("what was written around ADD", lambda: arrived(job, written))

    written.alter(
        table("t", n="int", extra="text", p="frozen<spot>"), ["DROP note"], ['DROP (note, "cdc$deleted_note")']
    )
    written.write(extra=b"third", n=bytes(4))
    wait("what was written after DROP", lambda: arrived(job, written))

    written.alter(
        table("t", n="int", extra="text", note="blob", p="frozen<spot>"),
        ["ADD note blob"],
        ['ADD (note blob, "cdc$deleted_note" boolean)'],
    )
    written.write(note=b"\xff\xfe", extra=b"fourth", p=spot(b"\x00\x00\x00\x01"))
    wait("what was written after the column came back as a blob", lambda: arrived(job, written))

    session.execute(f"ALTER TYPE {KEYSPACE}.spot ADD y text")
    written.schemas.append(table("t", types=WIDER_SPOT, n="int", extra="text", note="blob", p="frozen<spot>"))
    written.write(extra=b"fifth", p=spot(b"\x00\x00\x00\x02", b"north"))
    wait("what was written after ALTER TYPE", lambda: arrived(job, written))


def _rename_keys(job: BridgeJob, written: Written, refused: Written) -> None:
    written.alter(
        table("t", types=WIDER_SPOT, ck="line", n="int", extra="text", note="blob", p="frozen<spot>"),
        ["RENAME ck TO line"],
        ["DROP ck", "ADD line bigint"],
    )
    refused.alter(table("refused", pk="id", v="text"), ["RENAME pk TO id"], ["DROP pk", "ADD id int"])
    written.write(note=b"\x00", n=bytes(4))
    refused.write(v=b"second")
    refused.changes.pop()
    wait("what was written after RENAME", lambda: arrived(job, written))
    wait("the warning about RENAME", lambda: says(job, f"{KEYSPACE}.t: key column ck was renamed to line"))
    wait(
        "the registry's refusal",
        lambda: says(job, f"{KEYSPACE}.refused", "partition key column pk is now named id", "refused-key", "stop"),
    )


def _change_cdc_options(job: BridgeJob, written: Written) -> None:
    written.options(delta="keys")
    wait("the warning about keys only", lambda: says(job, f"{KEYSPACE}.t: the cdc option 'delta' is 'keys' since"))
    written.write_with(*written.simulator("keys"), rows=KEYS, note=b"untold")
    # What is unread when the option goes back is still read as rows that name no column.
    written.options(delta="full")
    written.write(note=b"told again")
    wait("what was written with the log's option at keys and back", lambda: arrived(job, written))
    wait("that the log says all again", lambda: says(job, f"{KEYSPACE}.t: the cdc option 'delta' is 'full' since"))

    written.options(enabled=False)
    wait("the warning that CDC is off", lambda: says(job, f"{KEYSPACE}.t: CDC is off since about"))
    written.options(enabled=True)
    written.write(note=b"on again")
    wait("that CDC is on again", lambda: says(job, f"{KEYSPACE}.t: CDC is on again"))
    wait("what was written with CDC on again", lambda: arrived(job, written))


def _recreate(session: WritingSession, job: BridgeJob, written: Written) -> None:
    SimulatedTable(written.schema).drop(session)
    wait("the warning that the table is gone", lambda: says(job, f"{KEYSPACE}.t", "does not exist"))
    written.create()
    written.write(note=b"anew")
    wait("what was written to the new table", lambda: arrived(job, written))
    # Said at the planner's next look at the table, which the new table's first changes may be ahead of.
    wait("the warning that the table was created again", lambda: says(job, f"{KEYSPACE}.t", "created again"))


def _recreate_between_two_runs(session: WritingSession, job: BridgeJob, written: Written) -> None:
    # While no job runs: the next run knows from the progress topic that the log is another one.
    shutil.rmtree(job.folder / "checkpoint")
    log_before = job.log.stat().st_size
    SimulatedTable(written.schema).drop(session)
    written.create()
    job.tables = [f"{KEYSPACE}.t"]
    job.run_once()
    said = job.log.read_bytes()[log_before:].decode()
    assert (
        f"{KEYSPACE}.t: the table was dropped and created again: changes of the former one that were written between"
        in said
    )


def test_what_expired_under_a_ttl_that_was_raised_again_is_told(
    local_stack: LocalStack, session: WritingSession, cluster: SimulatedCluster, tmp_path: Path
) -> None:
    """The job has seen the short TTL and stops while changes expire. The next job finds a long TTL again."""
    create_keyspace(session, KEYSPACE)
    written = Written(session, cluster, [table("short", v="text")])
    written.create()
    name = f"{KEYSPACE}.short"
    with BridgeJob(local_stack, tmp_path, "ttl", [name]) as job:
        written.write(v=b"before")
        job.start()
        wait("the first changes", lambda: arrived(job, written))
        written.options(ttl_s=15)
        wait("the warning about the TTL", lambda: says(job, f"{name}: the cdc option 'ttl' is 15 s since"))
        assert job.stop() == 0
        # The progress topic keeps the TTL.
        shutil.rmtree(tmp_path / "checkpoint")
        written.write(v=b"unread")
        unread_until_us = system_clock_us()
        wait("that it would have expired", lambda: system_clock_us() > unread_until_us + 16_000_000)
        written.options()
        assert job.start("--once").wait(180) == 1, job.log_tail()
        told = f"{name} stops: {name}: the log's TTL has passed: changes written between "
        assert told in job.log.read_text(encoding="utf-8", errors="replace"), job.log_tail()
        job.settings["reading"] = {"accept_data_loss": True}
        job.run_once()
