from __future__ import annotations

import pytest

from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import FrozenType, UdtType, parse
from schemas.errors import TableSchemaError
from tests.unit.schemas.example_tables import table, wide_table

INT = parse("int")
PK = Column("pk", INT, ColumnKind.PARTITION_KEY, 0)


def test_groups() -> None:
    """Columns are grouped by kind: keys by position, static and regular ones by name bytes."""
    example = table({"b": "int", "a": "int"}, {"d": "int", "c": "int"}, {"z": "int", "B": "int"}, {"m": "int"})
    assert [column.name for column in example.partition_key] == ["b", "a"]
    assert [column.name for column in example.clustering] == ["d", "c"]
    assert [column.name for column in example.statics] == ["m"]
    assert [column.name for column in example.regulars] == ["B", "z"]
    assert [column.name for column in example.values] == ["B", "m", "z"]
    assert example.log_table == "t_scylla_cdc_log"
    assert example.full_name == "ks.t"


def test_order_is_canonical() -> None:
    """Equality and hash do not depend on the order in which the columns are given."""
    example = wide_table()
    turned = TableSchema(example.keyspace, example.name, tuple(reversed(example.columns)))
    assert turned == example
    assert hash(turned) == hash(example)
    assert turned.to_json() == example.to_json()


def test_hidden_column() -> None:
    """The hidden column of a COMPACT STORAGE table is not among the value columns."""
    assert table({"pk": "int"}, {"ck": "int"}, {"value": "empty"}).values == ()


def test_json() -> None:
    """The JSON text is the documented one."""
    types = {"address": {"street": "text", "zip": "int"}}
    described = table({"pk": "int"}, {"ck": "int"}, {"v": "frozen<address>"}, types=types, descending=["ck"])
    assert described.to_json() == (
        '{"columns":[{"kind":"partition_key","name":"pk","position":0,"type":"int"},'
        '{"descending":true,"kind":"clustering","name":"ck","position":0,"type":"int"},'
        '{"kind":"regular","name":"v","position":-1,"type":"frozen<address>"}],'
        '"keyspace":"ks","name":"t","types":{"address":[["street","text"],["zip","int"]]},"v":1}'
    )


def test_type_in_two_versions() -> None:
    """A user-defined type must be the same in all columns of a table, at any depth."""
    old, new = (UdtType("inner", fields) for fields in ((("a", INT),), (("a", INT), ("b", INT))))
    one = Column("v", FrozenType(UdtType("outer", (("i", FrozenType(old)),))), ColumnKind.REGULAR)
    with pytest.raises(TableSchemaError, match=r"table ks\.t: .*'inner' has different fields"):
        TableSchema("ks", "t", (PK, one, Column("w", FrozenType(new), ColumnKind.REGULAR)))


def test_altered_type() -> None:
    """ALTER TYPE makes a different table schema."""
    one, two = (table({"pk": "int"}, {}, {"v": "u"}, types={"u": fields}) for fields in ({"a": "int"}, {"a": "text"}))
    assert one != two
    assert one.to_json() != two.to_json()


@pytest.mark.parametrize("kind", [ColumnKind.PARTITION_KEY, ColumnKind.REGULAR])
def test_descending(kind: ColumnKind) -> None:
    """Only a clustering column is descending."""
    with pytest.raises(TableSchemaError, match="only a clustering column"):
        Column("c", INT, kind, 0 if kind is ColumnKind.PARTITION_KEY else -1, descending=True)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([], "no partition key"),
        ([PK, Column("pk", INT, ColumnKind.REGULAR)], "named twice: pk"),
        ([Column("pk", INT, ColumnKind.PARTITION_KEY, 1)], r"positions of the partition_key columns are \[1\]"),
        ([PK, Column("c", INT, ColumnKind.CLUSTERING, 2)], "positions of the clustering columns"),
        ([PK, Column("s", INT, ColumnKind.STATIC)], "static column 's'"),
    ],
)
def test_contradictions(columns: list[Column], reason: str) -> None:
    """The error about a contradictory table names the table and the reason."""
    with pytest.raises(TableSchemaError, match=rf"table ks\.t: .*{reason}"):
        TableSchema("ks", "t", tuple(columns))


def test_unnamed() -> None:
    """A table and a column need a name."""
    with pytest.raises(TableSchemaError, match="need a name"):
        TableSchema("", "t", (PK,))
    with pytest.raises(TableSchemaError, match="empty name"):
        Column("", INT, ColumnKind.REGULAR)


@pytest.mark.parametrize(
    ("kind", "position"),
    [(ColumnKind.PARTITION_KEY, -1), (ColumnKind.CLUSTERING, -2), (ColumnKind.REGULAR, 0), (ColumnKind.STATIC, -2)],
)
def test_positions(kind: ColumnKind, position: int) -> None:
    """A position that does not fit the column's kind is refused."""
    with pytest.raises(TableSchemaError, match=f"must be .*, not {position}"):
        Column("c", INT, kind, position)
