"""Every known fact about what a statement leaves in the log, by name."""

from __future__ import annotations

import pytest

from bridge.model.times import UnixMillis, timeuuid_of
from sandbox.cql.parser.errors import CqlError
from sandbox.scylla.expected_changes import Place
from sandbox.scylla.refusals import SchemaRefusal
from sandbox.scylla.tables import resolved
from tests.unit.sandbox.scylla.log_records import records_of
from tests.unit.sandbox.scylla.read_back import BridgeReader
from tests.unit.sandbox.scylla.vectors import Run, Vector, load, problems
from tests.unit.schemas.example_tables import log_columns

NOT_WRITES = {
    "short_stream_id_reads_empty": "it is about what a query returns, and the simulator answers none",
}
"""Facts that are none about the log's rows or about refusals, with the reason."""

VECTORS = {vector["name"]: vector for vector in load()}
LOGGED = [vector for name, vector in VECTORS.items() if "log" in vector and name not in NOT_WRITES]
REFUSED = [vector for vector in VECTORS.values() if "error" in vector]


@pytest.mark.parametrize("vector", LOGGED, ids=lambda vector: vector["name"])
def test_statements_are_logged_as_known(vector: Vector) -> None:
    run = Run(vector)
    for statement in run.statements:
        run.execute(statement)
    assert problems(run.server, run.groups(), run.vector) == []


@pytest.mark.parametrize("vector", LOGGED, ids=lambda vector: vector["name"])
def test_what_was_logged_is_read_as_known(vector: Vector) -> None:
    """The bridge makes of these log rows the changes that the statements were."""
    run = Run(vector)
    for statement in run.statements:
        run.execute(statement)
    low = 0
    for logged in run.logged:
        user_types = run.server.catalog.user_types(logged.table.table_schema.keyspace)
        table = resolved(logged.table.table_schema, user_types)
        names = log_columns(table)
        bridge = BridgeReader(table, names, logged.table.options)
        for group, records in zip(logged.groups, records_of(logged), strict=True):
            low += 1
            place = Place(
                logged.partition_key, bytes(16), timeuuid_of(group.timestamp_us, low.to_bytes(8, "big")), UnixMillis(1)
            )
            where = {"cdc$stream_id": place.stream_id, "cdc$time": place.time}
            rows = [tuple((where | record).get(name) for name in names) for record in records]
            assert bridge.found(rows) == bridge.wanted(group, place)


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_statements_are_refused_as_known(vector: Vector) -> None:
    run = Run(vector)
    *before, refused = run.statements
    for statement in before:
        run.execute(statement)
    wanted = vector["error"]
    with pytest.raises((SchemaRefusal, CqlError)) as caught:
        run.execute(refused)
    if isinstance(caught.value, SchemaRefusal):  # other refusals of the simulator have no code
        assert caught.value.code == int(wanted["code"], 16)
    if "message" in wanted:
        assert str(caught.value) == wanted["message"]
    else:
        assert wanted["message_contains"] in str(caught.value)


@pytest.mark.parametrize(("name", "reason"), NOT_WRITES.items())
def test_what_is_left_out_is_listed_with_its_reason(name: str, reason: str) -> None:
    assert name in VECTORS
    assert reason
    pytest.skip(f"{name}: {reason}")


def test_no_fact_is_missing() -> None:
    assert len(VECTORS) == 101
    assert len(LOGGED) + len(REFUSED) + len(NOT_WRITES) == len(VECTORS)
