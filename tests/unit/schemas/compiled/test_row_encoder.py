"""The compiled row encoder against the reference encoder: the same bytes, or the same error."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.compiled.cell_source import DECLINED
from schemas.compiled.container_source import CellSource
from schemas.compiled.reference_encoder import ReferenceEncoder
from schemas.compiled.row_encoder import ChangeEncoder, compile_encoders
from schemas.cql.table import TableSchema
from schemas.cql.types import parse
from schemas.errors import CellError, SchemaError, UnsupportedTypeError
from schemas.log.columns import log_positions
from schemas.log.log_change import LogChange
from schemas.log.operations import NO_CHANGES, OPERATION_SYMBOLS
from schemas.options import OutputOptions
from schemas.table_codec import TableCodec
from tests.unit.schemas.compiled.row_strategies import (
    BAD,
    GENERATION_MS,
    GOOD,
    MODERN_TICKS,
    TYPES,
    Call,
    any_call,
    good_row,
    tables,
)
from tests.unit.schemas.example_tables import counted, log_columns, rich_table, row, sized, table, wide_table
from tests.unit.schemas.recorded_cells import RECORDED


def outcome(encoder: TableCodec | ReferenceEncoder, call: Call) -> object:
    """The result of a call: the bytes, or the type, message and attributes of the error."""
    try:
        if isinstance(encoder, ReferenceEncoder):
            return encoder.encode(LogChange(*call))
        return encoder.encode(
            call.row, operation=call.operation, generation_ms=call.generation_ms, last_in_group=call.last_in_group
        )
    except SchemaError as error:
        return type(error), error.args, vars(error)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_same_as_reference(data: st.DataObject) -> None:
    """The codec gives the reference's result for any table, row and arguments."""
    of = data.draw(tables())
    codec, reference = TableCodec(of, log_columns(of)), ReferenceEncoder(of, log_positions(of, log_columns(of)))
    for call in data.draw(st.lists(any_call(of), min_size=1, max_size=6)):
        both = outcome(codec, call)
        assert both == outcome(reference, call)
        if isinstance(both[0], bytes):  # type: ignore[index]
            arguments = {"operation": call.operation, "generation_ms": call.generation_ms}
            assert codec.encode_key(call.row) == both[0]  # type: ignore[index]
            value = codec.encode(call.row, **arguments, last_in_group=call.last_in_group)[1]
            assert value == both[1]  # type: ignore[index]


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data())
def test_good_rows_are_not_declined(data: st.DataObject) -> None:
    """The compiled code encodes every row that a server writes between February 1970 and the year 3111."""
    of = data.draw(tables())
    positions = log_positions(of, log_columns(of))
    encode_key, encode = compile_encoders(of, positions)
    reference = ReferenceEncoder(of, positions)
    for operation in data.draw(st.lists(st.sampled_from(sorted(KNOWN)), min_size=1, max_size=4)):
        cells = data.draw(good_row(of, operation, MODERN_TICKS))
        both = encode(cells, operation, GENERATION_MS, False)
        assert both == reference.encode(LogChange(cells, operation, GENERATION_MS, False))
        assert both[0] == encode_key(cells)


KNOWN = {*OPERATION_SYMBOLS, 77} - NO_CHANGES - {5, 6}


@pytest.mark.parametrize("cql_type", TYPES)
@settings(max_examples=20)
@given(data=st.data())
def test_each_type(cql_type: str, data: st.DataObject) -> None:
    """A cell of each type gives the reference's result in every place, also a malformed one."""
    codec, reference = each_type(cql_type)
    for cells in data.draw(rows_of(cql_type)):
        call = Call(row(one_type(cql_type), dict(zip("pcv", cells, strict=True))), 2, GENERATION_MS, True)
        assert outcome(codec, call) == outcome(reference, call)


@cache
def rows_of(cql_type: str) -> st.SearchStrategy[tuple[tuple[bytes, ...], ...]]:
    cell = GOOD[cql_type] | BAD
    return st.tuples(*[st.tuples(cell, cell, cell)] * 5)


@cache
def one_type(cql_type: str) -> TableSchema:
    return table({"p": cql_type}, {"c": cql_type}, {"v": cql_type})


@cache
def each_type(cql_type: str) -> tuple[TableCodec, ReferenceEncoder]:
    of = one_type(cql_type)
    return TableCodec(of, log_columns(of)), ReferenceEncoder(of, log_positions(of, log_columns(of)))


def test_every_small_number() -> None:
    """Every 2-byte number, tinyint and boolean has the reference's bytes."""
    of = table({"p": "smallint"}, {}, {"y": "tinyint", "b": "boolean"})
    codec, reference = TableCodec(of, log_columns(of)), ReferenceEncoder(of, log_positions(of, log_columns(of)))
    cells = list(row(of, {}))
    p, y, b = map(log_columns(of).index, "pyb")
    for number in range(1 << 16):
        cells[p] = number.to_bytes(2, "big")
        cells[y] = cells[b] = bytes((number & 0xFF,))
        assert codec.encode_key(cells) == reference.encode_key(cells)
        if number < 256:
            call = Call(cells, 1, GENERATION_MS, True)
            assert outcome(codec, call) == outcome(reference, call)


def test_longer_row() -> None:
    """Cells beyond the log's columns are ignored; the reference encodes such a row."""
    cells = row(SMALL, {"pk": b"\x00\x00\x00\x01", "ck": bytes(4)})
    codec = TableCodec(SMALL, log_columns(SMALL))
    arguments = {"operation": 2, "generation_ms": 0}
    assert codec.encode((*cells, b"more"), **arguments, last_in_group=True) == codec.encode(
        cells, **arguments, last_in_group=True
    )


SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "text"})


def test_first_bad_cell_is_named() -> None:
    """The error names the key's cell if two cells are malformed, and it has no context from the compiled code."""
    codec = TableCodec(SMALL, log_columns(SMALL))
    for cells, column in (({"pk": b"", "v": b"\xff"}, "pk"), ({"pk": bytes(4), "v": b"\xff"}, "v")):
        with pytest.raises(CellError) as caught:
            codec.encode(row(SMALL, {"ck": bytes(4), **cells}), operation=1, generation_ms=0, last_in_group=True)
        assert caught.value.column == column
        assert isinstance(caught.value.__cause__, CellError)
        assert caught.value.__cause__.__context__ is None or column == "v"


def test_source_holds_no_names() -> None:
    """Names of tables and columns never become code."""
    evil = "__import__('os').abort()"
    of = table({evil: "int"}, {f"{evil}\n": "int"}, {f"'{evil}'": "int"}, keyspace=evil, name=f"\n{evil}")
    codec = TableCodec(of, log_columns(of))
    value = codec.decode_value(
        codec.encode(
            row(of, {evil: bytes(4), f"{evil}\n": bytes(4)}), operation=1, generation_ms=0, last_in_group=True
        )[1]
    )
    assert isinstance(value["source"], dict)
    assert value["source"]["keyspace"] == evil


def test_unsupported_type() -> None:
    """There are no lines for a type without an Avro form."""
    with pytest.raises(UnsupportedTypeError):
        CellSource("c0", 0).of(parse("frozen<list<empty>>"))
    with pytest.raises(UnsupportedTypeError):
        CellSource("c0", 0).of(parse("empty"))


def test_wide_table() -> None:
    """A row with every type at once is encoded by the compiled code, with the reference's bytes."""
    of = wide_table()
    recorded = {cql_type: bytes.fromhex(raw) for cql_type, raw, _ in RECORDED}
    written = [column for column in of.columns if column not in of.statics]
    cells = row(of, {column.name: recorded[str(column.type)] for column in written}, ttl=bytes(7) + b"\x09")
    positions = log_positions(of, log_columns(of))
    assert compile_encoders(of, positions)[1](cells, 2, GENERATION_MS, True) == ReferenceEncoder(of, positions).encode(
        LogChange(cells, 2, GENERATION_MS, True)
    )


@pytest.mark.parametrize(
    "output",
    [
        OutputOptions(shape="full"),
        OutputOptions(decimals="string", timestamps="timestamp-millis", times="time-micros"),
        OutputOptions(decimals="double", timestamps="timestamp-micros"),
    ],
)
@settings(max_examples=8)
@given(data=st.data())
def test_outputs(output: OutputOptions, data: st.DataObject) -> None:
    """The compiled code and the reference agree for other output options too."""
    encode, reference, codec = forms(output)
    call = Call(data.draw(good_row(FORMS, 2, MODERN_TICKS)), 2, GENERATION_MS, False)
    expected = outcome(reference, call)
    assert outcome(codec, call) == expected
    try:
        assert encode(*call) == expected
    except DECLINED:
        assert expected[0] is CellError  # type: ignore[index]


@cache
def forms(output: OutputOptions) -> tuple[ChangeEncoder, ReferenceEncoder, TableCodec]:
    positions = log_positions(FORMS, log_columns(FORMS))
    encode, reference = compile_encoders(FORMS, positions, output)[1], ReferenceEncoder(FORMS, positions, output)
    return encode, reference, TableCodec(FORMS, log_columns(FORMS), output)


FORMS = table({"p": "decimal"}, {"c": "time"}, {"v": "varint", "w": "list<timestamp>", "x": "frozen<list<decimal>>"})


def test_rows_that_touch_no_column() -> None:
    """The compiled code and the reference agree on rows that touch a column and on rows that touch none."""
    of = rich_table()
    positions = log_positions(of, log_columns(of))
    encode = compile_encoders(of, positions)[1]
    reference, codec = ReferenceEncoder(of, positions), TableCodec(of, log_columns(of))
    for cells in ({}, {"cdc$deleted_s": b"\x00"}, {"atomic": b"x"}, {"cdc$deleted_elements_s": counted(b"x")}):
        cells = row(of, {"pk": bytes(4), "ck": bytes(4), "when": sized(bytes(4), b""), **cells})
        for operation in (1, 2, 3, 77):
            call = Call(cells, operation, GENERATION_MS, True)
            expected = outcome(reference, call)
            assert outcome(codec, call) == expected
            if isinstance(expected[0], bytes) and operation != 3:  # type: ignore[index]
                assert encode(*call) == expected
