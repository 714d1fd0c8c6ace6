"""Statements as values, and what is no statement."""

from __future__ import annotations

from decimal import Decimal
from math import inf, isnan
from uuid import UUID

import pytest

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.grammar import statement_of
from sandbox.cql.parser.lexer import tokens_of
from sandbox.cql.parser.statements import (
    Assignment,
    BatchStatement,
    Conditions,
    CreateTable,
    DeleteStatement,
    Element,
    Field,
    InsertStatement,
    ListCell,
    Name,
    Relation,
    UpdateStatement,
)
from sandbox.cql.parser.terms import (
    UNSET,
    Call,
    ListTerm,
    MapTerm,
    Marker,
    SetTerm,
    Term,
    TupleTerm,
    UdtTerm,
    bound,
    from_json,
)
from sandbox.scylla.values.native import Duration

ID = "50554d6e-29bb-11e5-b345-feff819cdc9f"
TERMS: list[tuple[str, Term]] = [
    ("null", None),
    ("TRUE", True),
    ("-12", -12),
    ("1.50", Decimal("1.50")),
    ("-1E-30", Decimal("-1E-30")),
    ("Infinity", inf),
    ("-Infinity", -inf),
    ("'it''s'", "it's"),
    ("$$it's$$", "it's"),
    ("0xCAfe", b"\xca\xfe"),
    ("0x", b""),
    (ID, UUID(ID)),
    ("1y2mo3w4d5h6m7s8ms9us10ns", Duration(14, 25, 18_367_008_009_010)),
    ("-1mo2d", Duration(-1, -2, 0)),
    ("P1Y2M10DT2H30M", Duration(14, 10, 9_000_000_000_000)),
    ("[1, null]", ListTerm((1, None))),
    ("{}", SetTerm(())),
    ("{1, 2}", SetTerm((1, 2))),
    ("{1: 'a', 2: 'b'}", MapTerm(((1, "a"), (2, "b")))),
    ("{true: 1}", MapTerm(((True, 1),))),
    ('{a: 1, "B c": {2}}', UdtTerm((("a", 1), ("B c", SetTerm((2,)))))),
    ("(1, (2, 'x'))", TupleTerm((1, TupleTerm((2, "x"))))),
    ("blobAsInt(0x00)", Call("blobasint", (b"\x00",))),
]


def value_of(text: str) -> Term:
    statement = statement_of(f"INSERT INTO t (a) VALUES ({text})")
    assert isinstance(statement, InsertStatement)
    return statement.values[0]


@pytest.mark.parametrize(("text", "term"), TERMS)
def test_a_value_is_read(text: str, term: Term) -> None:
    assert value_of(text) == term


def test_nan_is_read() -> None:
    for text in ("NaN", "-nan"):
        found = value_of(text)
        assert isinstance(found, float)
        assert isnan(found)


def test_comments_and_white_space_are_nothing() -> None:
    text = "DELETE -- all\n FROM /* of */ t // here\n WHERE a=1 ; ;"
    assert statement_of(text) == statement_of("DELETE FROM t WHERE a = 1")


def test_names_are_folded_unless_they_are_quoted() -> None:
    statement = statement_of('DELETE "V é", X FROM Ks."T""t" WHERE "select" = 1')
    assert isinstance(statement, DeleteStatement)
    assert statement.table == Name("ks", 'T"t')
    assert statement.targets == (("V é", None), ("x", None))
    assert statement.where == (Relation(("select",), "=", 1),)


def test_every_kind_of_assignment_is_read() -> None:
    statement = statement_of(
        "UPDATE t USING TTL 5 AND TIMESTAMP 7 SET a = 1, l = l + [1], l = [2] + l, s = s - {3}, s += {4}, l[0] = 5, "
        f"l[SCYLLA_TIMEUUID_LIST_INDEX({ID})] = 6, m['k'] = null, u.f = 7 WHERE p = ?"
    )
    assert isinstance(statement, UpdateStatement)
    assert (statement.using.ttl, statement.using.timestamp) == (5, 7)
    assert statement.assignments == (
        Assignment("a", None, "set", 1),
        Assignment("l", None, "add", ListTerm((1,))),
        Assignment("l", None, "prepend", ListTerm((2,))),
        Assignment("s", None, "subtract", SetTerm((3,))),
        Assignment("s", None, "add", SetTerm((4,))),
        Assignment("l", Element(0), "set", 5),
        Assignment("l", ListCell(UUID(ID)), "set", 6),
        Assignment("m", Element("k"), "set", None),
        Assignment("u", Field("f"), "set", 7),
    )
    assert statement.where == (Relation(("p",), "=", Marker(0)),)


def test_relations_and_conditions_are_read() -> None:
    statement = statement_of(
        "DELETE FROM t WHERE p IN (1, 2) AND (a, b) >= (1, 2) AND (a) < (3) IF m[1] != 4 AND u.f = 5"
    )
    assert isinstance(statement, DeleteStatement)
    assert statement.where == (
        Relation(("p",), "in", TupleTerm((1, 2))),
        Relation(("a", "b"), ">=", TupleTerm((1, 2))),
        Relation(("a",), "<", TupleTerm((3,))),
    )
    assert statement.conditions == Conditions(
        relations=(Relation(("m",), "!=", 4, Element(1)), Relation(("u",), "=", 5, Field("f")))
    )


@pytest.mark.parametrize("order", ["IF NOT EXISTS USING TTL 5", "USING TTL 5 IF NOT EXISTS"])
def test_an_insert_takes_its_clauses_in_any_order(order: str) -> None:
    statement = statement_of(f"INSERT INTO t (a) VALUES (1) {order}")
    assert isinstance(statement, InsertStatement)
    assert (statement.conditions, statement.using.ttl, statement.using.timestamp) == (
        Conditions(exists=False),
        5,
        UNSET,
    )


def test_markers_are_numbered_through_a_batch() -> None:
    batch = statement_of(
        "BEGIN UNLOGGED BATCH INSERT INTO t (a, b) VALUES (?, ?); DELETE FROM t WHERE a = ? APPLY BATCH"
    )
    assert isinstance(batch, BatchStatement)
    insert, delete = batch.statements
    assert isinstance(insert, InsertStatement)
    assert isinstance(delete, DeleteStatement)
    assert insert.values == (Marker(0), Marker(1))
    assert delete.where[0].value == Marker(2)


def test_a_table_is_read_with_its_options() -> None:
    statement = statement_of(
        'CREATE TABLE IF NOT EXISTS ks.t (p int, "q" frozen<map<text, int>>, c ks.ut, d varchar STATIC, '
        "PRIMARY KEY ((p, q), c)) WITH CLUSTERING ORDER BY (c DESC) AND cdc = {'enabled': true, 'ttl': 5} "
        "AND default_time_to_live = 7 AND COMPACT STORAGE"
    )
    assert isinstance(statement, CreateTable)
    assert [(column.name, str(column.type), column.is_static) for column in statement.columns] == [
        ("p", "int", False),
        ("q", "frozen<map<text, int>>", False),
        ("c", "ut", False),
        ("d", "text", True),
    ]
    assert (statement.partition_key, statement.clustering) == (("p", "q"), ("c",))
    options = statement.options
    assert (options.descending, options.is_compact) == (frozenset({"c"}), True)
    assert options.values == {"cdc": {"enabled": "true", "ttl": "5"}, "default_time_to_live": 7}


@pytest.mark.parametrize(
    "assignments", ["m[1] = 1, m[1] = 2", "m[1] = 1, m = m + {2: 2}", "m = m + {2: 2}, m = m - {1}", "u.a = 1, u.b = 2"]
)
def test_parts_of_a_column_are_assigned_together(assignments: str) -> None:
    statement = statement_of(f"UPDATE t SET {assignments} WHERE p = 1")
    assert isinstance(statement, UpdateStatement)
    assert len(statement.assignments) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT * FROM t", "a statement that writes"),
        ("", "a statement that writes"),
        ("UPDATE t SET a = 1", "WHERE expected"),
        ("INSERT INTO t (a, b) VALUES (1)", "as many values as columns"),
        ("INSERT INTO t (a, b, a) VALUES (1, 2, 3)", "Multiple definitions found for column a"),
        ("UPDATE t SET a = 1, a = 2 WHERE p = 1", "Multiple incompatible setting of column a"),
        ("UPDATE t SET m = {9: 9}, m[1] = 1 WHERE p = 1", "Multiple incompatible setting of column m"),
        ("UPDATE t SET m[1] = 1, b = 2, m = {9: 9} WHERE p = 1", "Multiple incompatible setting of column m"),
        ("UPDATE t SET u.a = 1, u.a = 2 WHERE p = 1", "Multiple incompatible setting of column u"),
        ("INSERT INTO t (a) VALUES (1", "',' expected|, expected"),
        ("INSERT INTO t (a) VALUES (b)", "the word 'b'"),
        ("UPDATE t SET a = b + 1 WHERE p = 1", "an addition to 'a' itself"),
        ("DELETE FROM t WHERE p LIKE 'x'", "a comparison expected at character 22"),
        ("DELETE FROM t WHERE p = 1 LIMIT 3", "the end of the statement expected"),
        ("INSERT INTO t (a) VALUES (0xabc)", "odd number of digits"),
        ("BEGIN BATCH TRUNCATE t; APPLY BATCH", "INSERT, UPDATE, DELETE or APPLY BATCH"),
        ("CREATE TABLE t (a int)", "a PRIMARY KEY"),
        ("UPDATE t SET a = #1 WHERE p = 1", "not CQL from character 17"),
    ],
)
def test_what_is_not_understood_is_said_with_its_place(text: str, words: str) -> None:
    with pytest.raises(CqlError, match=words):
        statement_of(text)


def test_tokens_know_where_they_begin() -> None:
    assert [(token.text, token.at) for token in tokens_of("a =  'x'")] == [("a", 0), ("=", 2), ("x", 5), ("", 8)]


def test_markers_are_replaced_at_every_depth() -> None:
    term = value_of("[(?, {a: ?}), {? : {?}}, f(?)]")
    assert bound(term, [1, 2, 3, 4, 5]) == value_of("[(1, {a: 2}), {3: {4}}, f(5)]")
    with pytest.raises(CqlError, match="no value for marker 5"):
        bound(term, [1, 2, 3, 4])


def test_json_becomes_terms() -> None:
    assert from_json({"a": [1, 1.5, None, True, "x"]}) == MapTerm(
        (("a", ListTerm((1, Decimal("1.5"), None, True, "x"))),)
    )
    with pytest.raises(CqlError, match="bytes is none of JSON's"):
        from_json(b"")
