from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastavro import parse_schema

from schemas.avro.codec import compile_reader
from schemas.cql.table import TableSchema
from schemas.errors import UnsupportedTypeError
from schemas.options import OutputOptions, ShapeName
from schemas.record_schemas import key_schema, schema_text, value_schema
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import NATIVE, counted, log_columns, rich_table, row, sized, table, wide_table

SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "text", "l": "list<int>"}, {"s": "int"}, descending=["ck"])
GOLDEN = Path(__file__).parent / "golden"
ONE = b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("wide-key.avsc", key_schema(wide_table())),
        ("wide-value.avsc", value_schema(wide_table())),
        ("rich-value.avsc", value_schema(rich_table())),
        ("small-value-full.avsc", value_schema(SMALL, OutputOptions(shape="full"))),
        ("small-value-debezium.avsc", value_schema(SMALL, OutputOptions(shape="debezium", decimals="double"))),
        ("small-value-flat.avsc", value_schema(SMALL, OutputOptions(shape="flat"))),
        ("small-key-primary.avsc", key_schema(SMALL, OutputOptions(key="primary_key"))),
    ],
)
def test_golden(file: str, schema: dict[str, object]) -> None:
    """The canonical texts of a few tables' schemas are the reviewed ones."""
    golden = json.loads((GOLDEN / file).read_text(encoding="utf-8"))
    assert schema_text(schema) == schema_text(golden)


def test_text_is_canonical() -> None:
    """Schemas that differ only in the order of their attributes have the same text."""
    shuffled = {"fields": [{"default": None, "type": ["null", "int"], "name": "a"}], "type": "record", "name": "R"}
    assert schema_text(shuffled) == (
        '{"name":"R","type":"record","fields":[{"name":"a","type":["null","int"],"default":null}]}'
    )


def test_text_is_ascii() -> None:
    """`cqlName` has the name of a column that is not an Avro name, and the text is ASCII."""
    text = schema_text(value_schema(wide_table()))
    assert text.isascii()
    assert '"cqlName":"Gr\\u00f6\\u00dfe"' in text


@pytest.mark.parametrize("name", NATIVE)
def test_named_types_once(name: str) -> None:
    """A table that uses a type in every place defines each named type once."""
    example = table({"p": name, "q": name}, {"c": name}, {"v": name, "w": name})
    parse_schema(key_schema(example))
    parse_schema(value_schema(example))
    assert schema_text(value_schema(example)).count(f'"name":"{name}_cell"') == 1


def test_no_overflowing_logical_type() -> None:
    """The only logical type in any schema is uuid."""
    text = schema_text(value_schema(wide_table()))
    assert text.count("logicalType") == text.count('"logicalType":"uuid"') > 0


def test_empty_type_is_unsupported() -> None:
    """A key column of COMPACT STORAGE's hidden type is refused."""
    with pytest.raises(UnsupportedTypeError, match="empty"):
        key_schema(table({"pk": "empty"}))


def codec_of(example: TableSchema) -> TableCodec:
    return TableCodec(example, log_columns(example))


def test_added_column() -> None:
    """After a column is added, the new schema reads old records, with the column untouched."""
    old = table({"pk": "int"}, {"ck": "decimal"}, {"m": "decimal", "z": "text"})
    new = table({"pk": "int"}, {"ck": "decimal"}, {"a": "varint", "m": "decimal", "n": "text", "z": "text"})
    body = codec_of(old).encode(
        row(old, {"pk": ONE, "ck": bytes(4) + b"\x07", "m": bytes(4) + b"\x05", "z": b"x"}),
        operation=2,
        generation_ms=0,
        last_in_group=True,
    )[1]
    value = compile_reader(value_schema(old), value_schema(new))(body)
    assert value["key"] == {"pk": 1, "ck": {"scale": 0, "value": b"\x07"}}
    assert value["columns"] == {
        "a": None,
        "m": {"value": {"scale": 0, "value": b"\x05"}},
        "n": None,
        "z": {"value": "x"},
    }


def test_altered_type() -> None:
    """After ALTER TYPE ADD, the new schema reads old records: in keys, values and deltas the field is null."""
    columns = {"v": "u", "f": "frozen<u>", "l": "list<frozen<u>>"}
    old, new = (
        table({"pk": "frozen<u>"}, {"ck": "frozen<u>"}, columns, types={"u": fields})
        for fields in ({"a": "int"}, {"a": "int", "b": "frozen<set<text>>"})
    )
    one = sized(ONE)
    cells = row(old, {"pk": one, "ck": one, "v": one, "f": one, "l": counted(bytes(16), one, of=2)})
    key, body = codec_of(old).encode(cells, operation=2, generation_ms=0, last_in_group=True)
    seen = {"a": 1, "b": None}
    assert compile_reader(key_schema(old), key_schema(new))(key) == {"pk": seen}
    value = compile_reader(value_schema(old), value_schema(new))(body)
    assert value["key"] == {"pk": seen, "ck": seen}
    assert value["columns"]["v"] == {"cleared": False, "fields": {"a": {"value": 1}, "b": None}}  # type: ignore[index]
    assert value["columns"]["f"] == {"value": seen}  # type: ignore[index]
    assert [added["value"] for added in value["columns"]["l"]["added"]] == [seen]  # type: ignore[index]


def test_dropped_column() -> None:
    """After a column is dropped, the new schema reads old records without the column."""
    old = table({"pk": "int"}, regular={"a": "int", "z": "text"})
    new = table({"pk": "int"}, regular={"z": "text"})
    cells = row(old, {"pk": ONE, "a": ONE, "z": b"x"})
    body = codec_of(old).encode(cells, operation=1, generation_ms=0, last_in_group=True)[1]
    assert compile_reader(value_schema(old), value_schema(new))(body)["columns"] == {"z": {"value": "x"}}


def test_extended_envelope() -> None:
    """An envelope with one more nullable field and one more operation reads the records of this one."""
    example = table({"pk": "int"}, regular={"v": "int"})
    later = json.loads(schema_text(value_schema(example)))
    later["fields"].append({"name": "preimage", "type": ["null", "Columns"], "default": None})
    later["fields"][0]["type"]["symbols"].append("truncate")
    cells = row(example, {"pk": ONE, "v": ONE})
    body = codec_of(example).encode(cells, operation=1, generation_ms=0, last_in_group=True)[1]
    value = compile_reader(value_schema(example), later)(body)
    assert (value["op"], value["columns"], value["preimage"]) == ("update", {"v": {"value": 1}}, None)


def test_unknown_operation_symbol() -> None:
    """A reader whose schema lacks a symbol reads it as "unknown"."""
    example = table({"pk": "int"})
    older = json.loads(schema_text(value_schema(example)))
    older["fields"][0]["type"]["symbols"].remove("insert")
    body = codec_of(example).encode(row(example, {"pk": ONE}), operation=2, generation_ms=0, last_in_group=True)[1]
    assert compile_reader(value_schema(example), older)(body)["op"] == "unknown"


@pytest.mark.parametrize("shape", ["delta", "full", "debezium", "flat"])
@pytest.mark.parametrize("of", [wide_table(), rich_table()], ids=lambda of: of.name)
def test_named_types_are_defined_at_their_first_use(of: TableSchema, shape: ShapeName) -> None:
    """This holds in every shape, also if a key column and other columns have the same type."""
    schema = value_schema(of, OutputOptions(shape=shape))
    assert parse_schema(json.loads(schema_text(schema)))["type"] == "record"
