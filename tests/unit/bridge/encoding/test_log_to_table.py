"""From writes to any table through log rows and records to the same table at a consumer."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from random import Random
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.encoding.group_encoder import GroupEncoder
from bridge.encoding.grouping import groups
from bridge.model.log_rows import Cells, LogLayout
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.scylla.base.state import BaseState
from sandbox.scylla.expected_changes import CapturedTable, Place, expected_changes
from sandbox.scylla.log.images import ImageOptions
from sandbox.scylla.log.log_groups import LogRules, log_groups
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.workload import EVERYTHING, Workload, with_own_timestamps
from sandbox.verify.expectations import ExpectedRecords
from schemas.avro.names import avro_name
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import MapType, SetType, UdtType
from schemas.options import OutputOptions, RecordForm
from schemas.table_codec import TableCodec
from tests.copied import assert_same, sorts
from tests.replica import Replica, frozen
from tests.unit.any_tables import examples, raw_rows, tables
from tests.unit.schemas.example_tables import log_columns

GENERATION_MS = UnixMillis(1_700_000_000_000)
START_US = GENERATION_MS * 1000 + 1_000_000
STREAM = bytes(15) + b"\x01"
REQUESTS = 25

# Greater than the distance of a request's statements, so that timestamps of two requests never tie: a consumer of
# decoded values can't resolve a tie as the server does. Nothing expires during the test, and there are no unknown
# operations.
APART_US = 100
BACK_US = 50
MIX = replace(EVERYTHING, unknown=0.0, partition_deletes=0.15, ttls=0.25, ttls_s=(3600, 7200, 86_400), statics=0.4)

IMAGES = st.builds(ImageOptions, st.sampled_from(["false", "true", "full"]), st.booleans())


@dataclass(frozen=True, slots=True)
class Written:
    """Writes to a table: the log's rows, what a reader must make of them, and the resulting table."""

    rows: list[Cells]
    changes: list[ExpectedChange]
    base: BaseState


def write(table: TableSchema, images: ImageOptions, seed: int) -> Written:
    rules = LogRules.of(table, images=images)
    captured = CapturedTable.of(table, keys_only=False)
    random = Random(seed)
    workload = Workload(table, seed=seed, keys=2, rows_per_key=4, mix=MIX, pool=6)
    timed = ((UnixMicros(START_US + APART_US * at), each) for at, each in enumerate(islice(workload, REQUESTS)))
    written = Written([], [], BaseState(rules.columns))
    for now_us, mutation in with_own_timestamps(timed, seed=seed, back_us=BACK_US):
        for group in log_groups(rules, mutation, now_us, base=written.base, now_us=now_us):
            time = timeuuid_of(group.timestamp_us, random.randbytes(8))
            place = Place(mutation.partition_key, STREAM, time, GENERATION_MS)
            written.rows.extend(raw_rows(table, group, place))
            written.changes.extend(expected_changes(captured, group, place))
        written.base.write(mutation, now_us, now_us)
    return written


Record = tuple[dict[str, Any], dict[str, Any]]


def records(table: TableSchema, codec: TableCodec, rows: list[Cells], *, by_row: bool = False) -> Iterator[Record]:
    """What a consumer decodes, by fastavro alone."""
    layout = LogLayout.of(
        log_columns(table),
        [column.name for column in table.partition_key],
        [column.name for column in table.clustering],
    )
    encoder = GroupEncoder(codec, layout, (table.keyspace, table.name), RecordForm())
    key_schema, value_schema = (
        fastavro.parse_schema(json.loads(text)) for text in (codec.key_avro_schema, codec.value_avro_schema)
    )
    for group in groups(rows, layout, by_row=by_row):
        for encoded in encoder.encode(group, GENERATION_MS):
            assert encoded.value is not None
            yield _read(encoded.key, key_schema), _read(encoded.value, value_schema)


def _read(body: bytes, schema: Any) -> dict[str, Any]:
    stream = BytesIO(body)
    found = fastavro.schemaless_reader(stream, schema, None)
    assert stream.read() == b""
    assert isinstance(found, dict)
    return found


def _same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return bool(frozen(dict(sorted(found.items()))) == frozen(dict(sorted(wanted.items()))))


@given(table=tables(), images=IMAGES, seed=st.integers(0, 2**32), shuffle=st.booleans())
@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
def test_a_consumer_has_the_base_table(table: TableSchema, images: ImageOptions, seed: int, shuffle: bool) -> None:
    """For any schema and requests, records hold what was written, and last-write-wins restores the table."""
    written = write(table, images, seed)
    output = OutputOptions(shape="full" if images.wanted else "delta")
    codec = TableCodec(table, log_columns(table), output)
    delivered = list(records(table, codec, written.rows))
    expected = ExpectedRecords(table, full=images.wanted)
    assert len(delivered) == len(written.changes)
    for (key, envelope), change in zip(delivered, written.changes, strict=True):
        assert frozen(key) == frozen(expected.key(change))
        assert _same(envelope, expected.value(change)), change
    replica = Replica(json.loads(codec.value_avro_schema), sorts(table))
    for key, envelope in shuffled(delivered, seed) if shuffle else delivered:
        replica.apply(key, envelope)
    assert_same(table, replica, written.base, UnixMicros(START_US + APART_US * REQUESTS))


@given(table=tables(), preimage=st.sampled_from(["full", "true", "false"]), seed=st.integers(0, 2**32))
@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
def test_a_row_is_what_its_postimage_would_say(table: TableSchema, preimage: str, seed: int) -> None:
    """A row from pre-image (if any) and deltas equals the post-image that ScyllaDB would write."""
    names = log_columns(table)
    operation, end = names.index("cdc$operation"), names.index("cdc$end_of_batch")
    with_images = write(table, ImageOptions(preimage, True), seed).rows
    without = [list(one) for one in with_images if one[operation] != b"\x09"]
    for at, one in enumerate(without):
        following = without[at + 1] if at + 1 < len(without) else None
        one[end] = None if following is not None and following[:2] == one[:2] else b"\x01"
    codec = TableCodec(table, names, OutputOptions(shape="flat"))
    shown = list(records(table, codec, with_images, by_row=True))
    told = list(records(table, codec, [tuple(one) for one in without], by_row=True))
    assert len(shown) == len(told)
    for (_, postimage), (_, made) in zip(shown, told, strict=True):
        unavailable = set(json.loads(made["__unavailable"] or "[]"))
        for column in table.values:
            name = avro_name(column.name)
            if column.name not in unavailable and not made["__deleted"]:
                assert _known(column, made[name]) == _known(column, postimage[name]), (column, made, postimage)


def _known(column: Column, value: Any) -> Any:
    """Return a value with its columns without a value in sorted order."""
    if isinstance(column.type, UdtType) and all(one is None for one in (value or {}).values()):
        # If all fields are removed one by one, the log has a value without fields, and SELECT returns null.
        return None
    if isinstance(column.type, SetType | MapType):
        return frozenset(map(frozen, value or ()))
    return frozen(value)


def shuffled(delivered: list[Record], seed: int) -> list[Record]:
    """Return groups in another order; the records of a group stay together."""
    by_group: defaultdict[bytes, list[Record]] = defaultdict(list)
    for key, envelope in delivered:
        by_group[envelope["source"]["time"]].append((key, envelope))
    order = list(by_group.values())
    Random(seed).shuffle(order)
    return [record for group in order for record in group]
