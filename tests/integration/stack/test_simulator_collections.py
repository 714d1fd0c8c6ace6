"""Collections, ranges, images and schema changes on the local stack, read back by plain CQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, groupby, islice

import pytest

from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.base.mutations import CollectionWrite, Insert, Mutation, Update
from sandbox.scylla.base.state import BaseRow
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_rows import CollectionDelta
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.oracle import ExpectedChange
from sandbox.scylla.schema_changes import (
    SchemaChange,
    add_column,
    add_field,
    disable,
    drop_column,
    enable,
    rename_key,
    replace_column,
)
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.nested import UserType, is_multi_cell
from sandbox.scylla.workload import EVERYTHING, Workload
from sandbox.scylla.write_times import spread, system_clock_us
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.integration.support.reading import Row, raw_rows

pytestmark = pytest.mark.integration

KEYSPACES = (f"collected{number}" for number in count())
PLACE = UserType("place", (("name", parse("text")), ("at", parse("frozen<tuple<double, double>>"))))
VALUES = ("int", "set<text>", "map<uuid, frozen<list<int>>>", "place", "frozen<place>", "map<smallint, decimal>",
          "vector<float, 3>", "tuple<varint, frozen<map<date, inet>>>")  # fmt: skip


def column(name: str, type_text: str, kind: ColumnKind = ColumnKind.REGULAR, position: int = -1) -> Column:
    return Column(name, parse(type_text), kind, position)


def anything(*values: str, clustering: bool = True) -> TableSchema:
    columns = [column("id", "text", ColumnKind.PARTITION_KEY, 0)]
    columns += [column(f"v{number}", text) for number, text in enumerate(values)]
    if clustering:
        columns += [column(f"s{number}", text, ColumnKind.STATIC) for number, text in enumerate(values[:4])]
        columns.append(column("line", "int", ColumnKind.CLUSTERING, 0))
        columns.append(Column("part", parse("int"), ColumnKind.CLUSTERING, 1, descending=True))
    return TableSchema(next(KEYSPACES), "anything", tuple(columns))


def simulated(session: WritingSession, table: SimulatedTable) -> tuple[Simulator, UnixMicros]:
    table.create(session)
    cluster = SimulatedCluster(session, seed=1)
    now_us = system_clock_us()
    cluster.add_generation(UnixMillis(now_us // 1000 - 60_000), publish=False)
    return Simulator(session, cluster, [table], seed=1, keep_base=True), now_us


def changes(session: WritingSession, schema: TableSchema) -> list[tuple[object, ...]]:
    """The log in the oracle's terms, without the generation."""
    rows = raw_rows(session, schema.keyspace, schema.log_table)
    found = []
    for _place, members in groupby(rows, key=lambda row: (row["cdc$stream_id"], row["cdc$time"])):
        group = list(members)
        images = [row for row in group if number(row, "cdc$operation") in (0, 9)]
        ends = [row for row in group if number(row, "cdc$operation") in (7, 8)]
        deltas = [row for row in group if row not in images and row not in ends]
        for row in deltas:
            end = next((e for e in ends if number(e, "cdc$batch_seq_no") == number(row, "cdc$batch_seq_no") + 1), None)
            found.append((*terms(row, schema, row is deltas[-1]), range_end(end, schema), *pair(row, images, schema)))
    return found


def pair(row: Row, images: list[Row], schema: TableSchema) -> list[dict[str, bytes | None] | None]:
    joined: list[dict[str, bytes | None] | None] = []
    for operation in (0, 9):
        # A range starts at a key that may be a row's, and a partition's delete has the static row's (no key at all).
        whole = number(row, "cdc$operation") in (4, -4, 5, 6) and schema.clustering
        match = [
            image
            for image in images
            if number(image, "cdc$operation") == operation and key(image, schema) == key(row, schema) and not whole
        ]
        joined.append(dict(image_cells(match[0], schema)) if match else None)
    return joined


def image_cells(row: Row, schema: TableSchema) -> Iterator[tuple[str, bytes | None]]:
    for each in schema.values:
        if row[each.name] is not None or row[f"cdc$deleted_{each.name}"] is not None:
            yield each.name, row[each.name]


def key(row: Row, schema: TableSchema) -> tuple[bytes | None, ...]:
    return tuple(row[each.name] for each in schema.clustering)


def number(row: Row, name: str) -> int:
    cell = row[name]
    assert cell is not None, name
    return int.from_bytes(cell, "big", signed=True)


def range_end(row: Row | None, schema: TableSchema) -> object:
    return None if row is None else (number(row, "cdc$operation"), key(row, schema))


def terms(row: Row, schema: TableSchema, is_last: bool) -> tuple[object, ...]:
    cells: dict[str, object] = {}
    for each in schema.values:
        value, flag = row[each.name], row[f"cdc$deleted_{each.name}"]
        removed = row.get(f"cdc$deleted_elements_{each.name}")
        if value is None and flag is None and removed is None:
            continue
        cells[each.name] = CollectionDelta(value, flag is not None, removed) if is_multi_cell(each.type) else value
    ttl = None if row["cdc$ttl"] is None else number(row, "cdc$ttl")
    partition = tuple(row[each.name] for each in schema.partition_key)
    place = (row["cdc$stream_id"], row["cdc$time"], number(row, "cdc$batch_seq_no"), is_last)
    return (partition, key(row, schema), number(row, "cdc$operation"), sorted(cells.items()), ttl, *place)


def expected(change: ExpectedChange) -> tuple[object, ...]:
    place = (change.stream_id, change.time, change.batch_seq_no, change.last_in_group)
    columns = sorted(change.columns.items())
    end = None if change.range_end is None else tuple(change.range_end)
    images = (change.before, change.after)
    return (change.partition_key, change.clustering, change.operation, columns, change.ttl_s, *place, end, *images)


def by_place(found: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(
        [tuple(sorted(cell.items()) if isinstance(cell, dict) else cell for cell in each) for each in found],
        key=lambda each: (each[5], each[6], each[7]),  # type: ignore[arg-type,return-value]
    )


def base_rows(simulator: Simulator, table: SimulatedTable, keys: list[tuple[bytes, ...]]) -> list[tuple[object, ...]]:
    """What the table in memory says, as CQL shows it: a static row alone has no clustering key."""
    base, now_us, kinds = simulator.base(table), system_clock_us(), table.rules().columns.multi_cell
    width = len(table.table_schema.clustering)

    def shown(*rows: BaseRow) -> list[tuple[str, bytes]]:
        cells = {name: cell for row in rows for name, cell in row.cells.items()}
        packed = {name: kinds[name].pack(elements) for row in rows for name, elements in row.collections.items()}
        return sorted((cells | packed).items())

    found: list[tuple[object, ...]] = []
    for partition in keys:
        static, rows = base.static(partition, now_us), list(base.rows(partition, now_us))
        found += [(partition, clustering, shown(static, row)) for clustering, row in rows]
        if not rows and not static.is_empty:
            found.append((partition, (None,) * width, shown(static)))
    return sorted(found, key=repr)


@pytest.mark.parametrize("clustering", [True, False])
def test_a_workload_of_everything_is_read_back(session: WritingSession, clustering: bool) -> None:
    """The log holds the oracle's changes, images included, and Cassandra's base table what the one in memory holds."""
    schema = anything(*VALUES, clustering=clustering)
    table = SimulatedTable(schema, CdcOptions(preimage="full", postimage=True), (PLACE,))
    simulator, now_us = simulated(session, table)
    mix = replace(EVERYTHING, ttls_s=(3600, 86_400))
    workload = Workload(schema, seed=3, keys=4, rows_per_key=6, mix=mix, user_types=(PLACE,), pool=20)
    times = spread(islice(workload, 300), count=300, start_us=UnixMicros(now_us - 3_000_000), until_us=now_us)
    simulator.write_many(table, times, in_flight=1)
    assert by_place(changes(session, schema)) == by_place([expected(change) for change in simulator.oracle])
    found = [
        (
            tuple(row[each.name] for each in schema.partition_key),
            key(row, schema),
            sorted((each.name, cell) for each in schema.values if (cell := row[each.name]) is not None),
        )
        for row in raw_rows(session, schema.keyspace, schema.name)
    ]
    assert sorted(found, key=repr) == base_rows(simulator, table, workload.partition_keys)
    assert found


def test_lists_keep_their_keys_in_the_log(session: WritingSession) -> None:
    """Though Cassandra's own base table has others."""
    table = SimulatedTable(anything("list<int>"))
    simulator, now_us = simulated(session, table)
    workload = Workload(table.table_schema, seed=4, keys=2, rows_per_key=3)
    times = spread(islice(workload, 60), count=60, start_us=UnixMicros(now_us - 3_000_000), until_us=now_us)
    simulator.write_many(table, times)
    assert by_place(changes(session, table.table_schema)) == by_place([expected(each) for each in simulator.oracle])


def test_a_table_is_altered_with_its_log(session: WritingSession) -> None:
    """Each change is followed by a write, whose log row is the oracle's in the columns of that time."""
    table = SimulatedTable(anything("text", "place", clustering=True), user_types=(PLACE,))
    simulator, now_us = simulated(session, table)
    partition, clustering = (b"a",), (bytes(4), bytes(4))

    def write(**cells: bytes | CollectionWrite | None) -> ExpectedChange:
        (change,) = simulator.write(table, Mutation(partition, (Insert(clustering, cells),)), system_clock_us())
        return change

    write(v0=b"old", v1=CollectionWrite("overwrite", ((bytes(2), b"here"),)))
    tags = CollectionWrite("overwrite", ((bytes(4), b""),))
    zipped = CollectionWrite("overwrite", ((b"\0\2", bytes(4)),))
    steps: list[tuple[Callable[[SimulatedTable], SchemaChange], dict[str, bytes | CollectionWrite]]] = [
        (lambda table: add_column(table, column("tags", "set<int>")), {"tags": tags}),
        (lambda table: replace_column(table, "v0", parse("blob")), {"v0": b"\xff"}),
        (lambda table: rename_key(table, "part", "piece"), {"v0": b"\xfe"}),
        (lambda table: add_field(table, "place", "zip", parse("int")), {"v1": zipped}),
        (lambda table: drop_column(table, "tags"), {"v0": b"\xfd"}),
    ]
    for make, cells in steps:
        change = make(table)
        table = change.apply(session)
        simulator.follow(change)
        written = write(**cells)
        found = [each for each in changes(session, table.table_schema) if each[6] == written.time]
        assert by_place(found) == by_place([expected(written)])
    off_and_on: tuple[Callable[[SimulatedTable], SchemaChange], ...] = (
        disable,
        lambda table: add_column(table, column("more", "int")),
        enable,
    )
    for switch in off_and_on:
        change = switch(table)
        table = change.apply(session)
        simulator.follow(change)
        schema = table.table_schema
        before = len(raw_rows(session, schema.keyspace, schema.log_table))
        update = Update(clustering, {"v0": b"\xfc"})
        logged = simulator.write(table, Mutation(partition, (update,)), system_clock_us())
        after = len(raw_rows(session, schema.keyspace, schema.log_table))
        assert after - before == len(logged) == int(table.options.enabled)
    written = write(more=bytes(4))
    found = [each for each in changes(session, table.table_schema) if each[6] == written.time]
    assert by_place(found) == by_place([expected(written)])
    assert written.timestamp_us > now_us
