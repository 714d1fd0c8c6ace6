from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cql.table import TableSchema
from schemas.errors import CellError, DecodeError, EncodeError, OperationError, TableSchemaError, UnsupportedTypeError
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import NATIVE, STREAM, TIME, TIME_US, log_columns, row, table, wide_table
from tests.unit.schemas.recorded_cells import RECORDED

INSERT, UPDATE = 2, 1
ONE = b"\x00\x00\x00\x01"
TWO = b"\x00\x00\x00\x02"
STATIC = {"ck": None}
SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "int", "w": "text"}, {"s": "boolean"})
CODEC = TableCodec(SMALL, log_columns(SMALL))


def encode(cells: dict[str, bytes | None], operation: int = UPDATE, ttl: bytes | None = None) -> dict[str, object]:
    body = CODEC.encode(
        row(SMALL, {"pk": ONE, "ck": TWO, **cells}, ttl), operation=operation, generation_ms=1700, last_in_group=True
    )[1]
    return CODEC.decode_value(body)


def test_whole_envelope() -> None:
    """A change of every kind of column becomes the whole documented record."""
    cells = {"ck": b"\x00\x00\x00\x02", "v": b"\x00\x00\x00\x03", "cdc$deleted_w": b"\x01"}
    assert encode(cells, INSERT, ttl=bytes(6) + b"\x0e\x10") == {
        "op": "insert",
        "key": {"pk": 1, "ck": 2},
        "range": None,
        "columns": {"s": None, "v": {"value": 3}, "w": {"value": None}},
        "empty_columns": [],
        "ttl": 3600,
        "source": {
            "version": 1,
            "keyspace": "ks",
            "table": "t",
            "generation_ms": 1700,
            "stream_id": STREAM,
            "time": TIME,
            "timestamp_us": TIME_US,
            "batch_seq_no": 0,
            "operation": 2,
            "last_in_group": True,
        },
    }


@pytest.mark.parametrize(
    ("cells", "columns"),
    [
        ({"w": b""}, {"s": None, "v": None, "w": {"value": ""}}),
        ({"s": b"\x00", **STATIC}, {"s": {"value": False}, "v": None, "w": None}),
        ({"s": b"\x01", **STATIC}, {"s": {"value": True}, "v": None, "w": None}),
        ({"cdc$deleted_s": b"\x01", **STATIC}, {"s": {"value": None}, "v": None, "w": None}),
        ({"cdc$deleted_s": b"\x00", "v": ONE}, {"s": None, "v": {"value": 1}, "w": None}),
        ({"v": ONE, "cdc$deleted_v": b"\x00"}, {"s": None, "v": {"value": 1}, "w": None}),
    ],
)
def test_three_states(cells: dict[str, bytes | None], columns: dict[str, object]) -> None:
    """A column is untouched, set to null or set to a value."""
    assert encode(cells)["columns"] == columns


@pytest.mark.parametrize(
    ("operation", "symbol", "has_columns"),
    [
        (1, "update", True),
        (2, "insert", True),
        (3, "row_delete", False),
        (4, "partition_delete", False),
        (-3, "row_expiry", False),
        (-4, "partition_expiry", False),
        (77, "unknown", True),
        (-1, "unknown", True),
    ],
)
def test_operations(operation: int, symbol: str, has_columns: bool) -> None:
    """Each cdc$operation has its symbol, also unknown ones, and deletes have no columns."""
    cells: dict[str, bytes | None] = {"ck": None} if symbol.startswith("partition") else {}
    value = encode({**cells, "v": ONE} if has_columns else cells, operation)
    assert value["op"] == symbol
    assert isinstance(value["source"], dict)
    assert value["source"]["operation"] == operation
    assert (value["columns"] is not None) == has_columns


@pytest.mark.parametrize("cells", [{}, {"cdc$deleted_v": b"\x00"}, STATIC])
def test_columns_are_null_if_the_row_touches_none(cells: dict[str, bytes | None]) -> None:
    """Such a row does not tell whether the log held keys only, the column was dropped, or only the key was inserted."""
    assert encode(cells)["columns"] is None
    assert encode(cells | {"ck": TWO}, INSERT)["columns"] is None


def test_update_in_a_table_of_keys() -> None:
    """With COMPACT STORAGE the insert of a row that has only a key is logged as an update."""
    keys = table({"pk": "int"}, {"ck": "int"}, {})
    codec = TableCodec(keys, log_columns(keys))
    body = codec.encode(row(keys, {"pk": ONE, "ck": TWO}), operation=1, generation_ms=0, last_in_group=True)[1]
    assert codec.decode_value(body)["columns"] == {}


@pytest.mark.parametrize("operation", [0, 9])
def test_images_are_not_changes(operation: int) -> None:
    """A pre- or post-image is refused as a change."""
    with pytest.raises(OperationError, match=str(operation)):
        encode({}, operation)


def test_key_without_clustering() -> None:
    """A change of the static row has null clustering columns."""
    assert encode({"s": b"\x01", **STATIC})["key"] == {"pk": 1, "ck": None}


@pytest.mark.parametrize("name", sorted(set(NATIVE) - {"counter"}))
def test_empty_values(name: str) -> None:
    """CQL's zero-length value is a value for text and blob; for other types it is null and listed by name."""
    example = table({"pk": "int"}, {"the ck": name}, {"the v": name})
    codec = TableCodec(example, log_columns(example))
    body = codec.encode(
        row(example, {"pk": ONE, "the ck": b"", "the v": b""}), operation=1, generation_ms=0, last_in_group=False
    )[1]
    value = codec.decode_value(body)
    nothing = {"ascii": "", "text": "", "varchar": "", "blob": b""}.get(name)
    assert value["key"] == {"pk": 1, "the_u20_ck": nothing}
    assert value["columns"] == {"the_u20_v": {"value": nothing}}
    assert value["empty_columns"] == ([] if nothing is not None else ["the ck", "the v"])


def test_empty_partition_key() -> None:
    """A zero-length partition key column of a type without such a value is a CellError."""
    with pytest.raises(CellError, match="'pk' of type int"):
        CODEC.encode_key(row(SMALL, {"pk": b""}))
    text = table({"a": "text", "b": "text"})
    codec = TableCodec(text, log_columns(text))
    assert codec.decode_key(codec.encode_key(row(text, {"a": b"", "b": b""}))) == {"a": "", "b": ""}


def test_null_partition_key() -> None:
    """A null partition key column (in rows from before a rename) is a CellError in key and value."""
    with pytest.raises(CellError, match="'pk' of type int: is null"):
        CODEC.encode_key(row(SMALL, {}))
    with pytest.raises(CellError, match="'pk' of type int: is null"):
        encode({"pk": None})


@pytest.mark.parametrize(
    ("cells", "column"),
    [
        ({"v": b"\x00"}, "v"),
        ({"w": b"\xff"}, "w"),
        ({"ck": b"\x00"}, "ck"),
        ({"s": b"\x00\x00", **STATIC}, "s"),
        ({"cdc$deleted_v": b""}, "cdc$deleted_v"),
        ({"cdc$stream_id": b"\x00" * 15}, "cdc$stream_id"),
        ({"cdc$stream_id": None}, "cdc$stream_id"),
        ({"cdc$time": b"\x00" * 17}, "cdc$time"),
        ({"cdc$batch_seq_no": None}, "cdc$batch_seq_no"),
        ({"cdc$ttl": b"\x00"}, "cdc$ttl"),
    ],
)
def test_malformed_cells(cells: dict[str, bytes | None], column: str) -> None:
    """A malformed cell names its column."""
    with pytest.raises(CellError) as caught:
        encode(cells)
    assert caught.value.column == column
    assert repr(column) in str(caught.value)


def test_arguments() -> None:
    """A null or non-boolean last_in_group is refused, never written as false."""
    with pytest.raises(EncodeError, match=r"source\.last_in_group"):
        CODEC.encode(row(SMALL, {"pk": ONE, "ck": TWO}), operation=1, generation_ms=0, last_in_group=None)  # type: ignore[arg-type]


def test_not_a_body() -> None:
    """Bytes that are not a record of the schema are a DecodeError."""
    with pytest.raises(DecodeError):
        CODEC.decode_value(b"\x00")
    with pytest.raises(DecodeError):
        CODEC.decode_key(b"")


@pytest.mark.parametrize(
    ("timeuuid", "timestamp_us"),
    [
        ("b223c55e6d0711ea765424e4fb3f20b9", 1584969040910883),
        ("b223c55f6d0711ea765424e4fb3f20b9", 1584969040910883),
        ("b223c55e6d0791ea765424e4fb3f20b9", 1584969040910883),
        ("13814000" + "1dd2" + "11b2" + "00" * 8, 0),
        ("13813fff" + "1dd2" + "11b2" + "00" * 8, -1),
        ("00000000" + "0000" + "1000" + "80" * 8, -0x01B21DD213814000 // 10),
        ("ffffffff" + "ffff" + "1fff" + "7f" * 8, (0x0FFF_FFFF_FFFF_FFFF - 0x01B21DD213814000) // 10),
    ],
)
def test_timestamp(timeuuid: str, timestamp_us: int) -> None:
    """The µs of cdc$time are rounded down, before 1970 too, and the version nibble is ignored."""
    value = encode({"cdc$time": bytes.fromhex(timeuuid)})
    assert isinstance(value["source"], dict)
    assert value["source"]["timestamp_us"] == timestamp_us
    assert value["source"]["time"] == bytes.fromhex(timeuuid)


@pytest.mark.parametrize(("cql_type", "raw", "expected"), RECORDED)
def test_every_type_everywhere(cql_type: str, raw: str, expected: object) -> None:
    """A recorded cell keeps its value as partition key, clustering column and value column."""
    cell = bytes.fromhex(raw)
    example = table({"pk": cql_type}, {"ck": cql_type}, {"v": cql_type})
    codec = TableCodec(example, log_columns(example))
    cells = row(example, {"pk": cell, "ck": cell, "v": cell})
    value = codec.decode_value(codec.encode(cells, operation=2, generation_ms=0, last_in_group=True)[1])
    found = [codec.decode_key(codec.encode_key(cells))["pk"], *value["key"].values(), value["columns"]["v"]["value"]]  # type: ignore[attr-defined, index]
    assert len(found) == 4
    for one in found:
        if isinstance(expected, float) and math.isnan(expected):
            assert isinstance(one, float)
            assert math.isnan(one)
        elif cql_type in {"uuid", "timeuuid"}:
            assert str(one) == expected
        else:
            assert repr(one) == repr(expected)


FIXED = table({"pk": "bigint"}, regular={"t": "text", "b": "blob", "ts": "timestamp", "y": "tinyint"})
FIXED_CODEC = TableCodec(FIXED, log_columns(FIXED))


@given(st.data())
def test_fixed_width_bits(data: st.DataObject) -> None:
    """Any bits of a number or text come back the same from a wide record."""
    big = data.draw(st.integers(-(2**63), 2**63 - 1))
    text = data.draw(st.text())
    blob = data.draw(st.binary(max_size=40))
    small = data.draw(st.integers(-128, 127))
    raw = big.to_bytes(8, "big", signed=True)
    cells = {"pk": raw, "t": text.encode(), "b": blob, "ts": raw, "y": small.to_bytes(1, "big", signed=True)}
    value = FIXED_CODEC.decode_value(
        FIXED_CODEC.encode(row(FIXED, cells), operation=1, generation_ms=0, last_in_group=True)[1]
    )
    assert value["key"] == {"pk": big}
    assert value["columns"] == {
        "b": {"value": blob},
        "t": {"value": text},
        "ts": {"value": big},
        "y": {"value": small},
    }


def test_old_and_new_logs() -> None:
    """A log without cdc$end_of_batch and one with an unknown cdc$ column are both read."""
    known = log_columns(SMALL)
    cells = dict(zip(known, row(SMALL, {"pk": ONE, "ck": TWO, "v": ONE}), strict=True))
    for names in ([name for name in known if name != "cdc$end_of_batch"], ["cdc$new_thing", *known]):
        codec = TableCodec(SMALL, names)
        assert codec.value_avro_schema == CODEC.value_avro_schema
        body = codec.encode([cells.get(name) for name in names], operation=1, generation_ms=1700, last_in_group=True)[1]
        assert codec.decode_value(body) == encode({"v": ONE})


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (["v", *log_columns(SMALL)], "columns named twice: v"),
        ([name for name in log_columns(SMALL) if name != "w"], "columns missing: w"),
        ([name for name in log_columns(SMALL) if name != "cdc$deleted_w"], r"columns missing: cdc\$deleted_w"),
        ([name for name in log_columns(SMALL) if name != "cdc$time"], r"columns missing: cdc\$time"),
        (["z", *log_columns(SMALL)], "columns that the base table lacks: z"),
    ],
)
def test_log_that_does_not_fit(names: list[str], reason: str) -> None:
    """A log that does not fit its table is refused with the columns at fault."""
    with pytest.raises(TableSchemaError, match=rf"log table ks\.t_scylla_cdc_log: {reason}"):
        TableCodec(SMALL, names)


@pytest.mark.parametrize("names", [{"cdc$time": "int"}, {"v": "int", "cdc$deleted_v": "int"}])
def test_ambiguous_names(names: dict[str, str]) -> None:
    """A base column with the name of one of the log's own columns is refused."""
    example = table({"pk": "int"}, regular=names)
    with pytest.raises(TableSchemaError, match="named like the log's own"):
        TableCodec(example, sorted(set(log_columns(example))))


def test_one_name_for_two_columns_of_the_log() -> None:
    """One log column for two purposes is refused; beside a column of one cell there is only one purpose."""
    example = table({"pk": "int"}, regular={"x": "set<text>", "elements_x": "int"})
    with pytest.raises(TableSchemaError, match=r"one column for the flag .* of another: cdc\$deleted_elements_x"):
        TableCodec(example, sorted(set(log_columns(example))))
    frozen = table({"pk": "int"}, regular={"x": "frozen<set<text>>", "elements_x": "int"})
    assert "elements_x" in TableCodec(frozen, log_columns(frozen)).value_avro_schema


def test_harmless_prefix() -> None:
    """A base column whose name only begins with cdc$ is an ordinary column."""
    example = table({"pk": "int"}, regular={"cdc$x": "int"})
    codec = TableCodec(example, log_columns(example))
    cells = row(example, {"pk": ONE, "cdc$x": ONE})
    value = codec.decode_value(codec.encode(cells, operation=1, generation_ms=0, last_in_group=True)[1])
    assert value["columns"] == {"cdc_u24_x": {"value": 1}}


@pytest.mark.parametrize(
    ("example", "column"),
    [
        (table({"pk": "int"}, regular={"v": "list<frozen<list<empty>>>"}), "v"),
        (table({"pk": "frozen<tuple<int, empty>>"}), "pk"),
        (table({"pk": "int"}, {"ck": "frozen<udt>"}), "ck"),
    ],
)
def test_unsupported_types(example: TableSchema, column: str) -> None:
    """A table with a type that has no Avro form is refused, naming table, column and type."""
    with pytest.raises(UnsupportedTypeError) as caught:
        TableCodec(example, log_columns(example))
    assert (caught.value.table, caught.value.column) == ("ks.t", column)
    assert all(part in str(caught.value) for part in ("ks.t", repr(column), "udt" if column == "ck" else "empty"))


def test_deterministic() -> None:
    """Equal tables give equal schema texts, fingerprints and bytes."""
    one, two = (TableCodec(wide_table(), log_columns(wide_table())) for _ in range(2))
    assert one.key_avro_schema == two.key_avro_schema
    assert one.value_avro_schema == two.value_avro_schema
    assert one.value_fingerprint == two.value_fingerprint != one.key_fingerprint
    assert len(one.key_fingerprint) == 16
