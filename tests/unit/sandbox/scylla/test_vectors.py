"""Every known fact about what a statement leaves in the log, by name."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from bridge.encoding.group_encoder import GroupEncoder
from bridge.encoding.grouping import groups
from bridge.model.log_rows import LogLayout
from bridge.model.times import UnixMillis, timeuuid_of
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.refusals import SchemaRefusal
from sandbox.scylla.tables import resolved
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.codec import compile_reader
from schemas.cql.table import TableSchema
from schemas.options import OutputOptions, RecordForm, ShapeName
from schemas.table_codec import TableCodec
from tests.replica import frozen
from tests.unit.sandbox.scylla.log_records import records_of
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
    assert problems(run, vector["log"], free_order=vector.get("order") == "free") == []


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
        options = logged.table.options
        full, keys_only = options.images.wanted, options.delta == "keys"
        names = log_columns(table)
        keys = ([column.name for column in part] for part in (table.partition_key, table.clustering))
        layout = LogLayout.of(names, *keys)
        codec = codec_of(table, "full" if full else "delta")
        encoder = GroupEncoder(codec, layout, (table.keyspace, table.name), RecordForm())
        truth = ExpectedRecords(table, full=full)
        read_key, read = (compile_reader(json.loads(text)) for text in (codec.key_avro_schema, codec.value_avro_schema))
        for group, records in zip(logged.groups, records_of(logged), strict=True):
            low += 1
            place = Place(
                logged.partition_key, bytes(16), timeuuid_of(group.timestamp_us, low.to_bytes(8, "big")), UnixMillis(1)
            )
            wanted = expected_changes(CapturedTable.of(table, keys_only=keys_only), group, place)
            where = {"cdc$stream_id": place.stream_id, "cdc$time": place.time}
            rows = [tuple((where | record).get(name) for name in names) for record in records]
            (read_group,) = groups(rows, layout)
            found = list(encoder.encode(read_group, UnixMillis(1)))
            assert [in_order(read_key(one.key)) for one in found] == [in_order(truth.key(one)) for one in wanted]
            values = [in_order(read(one.value)) for one in found if one.value is not None]
            assert values == [in_order(truth.value(one)) for one in wanted]


@cache
def codec_of(table: TableSchema, shape: ShapeName) -> TableCodec:
    return TableCodec(table, log_columns(table), OutputOptions(shape=shape))


def in_order(record: dict[str, Any]) -> object:
    return frozen(dict(sorted(record.items())))


@pytest.mark.parametrize("vector", REFUSED, ids=lambda vector: vector["name"])
def test_statements_are_refused_as_known(vector: Vector) -> None:
    run = Run(vector)
    *before, refused = run.statements
    for statement in before:
        run.execute(statement)
    with pytest.raises(SchemaRefusal) as caught:
        run.execute(refused)
    wanted = vector["error"]
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
    assert len(VECTORS) == 90
    assert len(LOGGED) + len(REFUSED) + len(NOT_WRITES) == len(VECTORS)
