"""What ALTER TABLE and ALTER TYPE do to a table and to its log."""

from __future__ import annotations

import pytest

from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.table_changes import changes_between, describe, log_type, misfits, renamed_keys
from schemas.cql.types import CqlType, FrozenType, ListType, NativeType, UdtType, parse
from tests.unit.schemas.example_tables import table

BEFORE = table({"pk": "int"}, {"ck": "int"}, {"v": "int", "w": "text"})
POINT = UdtType("point", (("x", NativeType("int")),))
WIDER = UdtType("point", (("x", NativeType("int")), ("y", ListType(NativeType("text")))))


def with_type(cql_type: CqlType) -> TableSchema:
    columns = (Column("pk", parse("int"), ColumnKind.PARTITION_KEY, 0), Column("u", cql_type, ColumnKind.REGULAR))
    return TableSchema("ks", "t", columns)


@pytest.mark.parametrize(
    ("after", "descriptions"),
    [
        (BEFORE, []),
        (table({"pk": "int"}, {"ck": "int"}, {"v": "int", "w": "text", "x": "uuid"}), ["column x uuid was added"]),
        (table({"pk": "int"}, {"ck": "int"}, {"v": "int"}), ["column w text was dropped"]),
        (table({"pk": "int"}, {"ck": "int"}, {"v": "blob", "w": "text"}), ["column v was int and is blob"]),
        (
            table({"pk": "int"}, {"ck": "int"}, {"w": "text"}, static={"v": "int"}),
            ["column v was regular and is static"],
        ),
        (
            table({"id": "int"}, {"line": "int"}, {"v": "int", "w": "text"}),
            ["partition key column pk is now named id", "clustering column ck is now named line"],
        ),
        (
            table({"pk": "text"}, {"line": "text"}, {"v": "int", "w": "text"}),
            ["column ck int was dropped", "column line text was added", "column pk was int and is text"],
        ),
    ],
)  # fmt: skip
def test_changes_between(after: TableSchema, descriptions: list[str]) -> None:
    """There is one description for each column; a new name is a rename only if the type stays."""
    assert changes_between(BEFORE, after) == descriptions


def test_renamed_keys() -> None:
    """Renames do not include columns that were added or dropped."""
    after = table({"id": "int"}, {"ck": "int"}, {"pk": "int"})
    assert renamed_keys(BEFORE, after) == [("pk", "id")]
    assert "column pk int was added" in changes_between(BEFORE, after)


def test_altered_type() -> None:
    """The description shows the fields of a user-defined type, frozen or not."""
    assert changes_between(with_type(POINT), with_type(WIDER)) == [
        "column u was point(x int) and is point(x int, y list<text>)"
    ]
    assert describe(FrozenType(WIDER)) == "frozen<point(x int, y list<text>)>"


@pytest.mark.parametrize(
    ("expected", "found", "fits"),
    [
        (POINT, POINT, True),
        (FrozenType(POINT), POINT, True),
        (POINT, WIDER, False),
        (WIDER, POINT, False),
        (ListType(FrozenType(WIDER)), parse("map<timeuuid, text>"), False),
        (UdtType("point"), WIDER, True),  # its fields are not known
        (UdtType("other"), WIDER, False),
        (parse("list<varchar>"), parse("map<timeuuid, text>"), True),
        (parse("frozen<list<int>>"), parse("list<int>"), True),
        (parse("list<int>"), parse("list<int>"), False),  # in the log it is a map from its cells' keys
        (parse("tuple<int, text>"), parse("tuple<int, text>"), True),
        (parse("tuple<int, text>"), parse("tuple<int>"), False),
        (parse("vector<float, 3>"), parse("vector<float, 4>"), False),
        (parse("map<int, frozen<set<int>>>"), parse("map<int, set<int>>"), True),
        (parse("set<int>"), parse("list<int>"), False),
    ],
)
def test_types_of_log_and_table(expected: CqlType, found: CqlType, fits: bool) -> None:
    """The types of a page fit the schema if and only if both are of the same version of the table."""
    schema = with_type(expected)
    wrong = misfits(schema, ("pk", "cdc$ttl", "u"), (NativeType("int"), NativeType("bigint"), found))
    assert (wrong == []) == fits
    if not fits:
        assert wrong == [f"u is {describe(log_type(schema.columns[1]))} in the table and {describe(found)} in the log"]
