"""A text of statements, cut into single ones with their places."""

from __future__ import annotations

import pytest

from sandbox.cql.parser.errors import CqlError
from sandbox.cql.parser.source import statements_of

TEXT = """\
USE shop;; -- a comment; with a semicolon
  INSERT INTO t (a, b)
    VALUES (1, 'x;y');
/* ; */ BEGIN BATCH
  INSERT INTO t (a) VALUES (1);
  UPDATE t SET b = 'APPLY BATCH' WHERE a = 1;
APPLY BATCH; SELECT * FROM t"""


def test_statements_know_their_places() -> None:
    found = statements_of(TEXT, "x.cql")
    assert [(one.line, one.column) for one in found] == [(1, 1), (2, 3), (4, 9), (7, 14)]
    assert [one.words[0] for one in found] == ["use", "insert", "begin", "select"]
    assert found[1].text == "INSERT INTO t (a, b)\n    VALUES (1, 'x;y')"
    assert found[2].text.endswith("APPLY BATCH")
    insert = found[1]
    assert insert.place(insert.text.index("INTO")) == "2:10"
    assert insert.place(insert.text.index("VALUES")) == "3:5"


def test_what_is_no_cql_is_refused_with_its_place() -> None:
    with pytest.raises(CqlError, match=r"^x\.cql:2:8: not CQL from character 14 on"):
        statements_of("USE a;\nUSE b; &", "x.cql")


def test_nothing_is_no_statement() -> None:
    assert statements_of(" -- nothing\n;", "x.cql") == []
