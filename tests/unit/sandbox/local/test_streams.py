"""`local streams` against tables in memory: what changes, what readers see of it, where writes go, what is refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from bridge.adapters.scylla.session import NodeRows
from bridge.adapters.scylla.stream_metadata import StreamMetadata, stream_metadata
from bridge.model.streams import MAX_TOKEN, Token, TokenRange
from bridge.model.times import UnixMicros
from sandbox.cql.catalog import TableName
from sandbox.errors import LocalStackError
from sandbox.local import command
from sandbox.local.stream_changes import Ahead, StreamChanges, captured_table
from sandbox.local.stream_listing import shown
from sandbox.scylla.local_streams import LocalStreams
from sandbox.scylla.values.nested import unpack_elements
from sandbox.writing_session import WritingSession

NOW_US = UnixMicros(1_800_000_000_000_000)
WHOLE = TokenRange(None, MAX_TOKEN)
TABLETS, VNODES = TableName("tab", "orders"), TableName("vn", "orders")
AT_ONCE, LATE = Ahead(5, publish=True), Ahead(5, publish=False)


def _instant(cell: bytes) -> datetime:
    return datetime.fromtimestamp(struct.unpack(">q", cell)[0] / 1000, UTC).replace(tzinfo=None)


def _longs(cell: bytes) -> list[int]:
    return [struct.unpack(">q", one)[0] for one in unpack_elements(cell)]


_DECODE: dict[str, Callable[[bytes], Any]] = {
    "time": _instant,
    "timestamp": _instant,
    "streams_timestamp": _instant,
    "range_end": lambda cell: struct.unpack(">q", cell)[0],
    "range_ends": _longs,
    "ring_token": lambda cell: struct.unpack(">q", cell)[0],
    "streams": unpack_elements,
    "stream_state": lambda cell: cell[0],
    "stream_id": bytes,
}
_KEYS = {
    "cdc_streams_descriptions_v2": ("time", "range_end"),
    "cdc_streams": ("keyspace_name", "table_name", "timestamp", "stream_state", "stream_id"),
}


SYSTEM_COLUMNS = (
    ("system_schema", "scylla_keyspaces", "initial_tablets"),
    ("system_distributed", "cdc_generation_timestamps", "time"),
    ("system_distributed", "cdc_streams_descriptions", "time"),
    ("system", "cdc_local", "key"),
)
"""System tables whose existence depends on the release, each with a column."""


class Server:
    """The tables of streams, and two captured tables: one with tablets and one with vnodes."""

    address = "nowhere"
    node_count = 1

    def __init__(self) -> None:
        self.settings = type("Settings", (), {"metadata_consistency": None})()
        names = [
            *((keyspace, name) for keyspace in ("tab", "vn") for name in ("orders", "orders_scylla_cdc_log")),
            ("vn", "plain"),
        ]
        column = {
            "column_name": "id",
            "kind": "partition_key",
            "position": 0,
            "type": "int",
            "clustering_order": "none",
        }
        enabled = {"cdc": b"\x01\0\0\0\x07\0\0\0enabled\x04\0\0\0true"}
        self.tables: dict[str, list[dict[str, Any]]] = {
            "tables": [
                {
                    "keyspace_name": keyspace,
                    "table_name": name,
                    "id": 1,
                    "extensions": {} if name == "plain" else enabled,
                }
                for keyspace, name in names
            ],
            "columns": [
                *({"keyspace_name": keyspace, "table_name": name, **column} for keyspace, name in names),
                *(
                    {"keyspace_name": keyspace, "table_name": name, **column, "column_name": system_column}
                    for keyspace, name, system_column in SYSTEM_COLUMNS
                ),
            ],
            "keyspaces": [{"keyspace_name": "tab"}, {"keyspace_name": "vn"}],
            "scylla_keyspaces": [{"keyspace_name": "tab", "initial_tablets": 2}],
            "cdc_local": [{"key": "rewritten"}],
        }

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        del consistency
        table, where = self._parts(cql)
        found = self._matching(table, where, list(parameters))
        return found[:1] if "DISTINCT" in cql or "LIMIT 1" in cql else found

    def node_rows(self, cql: str, parameters: Sequence[object] = ()) -> NodeRows:
        return NodeRows(self.address, self.rows(cql, parameters))

    def cells(self, *_: object, **__: object) -> Iterable[tuple[bytes, ...]]:
        return ()

    def execute(self, cql: str) -> None:
        assert cql.startswith("TRUNCATE ")
        self.tables[cql.rpartition(".")[2]] = []

    def prepare(self, cql: str) -> str:
        return cql

    def write_raw(self, cql: str, cells: Sequence[bytes]) -> Future[None]:
        done: Future[None] = Future()
        done.set_result(None)
        table, where = self._parts(cql)
        if cql.startswith("INSERT"):
            names = re.findall(r"\w+", cql.partition("(")[2].partition(")")[0])
            given = iter(cells)
            values = re.findall(r"\?|'\w+'", cql.rpartition("VALUES")[2]) or ["?"] * len(names)
            row = {
                name: self._decoded(table, name, next(given)) if value == "?" else value[1:-1]
                for name, value in zip(names, values, strict=True)
            }
            keys = _KEYS.get(table, tuple(row))
            rows = self.tables.setdefault(table, [])
            rows[:] = [one for one in rows if any(one.get(key) != row.get(key) for key in keys)]
            rows.append(row)
            return done
        names = [name for name, _, value in where if value == "?"]
        wanted = [self._decoded(table, name, cell) for name, cell in zip(names, cells, strict=True)]
        gone = self._matching(table, where, wanted)
        self.tables[table] = [row for row in self.tables.get(table, []) if row not in gone]
        return done

    def write_all(self, writes: Iterable[Callable[[], Future[None]]]) -> int:
        return sum(1 for start in writes if start().result() is None)

    @staticmethod
    def _parts(cql: str) -> tuple[str, list[tuple[str, str, str]]]:
        named = re.search(r"(?:FROM|INTO) (?:\w+\.)?(\w+)", cql)
        assert named is not None, cql
        where = re.findall(r"(\w+) (=|<=|>) (\?|'\w+')", cql.partition(" WHERE ")[2])
        return named[1], where

    @staticmethod
    def _decoded(table: str, name: str, cell: bytes) -> Any:
        if table == "known_streams" and name == "time":
            return struct.unpack(">q", cell)[0]
        if name == "key" and table == "cdc_local":
            return cell.decode()
        return _DECODE.get(name, bytes.decode)(cell)

    def _matching(self, table: str, where: list[tuple[str, str, str]], parameters: list[Any]) -> list[dict[str, Any]]:
        found = self.tables.get(table, [])
        given = iter(parameters)
        for name, sign, value in where:
            wanted = next(given) if value == "?" else value[1:-1]
            if isinstance(wanted, int) and name in ("time", "timestamp") and table != "known_streams":
                wanted = datetime.fromtimestamp(wanted / 1000, UTC).replace(tzinfo=None)
            found = [
                row
                for row in found
                if (sign == "=" and row[name] == wanted)
                or (sign == "<=" and row[name] <= wanted)
                or (sign == ">" and row[name] > wanted)
            ]
        return found


class Stack:
    """The server with a clock, what was said, and each table's readers and writers."""

    def __init__(self) -> None:
        self.server = Server()
        self.session = cast("WritingSession", self.server)
        self.now_us = NOW_US
        self.said: list[str] = []
        self.changes = StreamChanges(self.session, self.said.append, lambda: self.now_us)
        LocalStreams(self.session, lambda: self.now_us).begin()
        LocalStreams(self.session, lambda: self.now_us).log_made(*TABLETS)

    def reader(self, table: TableName) -> StreamMetadata:
        return stream_metadata(self.session, *table)

    def seen(self, table: TableName) -> list[int]:
        """How many streams readers see in each of a table's generations."""
        reader = self.reader(table)
        return [len(reader.streams(one.start_ms, WHOLE)) for one in reader.generations()]

    def written_to(self, table: TableName) -> tuple[bytes, int]:
        """Stream and generation of a write now, by a program that has just been started."""
        streams = LocalStreams(self.session, lambda: self.now_us)
        stream, generation_ms = streams.stream_for(*table, Token(5), self.now_us, self.now_us)
        return stream.raw, generation_ms

    def show(self, table: TableName | None = None) -> list[str]:
        return list(shown(self.session, table, self.now_us))


@pytest.fixture
def stack() -> Stack:
    return Stack()


@pytest.mark.parametrize("table", [VNODES, TABLETS])
def test_a_change_takes_writes_from_its_start_on_and_is_seen_when_it_is_published(
    stack: Stack, table: TableName
) -> None:
    def change(ahead: Ahead) -> int:
        if table is VNODES:
            return stack.changes.new_generation(ahead)
        return stack.changes.resize(table, "split", ahead, partial=False)

    before = stack.written_to(table)
    start_ms = change(LATE)
    assert start_ms == NOW_US // 1000 + 5000
    assert stack.written_to(table) == before
    stack.now_us = UnixMicros(NOW_US + 6_000_000)
    stream, generation_ms = stack.written_to(table)
    assert (generation_ms, stream != before[0]) == (start_ms, True)
    assert len(stack.seen(table)) == 1
    assert "not published" in "".join(stack.show(table))
    with pytest.raises(
        LocalStackError, match=r"is not published yet, and ScyllaDB publishes in order\. Publish it first"
    ):
        change(AT_ONCE)
    stack.changes.publish(None if table is VNODES else table)
    assert stack.seen(table)[1] == 2 * stack.seen(table)[0]
    assert stream in {
        one.raw for one in stack.reader(table).streams(stack.reader(table).generations()[1].start_ms, WHOLE)
    }
    with pytest.raises(LocalStackError, match=": all are published"):
        stack.changes.publish(None if table is VNODES else table)
    change(AT_ONCE)
    assert len(stack.seen(table)) == 3
    assert "not published" not in "".join(stack.show(table))


def test_a_change_must_come_after_those_that_are_pending(stack: Stack) -> None:
    stack.changes.new_generation(Ahead(30, publish=True))
    with pytest.raises(LocalStackError, match=r"generation .* \(in 30\.0 s\) exists, .* after it: --in 31$"):
        stack.changes.new_generation(AT_ONCE)
    stack.changes.new_generation(Ahead(31, publish=True))
    assert len(stack.seen(VNODES)) == 3


def test_tablets_merge_and_some_of_them_go_on(stack: Stack) -> None:
    stack.changes.resize(TABLETS, "split", AT_ONCE, partial=True)
    assert "2 streams become 3, 1 of them stay, published" in stack.said[-1]
    stack.changes.resize(TABLETS, "merge", Ahead(6, publish=True), partial=True)
    stack.changes.resize(TABLETS, "merge", Ahead(7, publish=True), partial=False)
    assert stack.seen(TABLETS) == [2, 3, 2, 1]
    with pytest.raises(LocalStackError, match="has only one tablet: there is nothing to merge it with"):
        stack.changes.resize(TABLETS, "merge", Ahead(8, publish=True), partial=False)


def test_tablets_follow_their_least_number(stack: Stack) -> None:
    """A jump over a factor of two makes a stream set for each step, all of them announced ahead; none is kept."""
    streams = LocalStreams(stack.session, lambda: stack.now_us)
    assert streams.tablets_altered(*TABLETS, 7) == (4, 8)
    generations = stack.reader(TABLETS).generations()
    assert [one.start_ms - NOW_US // 1000 for one in generations] == [-5000, 7000, 7187]
    assert all(one.replaces_all for one in generations)
    assert streams.tablets_altered(*TABLETS, 8) == ()
    stack.now_us = UnixMicros(NOW_US + 1_000_000)
    assert streams.tablets_altered(*TABLETS, 1) == (4, 2, 1)
    assert stack.seen(TABLETS) == [2, 4, 8, 4, 2, 1]
    assert streams.tablets_altered(*VNODES, 8) == ()


def test_old_stream_sets_are_forgotten_by_the_ttl(stack: Stack) -> None:
    stack.changes.resize(TABLETS, "split", AT_ONCE, partial=False)
    stack.changes.collect(TABLETS)
    assert stack.seen(TABLETS) == [2, 4]
    stack.now_us = UnixMicros(NOW_US + 86_406_000_000)
    stack.changes.collect(TABLETS)
    assert stack.seen(TABLETS) == [4]
    assert "1 stream set deleted" in stack.said[-1]


def test_an_old_cluster_is_upgraded(stack: Stack) -> None:
    """Readers see the same streams in either format, and writes keep theirs."""
    with pytest.raises(LocalStackError, match="uses today's tables already"):
        stack.changes.upgrade()
    stack.changes.new_generation(AT_ONCE)
    stack.now_us = UnixMicros(NOW_US + 6_000_000)
    before, seen = stack.written_to(VNODES), stack.seen(VNODES)
    stack.changes.old_format()
    assert stack.server.tables["cdc_streams_descriptions_v2"] == []
    assert (stack.written_to(VNODES), stack.seen(VNODES)) == (before, seen)
    stack.changes.new_generation(AT_ONCE)
    assert stack.server.tables["cdc_streams_descriptions_v2"] == []
    with pytest.raises(LocalStackError, match="in the old format already"):
        stack.changes.old_format()
    stack.changes.upgrade()
    assert stack.written_to(VNODES) == before
    assert stack.seen(VNODES) == [*seen, 96]
    assert len(stack.server.tables["cdc_streams_descriptions_v2"]) == 16 + 32 + 48


def test_a_dropped_log_has_no_streams(stack: Stack) -> None:
    LocalStreams(stack.session, lambda: stack.now_us).log_dropped(*TABLETS)
    assert stack.seen(TABLETS) == []
    with pytest.raises(LocalStackError, match=r"tab\.orders has no streams"):
        stack.show(TABLETS)


def test_what_is_shown(stack: Stack) -> None:
    stack.changes.resize(TABLETS, "split", AT_ONCE, partial=False)
    lines = stack.show(TABLETS)
    assert lines[0] == "tab.orders: tablets"
    assert lines[1] == "  2027-01-15T07:59:55.000Z (1799999995000)  2 streams, used now"
    assert lines[2] == "  2027-01-15T08:00:05.000Z (1800000005000)  4 streams, 2 closed, 4 opened, in 5.0 s"
    assert [line.rpartition(" ")[2] for line in lines[3:]] == ["-1", str(MAX_TOKEN)]
    assert len(stack.show(VNODES)) == 2 + 32
    assert [line for line in stack.show() if not line.startswith(" ")] == [
        "vnodes: the generations of all tables in keyspaces without tablets",
        "tab.orders: tablets",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("orders", r"not a table's name: orders\. Write keyspace\.table"),
        ("tab.orders extra", "not a table's name: tab.orders extra"),
        ("tab.orders_scylla_cdc_log", r"is a log. Name its base table: tab\.orders$"),
        ("tab.nothing", r"table tab\.nothing: there is no such table at nowhere"),
        ("Tab.Orders2", r"table tab\.orders2: there is no such table"),
        ("nowhere.orders", r"table nowhere\.orders: there is no keyspace 'nowhere' at nowhere"),
        ("vn.plain", r"table vn\.plain: CDC is not enabled; enable it with ALTER TABLE"),
    ],
)
def test_tables_that_are_none(stack: Stack, text: str, words: str) -> None:
    with pytest.raises(LocalStackError, match=words):
        captured_table(stack.session, text)


def test_a_table_with_vnodes_has_no_tablets(stack: Stack) -> None:
    for act in (
        lambda: stack.changes.resize(VNODES, "split", AT_ONCE, partial=False),
        lambda: stack.changes.publish(VNODES),
        lambda: stack.changes.collect(VNODES),
    ):
        with pytest.raises(LocalStackError, match=r"vn\.orders has no tablets: .* `local streams new-generation`"):
            act()


@pytest.mark.parametrize("seconds", ["1.9", "-5", "nan", "soon", "1e9"])
def test_lead_times_that_are_none(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.parse(["streams", "split", "tab.orders", "--in", seconds])
    assert f"not a number of seconds from 2 to 86400: {seconds}" in capsys.readouterr().err
