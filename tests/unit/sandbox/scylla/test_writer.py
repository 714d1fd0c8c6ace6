"""The writer against a session that only keeps what it is given: places, retries, refusals, batching."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, cast

import pytest

from bridge.errors import RetriableError
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, micros_of
from sandbox.scylla.base.mutations import Mutation, PartitionExpiry, RowExpiry, UnknownOperation
from sandbox.scylla.cluster.acceptance import SimulatorRefusal
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster
from sandbox.scylla.log.log_table import CdcOptions
from sandbox.scylla.schema_changes import add_column, disable, drop_column
from sandbox.scylla.tables import SimulatedTable
from sandbox.scylla.values.nested import pack_elements
from sandbox.scylla.workload import Workload
from sandbox.scylla.write_times import spread
from sandbox.scylla.writer import Simulator
from sandbox.writing_session import UNSET, WritingSession
from schemas.cql.table import Column, ColumnKind
from schemas.cql.types import parse
from tests.unit.sandbox.scylla import profiles
from tests.unit.sandbox.scylla.orders import T, delete, delete_partition, insert, key, table, update

START_MS = UnixMillis(T // 1000 - 60_000)
Written = list[tuple[str, list[list[Any]]]]


class KeepingSession:
    """Takes statements as their text, and fails the first so many writes whose text has a word in it."""

    def __init__(self) -> None:
        self.executed: list[str] = []
        self.written: Written = []
        self.failures: dict[str, int] = {}

    def execute(self, cql: str) -> None:
        self.executed.append(cql)

    def prepare(self, cql: str) -> str:
        return cql

    def write_raw(self, cql: str, cells: Sequence[Any]) -> Future[None]:
        return self.write_batch(cql, [cells])

    def write_batch(self, cql: str, rows: Iterable[Sequence[Any]]) -> Future[None]:
        self.written.append((cql, [list(row) for row in rows]))
        future: Future[None] = Future()
        for word, left in self.failures.items():
            if word in cql and left:
                self.failures[word] = left - 1
                future.set_exception(RetriableError("no answer"))
                return future
        future.set_result(None)
        return future

    def write_all(self, writes: Iterable[Any]) -> int:
        return sum(1 for start in writes if start().result() is None)

    def to(self, word: str) -> list[list[Any]]:
        """The rows of every write whose text has a word in it."""
        return [row for cql, rows in self.written if word in cql for row in rows]


def simulated(session: KeepingSession, shop: SimulatedTable, **options: Any) -> tuple[SimulatedCluster, Simulator]:
    cluster = SimulatedCluster(cast("WritingSession", session), seed=1)
    cluster.add_generation(START_MS, publish=False)
    return cluster, Simulator(cast("WritingSession", session), cluster, [shop], seed=2, **options)


@pytest.fixture
def session() -> KeepingSession:
    return KeepingSession()


def test_a_generation_is_published_streams_first_and_timestamp_last(session: KeepingSession) -> None:
    """A reader that sees the timestamp sees all of its streams."""
    cluster = SimulatedCluster(cast("WritingSession", session), seed=1, vnodes=4, shards=2)
    first = cluster.add_generation(START_MS)
    second = cluster.add_generation(UnixMillis(START_MS + 1), publish=False)
    assert [cql.split()[2] for cql, _rows in session.written] == [
        *["system_distributed.cdc_streams_descriptions_v2"] * 4,
        "system_distributed.cdc_generation_timestamps",
    ]
    cluster.publish(second)
    assert len(session.written) == 5 + 9
    assert (len(list(first.streams())), len(list(second.streams()))) == (8, 16)
    assert {entry.range_end for entry in first.stream_groups} < {entry.range_end for entry in second.stream_groups}
    assert list(cluster.generations) == [first, second]
    with pytest.raises(ValueError, match="must start after"):
        cluster.add_generation(START_MS)
    cluster.reset()
    assert len(cluster.generations) == 0
    with pytest.raises(ValueError, match="no generation"):
        cluster.publish(first)
    assert all(cql.startswith("TRUNCATE system_distributed.cdc_") for cql in session.executed)


def test_base_and_log_are_written_with_the_mutations_microsecond(session: KeepingSession) -> None:
    """The log row has time, stream, operation and columns; untouched columns are not sent."""
    shop = SimulatedTable(table(), CdcOptions(ttl_s=77))
    cluster, simulator = simulated(session, shop)
    (change,) = simulator.write(shop, Mutation(key(9), (insert(4, ttl=5, item=7),)), T)
    (log_row,) = session.to("_scylla_cdc_log")
    stamp = T.to_bytes(8, "big")
    flags = [UNSET, UNSET]
    assert log_row == [
        *(stamp, b"\2", (5).to_bytes(8, "big"), b"\1"),
        *(*key(9), *key(4)),
        *(*key(7), UNSET, *flags, *flags),
        *(change.stream_id, change.time, b"\0\0\0\0"),
    ]
    assert "USING TIMESTAMP ? AND TTL 77 " in session.written[0][0]
    (base_row,) = session.to("INSERT INTO")
    assert base_row == [*key(9), *key(4), *key(7), UNSET, UNSET, stamp, (5).to_bytes(4, "big")]
    assert micros_of(change.time) == change.timestamp_us == T
    assert (change.generation_ms, change.last_in_group) == (START_MS, True)
    assert StreamId(change.stream_id) in set(cluster.generations[0].streams())
    assert list(simulator.oracle) == [change]


def test_a_group_is_one_write(session: KeepingSession) -> None:
    """Its rows are numbered and the last is marked; the base gets each statement."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    operations = (update(1, tier=3, note=None), delete(2), delete_partition())
    changes = simulator.write(shop, Mutation(key(9), operations), T)
    logged = [rows for cql, rows in session.written if "_scylla_cdc_log" in cql]
    assert [[(row[1], row[3], row[-1]) for row in rows] for rows in logged] == [
        [
            (b"\1", UNSET, b"\0\0\0\0"),
            (b"\1", UNSET, b"\0\0\0\1"),
            (b"\3", UNSET, b"\0\0\0\2"),
            (b"\4", b"\1", b"\0\0\0\3"),
        ]
    ]
    assert [change.batch_seq_no for change in changes] == [0, 1, 2, 3]
    assert [change.clustering for change in changes] == [(None,), key(1), key(2), (None,)]
    base = [cql.split()[0] for cql, _rows in session.written if "_scylla_cdc_log" not in cql]
    assert base == ["UPDATE", "UPDATE", "DELETE", "DELETE"]


def test_no_two_mutations_share_a_microsecond(session: KeepingSession) -> None:
    """However slow the clock; unless the mutations bring their own."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    for _ in range(3):
        simulator.write(shop, Mutation(key(9), (insert(4),)), T)
    for _ in range(2):
        simulator.write(shop, Mutation(key(9), (insert(4),), timestamp_us=UnixMicros(T - 5)), T)
    assert [change.timestamp_us - T for change in simulator.oracle] == [0, 1, 2, -5, -5]
    assert len({change.time for change in simulator.oracle}) == 5


@pytest.mark.parametrize("word", ["_scylla_cdc_log", "INSERT"])
def test_a_failed_part_is_written_again_as_it_was(session: KeepingSession, word: str) -> None:
    """With the same time, so that no second group comes of it; the oracle has the change once."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    session.failures[word] = 3
    simulator.write(shop, Mutation(key(9), (insert(4, item=1),)), T)
    again = session.to(word)
    assert len(again) == 4
    assert all(row == again[0] for row in again)
    assert len(simulator.oracle) == 1


def test_a_write_that_keeps_failing_is_not_acknowledged(session: KeepingSession) -> None:
    """The oracle does not know it."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    session.failures["_scylla_cdc_log"] = 100
    with pytest.raises(RetriableError, match="no answer"):
        simulator.write(shop, Mutation(key(9), (insert(4, item=1),)), T)
    assert len(simulator.oracle) == 0


@pytest.mark.parametrize(("seconds", "words"), [(6, "from the future"), (-70, "from the past")])
def test_a_refused_timestamp_writes_nothing(session: KeepingSession, seconds: int, words: str) -> None:
    """Not even the part of a batch that would be taken."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    refused = update(4, at=seconds * 1_000_000, note=1)
    with pytest.raises(SimulatorRefusal, match=words):
        simulator.write(shop, Mutation(key(9), (insert(4, item=1), refused)), T)
    assert session.written == []


def test_writes_change_stream_with_the_generation(session: KeepingSession) -> None:
    """From its very start, published or not."""
    shop = SimulatedTable(table())
    cluster, simulator = simulated(session, shop)
    second = cluster.add_generation(UnixMillis(T // 1000 + 1), publish=False)
    for late_us in (999, 1000):
        simulator.write(shop, Mutation(key(9), (insert(4),)), UnixMicros(T + late_us))
    before, after = simulator.oracle
    assert (before.generation_ms, after.generation_ms) == (START_MS, second.start_ms)
    assert StreamId(after.stream_id) in set(second.streams())
    assert StreamId(before.stream_id) in set(cluster.generations[0].streams())


def test_the_variant_bits_are_set_if_asked_for(session: KeepingSession) -> None:
    """As servers do since 2026.1; before, they are random."""
    shop = SimulatedTable(table())
    variants = []
    for rfc in (True, False):
        _, simulator = simulated(session, shop, rfc_variant=rfc)
        simulator.write_many(shop, spread(Workload(table(), seed=1), count=60, start_us=T, until_us=UnixMicros(T + 60)))
        variants.append({change.time[8] >> 6 for change in simulator.oracle})
    assert variants == [{2}, {0, 1, 2, 3}]


def test_keys_only_logs_no_values(session: KeepingSession) -> None:
    """With `keys`, the log has neither values nor flags; everything else is unchanged."""
    shop = SimulatedTable(table(), CdcOptions(delta="keys"))
    _, simulator = simulated(session, shop)
    (change,) = simulator.write(shop, Mutation(key(9), (update(4, ttl=5, item=1),)), T)
    assert (dict(change.columns), change.ttl_s) == ({}, 5)
    (log_row,) = session.to("_scylla_cdc_log")
    assert log_row[6:12] == [UNSET] * 6


def test_a_load_is_what_single_writes_would_be(session: KeepingSession) -> None:
    """The same rows for the same seeds, in whole batches of one stream, and no base rows."""
    shop = SimulatedTable(table())
    mutations = list(islice(Workload(table(), seed=4, keys=50), 400))
    times = list(spread(mutations, count=400, start_us=T, until_us=UnixMicros(T + 4000)))
    _, single = simulated(session, shop)
    single.write_many(shop, times, base=False, in_flight=3)
    one_by_one = sorted(session.to("_scylla_cdc_log"), key=lambda row: row[-3:])
    session.written.clear()
    _, loader = simulated(session, shop)
    assert loader.load(shop, times, batch_rows=20, in_flight=2) == len(one_by_one)
    assert sorted(session.to("_scylla_cdc_log"), key=lambda row: row[-3:]) == one_by_one
    for _cql, rows in session.written:
        assert len({row[-3] for row in rows}) == 1
        assert len(rows) < 30
    assert loader.oracle.by_key() == single.oracle.by_key()


def test_a_table_is_created_with_its_log_and_marked(session: KeepingSession) -> None:
    """Keyspace, base, log; then the partitioner that says that the log is one."""
    SimulatedTable(table()).create(cast("WritingSession", session))
    assert [cql.split("(")[0].split(" WITH")[0].strip() for cql in session.executed] == [
        'CREATE KEYSPACE IF NOT EXISTS "shop"',
        'CREATE TABLE "shop"."orders"',
        'CREATE TABLE "shop"."orders_scylla_cdc_log"',
    ]
    assert session.to("system_schema.scylla_tables") == [
        [b"shop", b"orders_scylla_cdc_log", b"com.scylladb.dht.CDCPartitioner"]
    ]
    SimulatedTable(table()).drop(cast("WritingSession", session))
    assert session.executed[-1] == 'DROP TABLE IF EXISTS "shop"."orders_scylla_cdc_log"'


def test_collections_and_images_have_columns_of_their_own(session: KeepingSession) -> None:
    """Value, flag and deleted elements; `delta: 'keys'` leaves the delta's out and the image's in."""
    options = CdcOptions(delta="keys", postimage=True)
    for shop in (
        SimulatedTable(profiles.profiles(), user_types=(profiles.ADDRESS,)),
        SimulatedTable(profiles.profiles(), options, user_types=(profiles.ADDRESS,)),
    ):
        session.written.clear()
        _, simulator = simulated(session, shop)
        operation = profiles.update(4, tags=profiles.tags(1, remove=(2,), clear="overwrite"), item=7)
        (change,) = simulator.write(shop, Mutation(key(9), (operation,)), T)
        (cql,) = {cql for cql, _rows in session.written if "_scylla_cdc_log" in cql}
        at = [part.split('"')[1] for part in cql.split(" SET ")[1].split(", ")].index("tags") + 1
        rows = [row[at : at + 3] for row in session.to("_scylla_cdc_log")]
        tags = [pack_elements(key(1)), b"\1", pack_elements(key(2))]
        blank = [UNSET] * 3
        assert rows == ([tags] if len(rows) == 1 else [blank, [tags[0], UNSET, UNSET]])
        assert (change.after is None) == (len(rows) == 1)


def test_a_range_delete_has_a_prefix_of_the_key(session: KeepingSession) -> None:
    """And two rows, which are one change."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    (change,) = simulator.write(shop, Mutation(key(9), (profiles.range_delete(None, "<3"),)), T)
    start, end = session.to("_scylla_cdc_log")
    assert [(row[1], row[3], row[5]) for row in (start, end)] == [(b"\5", UNSET, UNSET), (b"\x08", b"\1", key(3)[0])]
    assert change.last_in_group


def test_operations_below_zero_are_written_as_such(session: KeepingSession) -> None:
    """As a tinyint."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    for operation in (RowExpiry(key(4)), PartitionExpiry(), UnknownOperation(-128), UnknownOperation(127)):
        simulator.write(shop, Mutation(key(9), (operation,)), T)
    assert [row[1] for row in session.to("_scylla_cdc_log")] == [b"\xfd", b"\xfc", b"\x80", b"\x7f"]


def test_a_request_that_is_sent_again_leaves_a_group_of_the_same_content(session: KeepingSession) -> None:
    """And microsecond; only the random half of its time differs. Both are to be delivered."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    first, second = simulator.write(shop, Mutation(key(9), (insert(4, item=1),)), T, times=2)
    assert first.time != second.time
    assert first._replace(time=second.time) == second
    assert len(simulator.oracle) == 2


def test_a_simulator_follows_a_schema_change(session: KeepingSession) -> None:
    """The new column is written; while CDC is off nothing is logged, and the table in memory stays."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop, keep_base=True)
    simulator.write(shop, Mutation(key(9), (insert(4, item=1, note=2),)), T)
    base = simulator.base(shop)
    change = add_column(shop, Column("size", parse("int"), ColumnKind.REGULAR))
    change.apply(cast("WritingSession", session))
    simulator.follow(change)
    (written,) = simulator.write(change.after, Mutation(key(9), (update(4, size=3),)), T)
    assert set(written.columns) == {"size"}
    off = disable(change.after)
    simulator.follow(off)
    assert simulator.write(off.after, Mutation(key(9), (update(4, size=4),)), T) == []
    simulator.follow(drop_column(off.after, "note"))
    row = base.row(key(9), key(4), T)
    assert row is not None
    assert set(row.cells) == {"item", "size"}
    assert row.cells["size"] == key(4)[0]
    with pytest.raises(KeyError):
        simulator.base(shop)


def test_only_tables_with_images_are_kept_unless_asked_for(session: KeepingSession) -> None:
    """A bulk load would fill the memory."""
    shop = SimulatedTable(table())
    _, simulator = simulated(session, shop)
    with pytest.raises(ValueError, match=r"shop\.orders is not kept in memory"):
        simulator.base(shop)
