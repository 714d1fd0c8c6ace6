"""CQL on the local stack, against a server of which only the answers are there: what is sent, refused and logged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, cast

import pytest

from bridge.adapters.scylla.session import NodeRows
from bridge.errors import RefusedError
from bridge.model.times import UnixMicros
from sandbox.cql.client import LocalCql
from sandbox.cql.parser.source import statements_of
from sandbox.cql.stored import StoredBase, stored_partition
from sandbox.errors import LocalStackError
from sandbox.scylla.log.log_groups import LogRules
from sandbox.scylla.log.log_table import log_columns
from sandbox.scylla.values.nested import UserType, pack_elements, pack_fields, pack_pairs
from sandbox.writing_session import WritingSession
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse

NOW_US = UnixMicros(1_800_000_000_000_000)
SCHEMA = TableSchema(
    "shop",
    "orders",
    (
        Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),
        Column("status", parse("text"), ColumnKind.REGULAR),
        Column("events", parse("list<int>"), ColumnKind.REGULAR),
    ),
)
# 'enabled': 'true', 'preimage': 'true', as ScyllaDB keeps it
_OPTIONS = b"\x02\0\0\0\x07\0\0\0enabled\x04\0\0\0true\x08\0\0\0preimage\x04\0\0\0true"


class Server:
    """Answers as a server with one captured table, `shop.orders`, with the content `stored`."""

    address = "nowhere"

    def __init__(self, *, has_log: bool = True, generation_ms: int | None = 1_799_999_000_000) -> None:
        self.has_log = has_log
        self.generation_ms = generation_ms
        self.stored: list[tuple[bytes | None, ...]] = []
        self.executed: list[str] = []
        self.logged: list[list[Any]] = []
        self.refuses: str | None = None
        self.tablets: int | None = None
        self.schema = SCHEMA
        self.flags = {"compound"}

    def rows(self, cql: str, parameters: Sequence[object] = (), consistency: str | None = None) -> list[dict[str, Any]]:
        if "system_schema.columns" in cql and not parameters:
            return [{"column_name": name} for name in ("key", "time", "initial_tablets")]
        if "cdc_local" in cql:
            return [{"key": "rewritten"}]
        if "scylla_keyspaces" in cql:
            return [] if self.tablets is None else [{"initial_tablets": self.tablets}]
        if "cdc_streams_descriptions_v2" in cql:
            return [{"range_end": 0, "streams": {bytes(7) + bytes([stream]) + bytes(8) for stream in (0, 200)}}]
        if "system_schema.columns" in cql:
            return self._columns(str(parameters[1]))
        if "system_schema.types" in cql:
            return [{"type_name": "box", "field_names": ["width", "note"], "field_types": ["int", "text"]}]
        if "system_schema.tables" in cql:
            names = ["orders", *(["orders_scylla_cdc_log"] if self.has_log else [])]
            wanted = names if len(parameters) == 1 else [name for name in names if name == parameters[1]]
            row = {"default_time_to_live": 0, "id": 1, "extensions": {"cdc": _OPTIONS}, "flags": self.flags}
            return [{"table_name": name, **row} for name in wanted]
        return []

    def node_rows(self, cql: str, parameters: Sequence[object] = ()) -> NodeRows:
        return NodeRows(self.address, self.rows(cql, parameters))

    def _columns(self, table: str) -> list[dict[str, Any]]:
        if table != "orders":
            return [{"column_name": name, "kind": "regular", "type": text} for name, text in log_columns(self.schema)]
        return [
            {
                "column_name": column.name,
                "kind": column.kind.value,
                "position": column.position,
                "type": str(column.type),
                "clustering_order": "none",
            }
            for column in self.schema.columns
        ]

    def execute(self, cql: str) -> None:
        if self.refuses is not None and self.refuses in cql:
            raise RefusedError("no")
        self.executed.append(cql)

    def prepare(self, cql: str) -> Any:
        return cql

    def cells_of(self, _prepared: str, _cells: Sequence[bytes]) -> Iterator[tuple[bytes | None, ...]]:
        yield from self.stored

    def write_raw(self, cql: str, cells: Sequence[Any]) -> Future[None]:
        self.executed.append(cql)
        if "scylla_keyspaces" in cql:
            self.tablets = int.from_bytes(cells[1], "big") if cql.startswith("INSERT") else None
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def write_batch(self, _cql: str, rows: Sequence[Sequence[Any]]) -> Future[None]:
        self.logged += [list(row) for row in rows]
        return self.write_raw("LOG", ())

    def write_all(self, writes: Any) -> int:
        return sum(1 for start in writes if start().result() is None)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server()
    # Which table of generations counts is `VnodeStreams`' business.
    monkeypatch.setattr(
        "sandbox.scylla.cluster.simulated_cluster.VnodeStreams",
        lambda session: type("Streams", (), {"generations": lambda _: _starts(session)})(),
    )
    return made


def _starts(session: Server) -> list[Any]:
    if session.generation_ms is None:
        return []
    return [type("Start", (), {"start_ms": session.generation_ms})()]


def run(server: Server, text: str, *, fails: bool = False) -> list[str]:
    said: list[str] = []
    client = LocalCql(cast("WritingSession", server), said.append, clock=lambda: NOW_US)
    with pytest.raises(LocalStackError) if fails else nullcontext():
        client.run(statements_of(text, "x.cql"), "x.cql")
    return said


def row(**cells: bytes) -> tuple[bytes | None, ...]:
    """Row 7 of `shop.orders`."""
    return tuple({"id": b"\0\0\0\x07", **cells}.get(column.name) for column in SCHEMA.columns)


def test_a_write_goes_to_the_server_and_then_into_the_log_with_what_was_there(server: Server) -> None:
    server.stored = [row(status=b"new")]
    insert = "UPDATE shop.orders SET status = 'paid' WHERE id = 7"
    assert run(server, f"{insert};") == ["x.cql:1:1: UPDATE shop.orders: done; 2 log rows"]
    assert server.executed == [insert, "LOG"]
    assert [row[1] for row in server.logged] == [b"\0", b"\x01"]  # the pre-image, then the update
    assert [b"new" in row for row in server.logged] == [True, False]
    assert [b"paid" in row for row in server.logged] == [False, True]


def test_without_a_generation_the_first_one_is_made(server: Server) -> None:
    server.generation_ms = None
    assert run(server, "") == [f"created the first stream generation, {NOW_US // 1000}"]
    assert "cdc_generation_timestamps" in server.executed[-1]


def test_a_captured_table_without_a_log_gets_one(server: Server) -> None:
    server.has_log = False
    said = run(server, "INSERT INTO shop.orders (id) VALUES (1)")
    assert said[0] == "created the log shop.orders_scylla_cdc_log"
    assert server.executed[0].startswith('CREATE TABLE "shop"."orders_scylla_cdc_log"')


def test_a_log_in_a_keyspace_with_tablets_gets_a_stream_for_each(server: Server) -> None:
    server.has_log = False
    server.tablets = 8
    said = run(server, "INSERT INTO shop.other (id) VALUES (1)", fails=True)
    assert said == ["created the log shop.orders_scylla_cdc_log, with 8 tablets"]
    assert sum("system.cdc_streams" in one for one in server.executed) == 16  # each as current, and as opened


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "ALTER TABLE shop.orders_scylla_cdc_log WITH cdc = {'enabled': true}",
            "creating nested CDC logs is not allowed",
        ),
        ("ALTER TABLE shop.orders_scylla_cdc_log ADD v int", "You cannot modify the set of columns"),
        ("DROP TABLE shop.orders_scylla_cdc_log", "Cannot DROP cdc log table"),
    ],
)
def test_a_log_that_was_just_created_is_known(server: Server, text: str, answer: str) -> None:
    """It is guarded from the first moment."""
    server.has_log = False
    with pytest.raises(LocalStackError, match=answer):
        run(server, text)


def test_a_table_that_was_just_created_is_dropped_with_its_log(server: Server) -> None:
    server.has_log = False
    assert "x.cql:1:1: DROP TABLE shop.orders: done, its log too" in run(server, "DROP TABLE shop.orders")
    assert any(one.startswith("DROP TABLE IF EXISTS") and "scylla_cdc_log" in one for one in server.executed)


@pytest.mark.parametrize(
    ("flags", "operation"),
    [({"compound"}, b"\2"), ({"dense"}, b"\1"), ({"compound", "dense"}, b"\1"), (set(), b"\1")],
)
def test_a_compact_table_has_no_row_markers(server: Server, flags: set[str], operation: bytes) -> None:
    """Its INSERT is logged as an update; the server's flags say that it is one."""
    server.flags = flags
    run(server, "INSERT INTO shop.orders (id, status) VALUES (7, 'new')")
    assert server.logged[-1][1] == operation


@pytest.mark.parametrize("literal", ["(1, 'a')", "(1)", "{width: 1, note: 'a'}"])
def test_a_tuple_literal_stands_for_a_user_defined_type(server: Server, literal: str) -> None:
    """The stack's server does not understand it, so it gets the value as cells; other literals it reads itself."""
    server.schema = TableSchema(*("shop", "orders"), (SCHEMA.columns[0], Column("v", parse("box"), ColumnKind.REGULAR)))
    text = f"UPDATE shop.orders SET v = {literal} WHERE id = 7"
    assert run(server, text) == ["x.cql:1:1: UPDATE shop.orders: done; 1 log row"]
    prepared = 'UPDATE "shop"."orders" USING TIMESTAMP ? AND TTL ? SET "v" = ? WHERE "id" = ?'
    assert server.executed == [text if "width" in literal else prepared, "LOG"]
    value = pack_fields([b"\0\0\0\1", b"a" if "a" in literal else None])
    assert value in server.logged[0]


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("", "done"),
        (" AND tablets = {'enabled': false}", "done"),
        (" AND tablets = {'enabled': true}", "done, with tablets: 4 for each table at first"),
        (" AND tablets = {'initial': 5}", "done, with tablets: 8 for each table at first"),
    ],
)
def test_a_keyspace_has_tablets_if_it_says_so(server: Server, option: str, told: str) -> None:
    server.tablets = 2  # of a keyspace that somebody has dropped by other means
    text = "CREATE KEYSPACE k WITH replication = {'class': 'NetworkTopologyStrategy'}" + option
    assert run(server, text) == [f"x.cql:1:1: CREATE KEYSPACE: {told}"]
    assert server.executed[0] == text
    assert (server.tablets is not None) == ("tablets:" in told)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO orders (id) VALUES (1)", r"^x\.cql:1:1: no keyspace is given for orders: write keyspace\.orders"),
        ("\n INSERT INTO shop.orders (id)\n VALUES (1 2)", r"^x\.cql:3:12: , expected"),
        ("INSERT INTO shop.other (id) VALUES (1)", r"^x\.cql:1:1: unconfigured table shop\.other"),
        (
            "UPDATE shop.orders SET events[0] = 1 WHERE id = 1",
            "the local stack cannot write single elements of the list 'events'",
        ),
        ("UPDATE shop.orders SET events = events - [1] WHERE id = 1", "single elements of the list 'events'"),
        ("DELETE events[1] FROM shop.orders WHERE id = 1", "single elements of the list 'events'"),
        ("INSERT INTO shop.orders (id) VALUES (1) USING TIMESTAMP 1", "from the past"),
        ("DROP TABLE shop.orders_scylla_cdc_log", "Cannot DROP cdc log table"),
        (
            "INSERT INTO shop.orders_scylla_cdc_log (id) VALUES (1)",
            r"shop\.orders_scylla_cdc_log is a log, which only the server writes. Write to shop\.orders",
        ),
        ("ALTER KEYSPACE shop WITH tablets = {'enabled': true}", "keyspace shop: the option tablets can't be altered"),
        ("CREATE KEYSPACE k WITH tablets = {'enabled': maybe}", "'enabled' is true or false, not maybe"),
        ("CREATE KEYSPACE k WITH tablets = {'initial': -1}", "'initial' is a number of tablets, not -1"),
        ("CREATE KEYSPACE k WITH tablets = {'some': 1}", "tablets has 'enabled' and 'initial', not \"some\""),
        ("GRANT ALL ON shop.orders TO a", "a statement that writes or that makes, alters or drops a table or type"),
        ("BEGIN BATCH APPLY BATCH", "a batch without statements"),
    ],
)
def test_what_is_refused_reaches_neither_server_nor_log(server: Server, text: str, words: str) -> None:
    with pytest.raises(LocalStackError, match=words):
        run(server, text)
    assert (server.executed, server.logged) == ([], [])


def test_what_the_server_refuses_is_not_logged_and_ends_the_run(server: Server) -> None:
    server.refuses = "(2)"
    text = ";".join(f"INSERT INTO shop.orders (id) VALUES ({number})" for number in (1, 2, 3))
    with pytest.raises(LocalStackError, match=r"^x\.cql:1:41: no \(1 before it was run\)"):
        run(server, text)
    assert len(server.logged) == 1


def test_conditions_are_held_against_what_stands_there(server: Server) -> None:
    server.stored = [row(status=b"new")]
    update = "UPDATE shop.orders SET status = 'paid' WHERE id = 7 IF status = '{}'"
    assert run(server, update.format("old")) == [
        "x.cql:1:1: UPDATE shop.orders: not applied: its conditions do not hold"
    ]
    assert (server.executed, server.logged) == ([], [])
    assert run(server, update.format("new")) == ["x.cql:1:1: UPDATE shop.orders: done; 2 log rows"]


def test_a_partition_is_read_back_with_its_static_row_and_its_collections(server: Server) -> None:
    schema = TableSchema(
        "shop",
        "t",
        (
            Column("p", parse("int"), ColumnKind.PARTITION_KEY, 0),
            Column("c", parse("int"), ColumnKind.CLUSTERING, 0),
            Column("st", parse("int"), ColumnKind.STATIC),
            Column("s", parse("set<int>"), ColumnKind.REGULAR),
            Column("m", parse("map<int, int>"), ColumnKind.REGULAR),
            Column("l", parse("list<int>"), ColumnKind.REGULAR),
            Column("u", parse("point"), ColumnKind.REGULAR),
        ),
    )
    cells = {
        "p": b"P",
        "c": b"C",
        "st": b"S",
        "s": pack_elements([b"a", b"b"]),
        "m": pack_pairs([(b"k", b"v")]),
        "l": pack_elements([b"y", b"x"]),
        "u": pack_fields([None, b"2"]),
    }
    server.stored = [tuple(cells[column.name] for column in schema.columns)]
    types = (UserType("point", (("x", parse("int")), ("y", parse("int")))),)
    columns = LogRules.of(schema, user_types=types).columns
    base = StoredBase(columns, lambda key: stored_partition(cast("WritingSession", server), schema, key))
    found = base.row((b"P",), (b"C",), NOW_US)
    assert found is not None
    assert found.has_marker
    assert {name: list(elements.values()) for name, elements in found.collections.items()} == {
        "s": [b"", b""],
        "m": [b"v"],
        "l": [b"y", b"x"],
        "u": [b"2"],
    }
    assert list(found.collections["u"]) == [b"\0\x01"]
    assert base.static((b"P",), NOW_US).cells == {"st": b"S"}
