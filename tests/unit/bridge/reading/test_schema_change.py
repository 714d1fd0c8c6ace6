"""Tables that change while they are read: every change once, in order, under the schema of its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache

import pytest

from bridge.encoding import grouping
from bridge.encoding.group_encoder import EncodedChange, EncodedRun, GroupEncoder
from bridge.errors import RefusedError, TableMissingError
from bridge.model.log_rows import Cells, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, sort_key, timeuuid_of
from bridge.reading.lane_merge import ColumnsChangedError, read_lane
from bridge.reading.schema_change import Changes, runs_by_schema
from bridge.reading.table_capture import CapturedTable, UnsettledSchemaError, capture
from schemas.cql.table import TableSchema
from schemas.cql.table_changes import log_type
from schemas.cql.types import CqlType, NativeType, parse
from schemas.options import RecordForm
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.schemas.example_tables import log_columns, table

Reading = Callable[[CapturedTable], Changes]

WINDOW = Window(UnixMicros(0), UnixMicros(1_000_000))
OLD = table({"pk": "int"}, {"ck": "int"}, {"v": "int", "w": "text"})
ADDED = table({"pk": "int"}, {"ck": "int"}, {"v": "int", "w": "text", "x": "text"})
RETYPED = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "w": "text"})
WIDER = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "w": "text", "x": "text"})
RENAMED = table({"pk": "int"}, {"line": "int"}, {"v": "text", "w": "text"})
META = {
    "cdc$stream_id": "blob",
    "cdc$time": "timeuuid",
    "cdc$batch_seq_no": "int",
    "cdc$operation": "tinyint",
    "cdc$ttl": "bigint",
    "cdc$end_of_batch": "boolean",
}
STREAMS = [StreamId(number.to_bytes(16, "big")) for number in (1, 2, 3)]


def log_types(schema: TableSchema) -> tuple[CqlType, ...]:
    """Types of the columns of `log_columns`."""
    known = {name: NativeType(kind) for name, kind in META.items()} | {
        column.name: log_type(column) for column in schema.columns
    }
    return tuple(known.get(name, NativeType("boolean")) for name in log_columns(schema))


class Clock:
    """Time that passes only during a pause."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Reader:
    """A log reader with the columns at the time of preparing; its pages have the present columns."""

    def __init__(self, cluster: Cluster, prepared: TableSchema) -> None:
        self._cluster = cluster
        self.columns = tuple(log_columns(prepared))
        self.types = log_types(prepared)

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        cluster = self._cluster
        cluster.pages += 1
        cluster.on_page(cluster.pages)
        schema = cluster.schema
        start = int.from_bytes(paging_state or b"", "big")
        rows = cluster.rows(stream, schema)
        end = start + page_rows
        future: Future[Page] = Future()
        state = end.to_bytes(4, "big") if end < len(rows) else None
        future.set_result(Page(tuple(log_columns(schema)), rows[start:end], state, log_types(schema)))
        return future


class Cluster:
    """One table; `schema` is that of the log and its pages, `described_as` that of system_schema if it differs."""

    def __init__(self, schema: TableSchema, groups: int = 40, rows_each: int = 3) -> None:
        self.schema: TableSchema = schema
        self.described_as: TableSchema | None = None
        self.is_missing = False
        self.refusals = 0
        self.pages = 0
        self.on_page: Callable[[int], None] = lambda _: None
        self._groups, self._rows_each = groups, rows_each

    def describe_table(self, keyspace: str, name: str) -> TableSchema | None:
        return None if self.is_missing else self.described_as or self.schema

    def log_reader(self, keyspace: str, name: str) -> Reader:
        if self.refusals:
            self.refusals -= 1
            raise RefusedError("unconfigured table")
        return Reader(self, self.schema)

    def rows(self, stream: StreamId, schema: TableSchema) -> list[Cells]:
        found = []
        columns = log_columns(schema)
        for us in range(1, self._groups + 1):
            for seq in range(self._rows_each):
                cells: dict[str, bytes | None] = {
                    "cdc$stream_id": stream.raw,
                    "cdc$time": timeuuid_of(UnixMicros(us), stream.raw[8:]),
                    "cdc$batch_seq_no": seq.to_bytes(4, "big"),
                    "cdc$operation": b"\x02",
                    "cdc$end_of_batch": b"\x01" if seq == self._rows_each - 1 else None,
                    "pk": stream.raw[12:],
                    "ck": us.to_bytes(4, "big"),
                    "w": b"w",
                    # Four bytes are valid as int and as text, so decoding under a stale schema would not fail.
                    "v": b"abcd" if schema in (OLD, RETYPED) else None,
                }
                found.append(tuple(map(cells.get, columns)))
        return found


def changes(captured: CapturedTable) -> Iterator[EncodedChange]:
    chunks = read_lane(captured.reader, STREAMS, WINDOW, captured.layout, page_rows=50, in_flight=4)
    encoder = GroupEncoder(captured.codec, captured.layout, ("ks", "t"), RecordForm())
    for group in grouping.groups((row for chunk in chunks for _, row in chunk), captured.layout):
        yield from encoder.encode(group, UnixMillis(0))


def in_runs(captured: CapturedTable) -> Iterator[EncodedRun]:
    """The changes in runs of three."""
    held: list[EncodedChange] = []
    for change in changes(captured):
        held.append(change)
        if len(held) == 3:
            yield as_run(held)
            held = []
    if held:
        yield as_run(held)


def as_run(held: list[EncodedChange]) -> EncodedRun:
    return run_of([one.key for one in held], [one.value or b"" for one in held], [one.position for one in held])


def read(cluster: Cluster, clock: Clock, reading: Reading = changes) -> list[tuple[TableSchema, EncodedChange]]:
    def again() -> CapturedTable:
        return capture(cluster, "ks", "t", clock=clock, sleep=clock.sleep)

    return [
        (captured.schema, change)
        for captured, run in runs_by_schema(again(), reading, again, clock=clock, sleep=clock.sleep)
        for some in run
        for change in (some.changes() if isinstance(some, EncodedRun) else [some])
    ]


def drain(some_runs: Iterator[tuple[CapturedTable, Changes]]) -> None:
    for _, run in some_runs:
        assert list(run) == []


def place(change: EncodedChange) -> tuple[bytes, bytes, bytes]:
    return sort_key(change.position[16:32]), change.position[:16], change.position[32:]


@cache
def whole() -> list[tuple[bytes, bytes, bytes]]:
    """The sort keys of all changes."""
    return [place(change) for _, change in read(Cluster(OLD), Clock())]


@pytest.mark.parametrize("reading", [changes, in_runs])
@pytest.mark.parametrize("new", [ADDED, RETYPED])
@pytest.mark.parametrize("at_page", [1, 2, 4, 6, 9])
def test_alter_between_pages_loses_and_doubles_nothing(new: TableSchema, at_page: int, reading: Reading) -> None:
    """For any first page with other columns or types: all changes once, in order, each under its page's schema."""
    cluster = Cluster(OLD)

    def alter(page: int) -> None:
        if page == at_page:
            cluster.schema = new

    expected = whole()
    cluster.on_page = alter
    found = read(cluster, Clock(), reading)
    assert [place(change) for _, change in found] == expected
    schemas = [schema for schema, _ in found]
    assert schemas == sorted(schemas, key=[OLD, new].index), "an older schema behind a newer one"
    assert schemas[-1] == new
    codec = capture(cluster, "ks", "t").codec
    last = codec.decode_value(found[-1][1].value)["columns"]
    assert isinstance(last, dict)
    assert last["v"] == ({"value": "abcd"} if new == RETYPED else None)


def test_two_alters_in_one_window() -> None:
    """After each of them, reading continues where the previous run ended."""
    cluster = Cluster(OLD)

    def alter(page: int) -> None:
        cluster.schema = {5: ADDED, 12: RETYPED}.get(page, cluster.schema)

    cluster.on_page = alter
    found = read(cluster, Clock())
    assert [place(change) for _, change in found] == whole()
    assert {schema.values for schema, _ in found} >= {OLD.values, RETYPED.values}


def test_alter_inside_a_group_delivers_only_the_rest() -> None:
    """If a part of the group was delivered, only the rest follows."""
    table_of = capture(Cluster(OLD), "ks", "t")
    everything = list(changes(table_of))
    tries = iter([everything[:100], everything])

    def some(_: CapturedTable) -> Iterator[EncodedChange]:
        part = next(tries)
        yield from part
        if len(part) < len(everything):
            raise ColumnsChangedError("columns changed")

    found = [change for _, run in runs_by_schema(table_of, some, lambda: table_of, clock=Clock()) for change in run]
    assert found == everything


@pytest.mark.parametrize("described", [OLD, RENAMED])
def test_schema_that_does_not_match_the_log_is_read_again(described: TableSchema) -> None:
    """An encoder is compiled only if the base table's keys and types match the log."""
    cluster, clock = Cluster(RETYPED), Clock()
    cluster.described_as = described

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock() > 3:
            cluster.described_as = None

    assert capture(cluster, "ks", "t", clock=clock, sleep=sleep).schema == RETYPED
    assert clock() > 3


@pytest.mark.parametrize(
    ("described", "words"),
    [
        (OLD, "v is int in the table and text in the log"),
        (WIDER, "columns missing: cdc$deleted_x, x"),
        (RENAMED, "columns missing: line"),
    ],
)
def test_lasting_contradiction_is_an_error(described: TableSchema, words: str) -> None:
    """The message has the table, both lists of columns, and the differences."""
    cluster, clock = Cluster(RETYPED), Clock()
    cluster.described_as = described
    with pytest.raises(UnsettledSchemaError) as caught:
        capture(cluster, "ks", "t", within_s=10, clock=clock, sleep=clock.sleep)
    text = str(caught.value)
    assert f"table ks.t: its columns are pk int, {described.clustering[0].name} int, v " in text
    assert "pk int" in text.partition("those of its log")[2]
    assert words in text
    assert "10 s" in text
    assert clock() == pytest.approx(10, abs=0.5)


def test_missing_table_is_distinguished_from_a_new_one() -> None:
    """A missing table is an error at once; a table that a node does not know yet is read again."""
    cluster, clock = Cluster(OLD), Clock()
    cluster.is_missing = True
    with pytest.raises(TableMissingError, match=r"ks\.t_scylla_cdc_log does not exist"):
        capture(cluster, "ks", "t", clock=clock, sleep=clock.sleep)
    cluster.is_missing, cluster.refusals = False, 3
    assert capture(cluster, "ks", "t", clock=clock, sleep=clock.sleep).schema == OLD


def test_pages_that_never_agree_end_in_an_error() -> None:
    """Pages may differ from the captured table for a limited time only."""
    table_of, clock, captures = capture(Cluster(OLD), "ks", "t"), Clock(), []

    def stubborn(_: CapturedTable) -> Iterator[EncodedChange]:
        raise ColumnsChangedError("columns changed from v int to v text")
        yield

    def again() -> CapturedTable:
        captures.append(clock())
        return table_of

    with pytest.raises(ColumnsChangedError, match="from v int to v text"):
        drain(runs_by_schema(table_of, stubborn, again, within_s=5, clock=clock, sleep=clock.sleep))
    assert captures[-1] == pytest.approx(5, abs=0.5)


def test_refused_read_captures_the_table_again() -> None:
    """A log that was dropped while it was read is missing, which is retriable."""
    cluster = Cluster(OLD)
    table_of = capture(cluster, "ks", "t")

    def dropped(_: CapturedTable) -> Iterator[EncodedChange]:
        cluster.is_missing = True
        raise RefusedError("unconfigured table t_scylla_cdc_log")
        yield

    with pytest.raises(TableMissingError):
        drain(runs_by_schema(table_of, dropped, lambda: capture(cluster, "ks", "t")))


def test_types_of_results_match_the_tables() -> None:
    """Frozen types, list deltas and the two names of text are no contradiction."""
    schema = table(
        {"pk": "frozen<list<int>>"}, regular={"l": "list<varchar>", "m": "map<text, frozen<set<int>>>", "v": "varchar"}
    )
    types = dict(zip(log_columns(schema), log_types(schema), strict=True))
    assert types["pk"] == parse("list<int>")
    assert types["l"] == parse("map<timeuuid, text>")
    assert types["m"] == parse("map<text, set<int>>")
    assert types["v"] == NativeType("text")
