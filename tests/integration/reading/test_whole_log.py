"""Everything that a log can hold, by one job through real servers: each change, and the tables as they were."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import pytest

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.nested import UserType
from sandbox.scylla.workload import EVERYTHING, Workload, with_own_timestamps
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.stack.stack import LocalStack
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from schemas.wire.framing import unframe
from tests.copied import assert_same, sorts
from tests.integration.support.running import BridgeJob
from tests.replica import Replica

pytestmark = pytest.mark.integration

SECOND_US = 1_000_000
REQUESTS = 400
PLACE = UserType("place", (("name", parse("text")), ("at", parse("frozen<tuple<double, double>>"))))
VALUES = ("int", "set<text>", "map<uuid, frozen<list<int>>>", "list<frozen<place>>", "place", "vector<float, 3>",
          "tuple<varint, frozen<map<date, inet>>>", "duration")  # fmt: skip
# Nothing expires while the test runs.
MIX = replace(EVERYTHING, ttls=0.2, ttls_s=(7200, 86_400), statics=0.3)


def table(name: str, *, clustering: bool, options: CdcOptions) -> SimulatedTable:
    columns = [Column("id", parse("text"), ColumnKind.PARTITION_KEY, 0)]
    columns += [Column(f"v {at}", parse(text), ColumnKind.REGULAR) for at, text in enumerate(VALUES)]
    if clustering:
        columns.append(Column("line", parse("int"), ColumnKind.CLUSTERING, 0, descending=True))
        columns.append(Column("Part", parse("timeuuid"), ColumnKind.CLUSTERING, 1))
        columns += [Column(f"s{at}", parse(text), ColumnKind.STATIC) for at, text in enumerate(VALUES[:5])]
    # Each in a keyspace of its own, for the type.
    return SimulatedTable(TableSchema(f"whole_{name}", name, tuple(columns)), options, (PLACE,))


TABLES = {
    "deltas": table("deltas", clustering=True, options=CdcOptions()),
    "images": table("images", clustering=True, options=CdcOptions(preimage="full", postimage=True)),
    "lone": table("lone", clustering=False, options=CdcOptions(preimage="true")),
}
FULL = ("images", "lone")


def written(session: WritingSession) -> tuple[list[Simulator], UnixMicros]:
    """A minute of requests to every table, each by a writer of its own, over a change of the generation."""
    cluster = SimulatedCluster(session, seed=21)
    cluster.reset()
    now_us = system_clock_us()
    for ago_s in (90, 40):
        cluster.add_generation(UnixMillis((now_us - ago_s * SECOND_US) // 1000))
    start_us, until_us = UnixMicros(now_us - 70 * SECOND_US), UnixMicros(now_us - 5 * SECOND_US)
    writers = []
    for seed, each in enumerate(TABLES.values()):
        each.create(session)
        writers.append(Simulator(session, cluster, [each], seed=seed, keep_base=True))
        workload = Workload(each.table_schema, seed=21, keys=6, rows_per_key=6, mix=MIX, pool=20)
        timed = spread(islice(workload, REQUESTS), count=REQUESTS, start_us=start_us, until_us=until_us)
        writers[-1].load(each, with_own_timestamps(timed, seed=21))
        # A client that did not hear the answer sends it again: two groups, both of which are delivered by default.
        (mutation,) = islice(workload, 1)
        again = writers[-1].write(each, mutation, until_us, times=2)
        assert len({change.time for change in again}) == 2 * len({change.timestamp_us for change in again})
    return writers, now_us


def test_a_log_of_everything(local_stack: LocalStack, session: WritingSession, tmp_path: Path) -> None:
    """Checked change by change against the oracle, and table by table by a consumer's copy."""
    writers, now_us = written(session)
    changes = [change for writer in writers for change in writer.oracle]
    operations = {change.operation for change in changes}
    assert operations >= {1, 2, 3, 4, 5, 6, -3, -4}
    configured = [
        {"name": each.table_schema.full_name, "shape": "full" if name in FULL else "delta"}
        for name, each in TABLES.items()
    ]
    registry = Registry(local_stack.registry)
    with BridgeJob(local_stack, tmp_path, "whole", configured) as job:
        job.run_once()
        schemas = [each.table_schema for each in TABLES.values()]
        full = [TABLES[name].table_schema.full_name for name in FULL]
        verdict = job.verdict(schemas, changes, full=full)
        assert verdict.clean, f"{verdict}\n{verdict.examples}"
        assert verdict.arrived == len(changes) > 3 * REQUESTS
        for each, writer, settings in zip(TABLES.values(), writers, job.config.tables, strict=True):
            replica = copied(each.table_schema, job.records(settings), registry)
            assert_same(each.table_schema, replica, writer.base(each), now_us)


def copied(schema: TableSchema, records: Iterable[Record], registry: Registry) -> Replica:
    """What a consumer makes of a topic: it knows the registry's schemas, and how clustering values sort."""
    forms: dict[int, Any] = {}

    def decoded(message: bytes | None) -> Any:
        assert message is not None
        schema_id, body = unframe(message)
        if schema_id not in forms:
            forms[schema_id] = fastavro.parse_schema(json.loads(registry.get(schema_id)))
        return fastavro.schemaless_reader(BytesIO(body), forms[schema_id], None)

    replica: Replica | None = None
    for record in records:
        key, envelope = decoded(record.key), decoded(record.value)
        if replica is None:
            assert record.value is not None
            replica = Replica(json.loads(registry.get(unframe(record.value)[0])), sorts(schema))
        if envelope["op"] != "unknown":  # a number that no server uses yet; the simulator's base does not change
            replica.apply(key, envelope)
    assert replica is not None
    return replica
