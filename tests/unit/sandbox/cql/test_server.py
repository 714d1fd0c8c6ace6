"""Statements carried out in memory: what they write, what they read, and what is refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.times import UnixMicros, micros_of, sort_key
from sandbox.cql.interpret import Request
from sandbox.cql.list_keys import ListKeys
from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.statements import Name
from sandbox.cql.server import StatementServer
from sandbox.scylla.base.mutations import Insert, Mutation
from sandbox.scylla.log.log_table import log_columns
from sandbox.scylla.refusals import SchemaRefusal

NOW_US = UnixMicros(1_800_000_000_000_000)
TABLE = (
    "CREATE TABLE ks.t (p int, c int, a int, s int static, l list<int>, m map<int, int>, u box, PRIMARY KEY (p, c)) "
    "WITH cdc = {'enabled': true}"
)


def i(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


class Table:
    """One table of a server, and a clock that advances by a second with each statement."""

    def __init__(self, ddl: str = TABLE) -> None:
        self.server = StatementServer("ks")
        self.now_us = NOW_US
        self.run("CREATE TYPE ks.box (width int, height int)")
        self.run(ddl)

    def run(self, text: str, *parameters: int | str | None) -> int:
        """Carry out a statement and say how many log rows it makes."""
        self.now_us = UnixMicros(self.now_us + 1_000_000)
        logged = self.server.execute(text, Request(self.now_us, self.now_us), parameters)
        return sum(len(group.rows) for entry in logged for group in entry.groups)

    def row(self, clustering: int = 1) -> dict[str, object]:
        """Return the content of a row of partition 1: cells, and values of collections."""
        table = self.server.catalog.table(Name("ks", "t"))
        found = self.server.base(table).row((i(1),), (i(clustering),), self.now_us)
        assert found is not None
        collections = {name: list(cells.values()) for name, cells in found.collections.items()}
        return {**found.cells, **collections}


def test_list_statements_read_the_list() -> None:
    table = Table()
    table.run("INSERT INTO t (p, c, l) VALUES (1, 1, [3, 4, 3])")
    table.run("UPDATE t SET l = [1, 2] + l WHERE p = 1 AND c = 1")
    table.run("UPDATE t SET l = l + [5] WHERE p = 1 AND c = 1")
    assert table.row()["l"] == [i(number) for number in (1, 2, 3, 4, 3, 5)]
    table.run("UPDATE t SET l[1] = 9, l[5] = null WHERE p = 1 AND c = 1")
    table.run("DELETE l[0] FROM t WHERE p = 1 AND c = 1")
    table.run("UPDATE t SET l = l - [3] WHERE p = 1 AND c = 1")
    assert table.row()["l"] == [i(9), i(4)]
    with pytest.raises(CqlError, match="column 'l': List index 2 out of bound, list has size 2"):
        table.run("UPDATE t SET l[2] = 1 WHERE p = 1 AND c = 1")


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("EXISTS", True),
        ("a = 5", True),
        ("a = null", False),
        ("a != 5", False),
        ("a > 4 AND a <= 5", True),
        ("a < 5", False),
        ("a IN (4, 5)", True),
        ("s = 7", True),
        ("m[1] = 2", True),
        ("m[2] = null", True),
        ("u.width = 3", True),
        ("u.height > 0", False),
    ],
)
def test_conditions_look_at_the_row(condition: str, holds: bool) -> None:
    table = Table()
    table.run("INSERT INTO t (p, c, a, s, m, u) VALUES (1, 1, 5, 7, {1: 2}, {width: 3})")
    assert table.run(f"UPDATE t SET a = 6 WHERE p = 1 AND c = 1 IF {condition}") == holds
    assert table.row()["a"] == i(6 if holds else 5)


def test_one_failed_condition_keeps_a_whole_batch_back() -> None:
    table = Table()
    insert = "INSERT INTO t (p, c, a) VALUES (1, 1, 1) IF NOT EXISTS"
    batch = f"BEGIN BATCH {insert}; UPDATE t SET s = 1 WHERE p = 1; APPLY BATCH"
    assert table.run(batch) == 2
    assert table.run(batch) == 0


def test_a_static_row_can_be_conditioned_too() -> None:
    table = Table()
    assert table.run("UPDATE t SET s = 1 WHERE p = 1 IF EXISTS") == 0
    table.run("INSERT INTO t (p, s) VALUES (1, 1)")
    assert table.run("UPDATE t SET s = 2 WHERE p = 1 IF EXISTS") == 1


def test_values_have_run_out_after_their_ttl() -> None:
    table = Table()
    table.run("INSERT INTO t (p, c, a) VALUES (1, 1, 1) USING TTL 2")
    assert table.run("UPDATE t SET a = 2 WHERE p = 1 AND c = 1 IF EXISTS") == 1
    table.now_us = UnixMicros(table.now_us + 3_000_000)
    assert table.run("INSERT INTO t (p, c, a) VALUES (1, 2, 1) IF NOT EXISTS") == 1
    assert table.run("UPDATE t USING TTL 0 SET a = 2 WHERE p = 1 AND c = 2 IF a = 1") == 1


def test_insert_json_nulls_what_it_does_not_name_unless_told_otherwise() -> None:
    table = Table()
    table.run("INSERT INTO t (p, c, a) VALUES (1, 1, 1)")
    table.run("""INSERT INTO t JSON '{"P": 1, "c": 1, "m": [[1, 2]]}' DEFAULT UNSET""")
    assert table.row() == {"a": i(1), "m": [i(2)]}
    table.run("INSERT INTO t JSON ?", '{"p": 1, "c": 1}')
    assert table.row() == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO nowhere (p) VALUES (1)", "unconfigured table nowhere"),
        ("INSERT INTO t (p, a) VALUES (1, 1)", "table ks.t: Missing mandatory PRIMARY KEY part c"),
        ("INSERT INTO t (c) VALUES (1)", "Missing mandatory PRIMARY KEY part p"),
        ("INSERT INTO t (p, c) VALUES (null, 1)", "null can't stand here"),
        ("INSERT INTO t (p, c, z) VALUES (1, 1, 1)", "there is no column 'z'"),
        ("INSERT INTO t (p, c, a) VALUES (1, 1, 'x')", "column 'a': not a value of type int: 'x'"),
        ("INSERT INTO t (p, c, a) VALUES (1, 1, 1) USING TTL -1", "ttl is too large or negative"),
        ("INSERT INTO t (p, c, a) VALUES (1, 1, 1) USING TIMESTAMP 9223372036854775807", "more than 3 days into"),
        ("UPDATE t SET a = 1 WHERE p = 1", "a write needs the whole primary key"),
        ("UPDATE t SET a = 1 WHERE p = 1 AND c > 1", "a write needs the whole primary key"),
        ("UPDATE t SET a = a + 1 WHERE p = 1 AND c = 1", "can only be set as a whole"),
        ("UPDATE t SET u = u + {width: 1} WHERE p = 1 AND c = 1", "nothing can be added"),
        ("UPDATE t SET m = {1: 2} + m WHERE p = 1 AND c = 1", "nothing can be added"),
        ("UPDATE t SET u.depth = 1 WHERE p = 1 AND c = 1", "type box has no field 'depth'"),
        ("DELETE FROM t WHERE c = 1", "the whole partition key must be given"),
        ("DELETE FROM t WHERE p = 1 AND a = 1", "no use for the restriction of a"),
        ("DELETE FROM t WHERE p = 1 AND c > 1 AND c > 2", "more than one lower bound for c"),
    ],
)
def test_what_can_not_be_carried_out_is_said(text: str, words: str) -> None:
    table = Table()
    with pytest.raises(CqlError, match=words):
        table.run(text)


@given(
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.lists(st.integers(0, 2), max_size=2),
    st.one_of(st.none(), st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.booleans())),
    st.one_of(st.none(), st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.booleans())),
)
@settings(max_examples=40)
def test_a_delete_takes_just_the_rows_of_its_slice(
    descending: list[bool],
    equal: list[int],
    lower: tuple[list[int], bool] | None,
    upper: tuple[list[int], bool] | None,
) -> None:
    """Ranges work with all directions of the columns, and with bounds of any number of columns."""
    names = ["a", "b", "c"]
    order = ", ".join(f"{name} {'DESC' if down else 'ASC'}" for name, down in zip(names, descending, strict=True))
    server = StatementServer("ks")
    request = Request(NOW_US, NOW_US)
    server.execute(
        f"CREATE TABLE t (p int, a int, b int, c int, PRIMARY KEY (p, a, b, c)) WITH CLUSTERING ORDER BY ({order})",
        request,
    )
    table = server.catalog.table(Name(None, "t"))
    keys = list(product(range(3), repeat=3))
    server.apply(table, Mutation((i(1),), tuple(Insert(tuple(map(i, key))) for key in keys)), request)
    rest = names[len(equal) :]
    where = [f"{name} = {value}" for name, value in zip(names, equal, strict=False)]
    tests = [lambda key: list(key[: len(equal)]) == equal]
    for bound, sign in ((lower, ">"), (upper, "<")):
        if bound is None:
            continue
        values, inclusive = bound[0][: len(rest)], bound[1]
        bounded = ", ".join(rest[: len(values)])
        where.append(f"({bounded}) {sign}{'=' if inclusive else ''} ({', '.join(map(str, values))})")

        def holds(key: tuple[int, ...], values=values, inclusive=inclusive, sign=sign) -> bool:
            part = list(key[len(equal) : len(equal) + len(values)])
            return (inclusive and part == values) or (part > values if sign == ">" else part < values)

        tests.append(holds)
    later = UnixMicros(NOW_US + 1)
    server.execute(f"DELETE FROM t WHERE {' AND '.join(['p = 1', *where])}", Request(later, later))
    left = [key for key, _row in server.base(table).rows((i(1),), later)]
    assert sorted(left) == sorted(tuple(map(i, key)) for key in keys if not all(test(key) for test in tests))


def test_a_refused_schema_statement_changes_nothing() -> None:
    table = Table()
    before = table.server.catalog.tables
    for text in (
        "ALTER TABLE t WITH cdc = {'enabled': 'maybe'}",
        "ALTER TABLE t_scylla_cdc_log ADD z int",
        "DROP TABLE t_scylla_cdc_log",
    ):
        with pytest.raises(SchemaRefusal):
            table.run(text)
    assert table.server.catalog.tables == before


def test_columns_come_and_go_with_what_they_held() -> None:
    table = Table()
    table.run("INSERT INTO t (p, c, a, m) VALUES (1, 1, 1, {1: 1})")
    table.run("ALTER TABLE t DROP (m)")
    table.run("ALTER TABLE t ADD z text")
    table.run("UPDATE t SET z = 'z' WHERE p = 1 AND c = 1")
    assert table.row() == {"a": i(1), "z": b"z"}
    table.run("TRUNCATE t")
    assert table.run("UPDATE t SET a = 1 WHERE p = 1 AND c = 1 IF EXISTS") == 0


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE ks.n (p int PRIMARY KEY, v chest)",
        "CREATE TABLE ks.n (p int PRIMARY KEY, v list<frozen<tuple<int, chest>>>)",
        "CREATE TYPE ks.lid (v frozen<chest>)",
        "ALTER TABLE t ADD v chest",
        "ALTER TABLE t ALTER a TYPE chest",
        "ALTER TYPE box ADD v frozen<chest>",
        "ALTER TYPE box ALTER width TYPE chest",
    ],
)
def test_an_unknown_type_is_refused(text: str) -> None:
    """At any depth, and a type of another keyspace is unknown too."""
    table = Table()
    table.server.execute("CREATE TYPE other.chest (width int)", Request(NOW_US, NOW_US))
    before = (table.server.catalog.tables, table.server.catalog.user_types("ks"))
    with pytest.raises(SchemaRefusal, match=r"Unknown type ks\.chest"):
        table.run(text)
    assert (table.server.catalog.tables, table.server.catalog.user_types("ks")) == before


def test_types_are_kept_as_the_server_shows_them() -> None:
    """Tuples are frozen, in columns that are added and in fields too."""
    table = Table("CREATE TABLE t (p int PRIMARY KEY, v tuple<int, list<int>>) WITH cdc = {'enabled': true}")
    table.run("ALTER TABLE t ADD w list<tuple<int, box>>")
    table.run("CREATE TYPE lid (v tuple<int, int>)")
    (kept,) = table.server.catalog.tables
    assert {column.name: str(column.type) for column in kept.table_schema.values} == {
        "v": "frozen<tuple<int, frozen<list<int>>>>",
        "w": "list<frozen<tuple<int, frozen<box>>>>",
    }
    (_box, lid) = table.server.catalog.user_types("ks")
    assert str(lid.fields[0][1]) == "frozen<tuple<int, int>>"
    assert dict(log_columns(kept.table_schema))["w"] == "frozen<map<timeuuid, frozen<tuple<int, frozen<box>>>>>"


def test_list_keys_sort_as_the_list_does() -> None:
    keys = ListKeys()
    appended = keys.append(200, NOW_US) + keys.append(200, NOW_US)
    later = keys.append(1, UnixMicros(NOW_US + 1))
    prepended = keys.prepend(200, UnixMicros(NOW_US + 2))
    earlier = keys.prepend(3, UnixMicros(NOW_US + 2))
    ordered = [*earlier, *prepended, *appended, *later]
    assert sorted(ordered, key=sort_key) == ordered
    assert len(set(ordered)) == len(ordered)
    assert {micros_of(key) for key in appended} == {NOW_US}


def test_known_list_keys_are_found_again_for_the_cells_that_they_were_made_for() -> None:
    """In whatever order they come, and however a request mixes appended and prepended values and timestamps."""
    later = UnixMicros(NOW_US + 7)

    def requests(keys: ListKeys) -> list[list[bytes]]:
        return [
            keys.append(2, NOW_US),
            keys.prepend(2, NOW_US),
            keys.append(1, later),
            keys.prepend(3, NOW_US),
            keys.append(0, NOW_US),
            keys.append(1, NOW_US),
            keys.prepend(1, later),
        ]

    made = requests(ListKeys())
    flat = [key for keys in made for key in keys]
    assert requests(ListKeys(flat)) == requests(ListKeys(reversed(flat))) == made


def test_a_known_list_key_that_is_missing_is_said() -> None:
    keys = ListKeys(ListKeys().append(1, NOW_US))
    with pytest.raises(CqlError, match=f"2 keys for cells of a list are needed at {NOW_US}, but 1 are known"):
        keys.append(2, NOW_US)
    keys.append(1, NOW_US)
    with pytest.raises(CqlError, match="1 keys for cells of a list are needed"):
        keys.append(1, NOW_US)
