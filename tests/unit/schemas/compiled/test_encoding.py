"""The compiled encoder against the reference encoder: the same bytes, or the same error."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.compiled.cell_source import DECLINED
from schemas.compiled.container_source import CellSource
from schemas.compiled.reference_encoder import ReferenceEncoder
from schemas.compiled.row_encoder import ChangeEncoder, compile_encoders
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import (
    CqlType,
    ListType,
    MapType,
    NativeType,
    SetType,
    TupleType,
    UdtType,
    VectorType,
    is_multi_cell,
    parse,
    unfrozen,
)
from schemas.errors import CellError, SchemaError, UnsupportedTypeError
from schemas.log.columns import deleted_elements, deleted_elements_type, deleted_flag, log_positions, value_type
from schemas.log.log_change import LogChange
from schemas.log.operations import NO_CHANGES, OPERATION_SYMBOLS, WITH_ROW, WITHOUT_ROW
from schemas.options import OutputOptions
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import NATIVE, counted, log_columns, rich_table, row, sized, table, wide_table
from tests.unit.schemas.recorded_cells import RECORDED

TYPES = sorted(set(NATIVE) - {"counter"})
UDTS = {
    "flat": {"a": "int", "b c": "text", "d": "timestamp"},
    "Deep One": {"f": "frozen<flat>", "l": "frozen<list<frozen<flat>>>", "t": "tuple<int, frozen<set<inet>>>"},
}
FROZEN = [
    "frozen<list<int>>",
    "frozen<set<text>>",
    "frozen<map<uuid, decimal>>",
    "frozen<list<frozen<map<int, frozen<set<boolean>>>>>>",
    "frozen<list<duration>>",
    "tuple<int, text>",
    "tuple<frozen<tuple<smallint>>, frozen<list<date>>>",
    "frozen<flat>",
    'frozen<"Deep One">',
    "vector<float, 3>",
    "vector<double, 1>",
    "vector<int, 2>",
    "vector<smallint, 2>",
    "vector<text, 2>",
    "vector<frozen<set<int>>, 1>",
]
MULTI_CELL = [
    "list<int>",
    "list<text>",
    "list<frozen<flat>>",
    "set<text>",
    "set<bigint>",
    "set<frozen<tuple<int, text>>>",
    "map<text, int>",
    "map<int, duration>",
    "map<timeuuid, frozen<list<text>>>",
    "flat",
    '"Deep One"',
]
GENERATION_MS = 1_700_000_000_000


class Call(NamedTuple):
    """One call of an encoder, but for the encoder."""

    row: Sequence[bytes | None]
    operation: int
    generation_ms: int
    last_in_group: bool


def signed(size_bytes: int) -> st.SearchStrategy[bytes]:
    """Big-endian numbers of all magnitudes, since the encoding's length follows them."""
    bits = 8 * size_bytes - 1
    near_powers = st.builds(
        lambda power, by, sign: sign * ((1 << power) + by),
        st.integers(0, bits),
        st.integers(-2, 2),
        st.sampled_from((1, -1)),
    )
    numbers = st.one_of(near_powers, st.integers(-(1 << bits), (1 << bits) - 1))
    limits = -(1 << bits), (1 << bits) - 1
    return numbers.map(lambda one: min(max(one, limits[0]), limits[1]).to_bytes(size_bytes, "big", signed=True))


def long_text(size: int) -> bytes:
    return b"x" * size


SIZES = st.sampled_from([63, 64, 127, 128, 8191, 8192, 8195, 8196, 8197, 20000]).map(long_text)
TEXTS = st.one_of(st.text().map(str.encode), SIZES)
UNSCALED = st.one_of(st.binary(min_size=1, max_size=12), SIZES)
WIDE = st.binary(min_size=16, max_size=16)

GOOD: dict[str, st.SearchStrategy[bytes]] = {
    "ascii": st.text(st.characters(max_codepoint=127)).map(str.encode),
    "bigint": signed(8),
    "blob": st.one_of(st.binary(), SIZES),
    "boolean": st.binary(min_size=1, max_size=1),
    "date": signed(4).map(lambda raw: bytes((raw[0] ^ 0x80,)) + raw[1:]),
    "decimal": st.builds(bytes.__add__, signed(4), UNSCALED),
    "double": st.one_of(st.floats().map(struct.Struct(">d").pack), st.binary(min_size=8, max_size=8)),
    "duration": st.sampled_from([bytes.fromhex(raw) for cql_type, raw, _ in RECORDED if cql_type == "duration"]),
    "float": st.one_of(st.floats(width=32).map(struct.Struct(">f").pack), st.binary(min_size=4, max_size=4)),
    "inet": st.one_of(st.binary(min_size=4, max_size=4), WIDE),
    "int": signed(4),
    "smallint": signed(2),
    "text": TEXTS,
    "time": signed(8),
    "timestamp": signed(8),
    "timeuuid": WIDE,
    "tinyint": signed(1),
    "uuid": WIDE,
    "varchar": TEXTS,
    "varint": UNSCALED,
}
"""Well-formed cells of each type, the limits of the compiled code's short cuts among them."""


def vint(size: int) -> bytes:
    """The length of a vector's element, written from its definition for up to 3 bytes."""
    if size < 1 << 7:
        return bytes((size,))
    return (0x8000 | size).to_bytes(2, "big") if size < 1 << 14 else (0xC00000 | size).to_bytes(3, "big")


VECTOR_WIDTHS = {"bigint", "boolean", "double", "float", "int", "timestamp", "timeuuid", "uuid"}


@cache
def good(cql_type: CqlType) -> st.SearchStrategy[bytes]:
    """Well-formed cells of any type; made once, because to make a strategy takes longer than to draw from it."""
    match unfrozen(cql_type):
        case NativeType(name):
            return GOOD[name]
        case ListType(element) | SetType(element):
            return st.lists(good(element), max_size=3).map(lambda parts: counted(*parts))
        case MapType(key, value):
            entries = st.lists(st.tuples(good(key), good(value)), max_size=2)
            return entries.map(lambda all_of_them: counted(*(part for entry in all_of_them for part in entry), of=2))
        case TupleType(elements):
            return _fields(elements)
        case UdtType(_, fields):
            return _fields(tuple(one for _, one in fields))
        case VectorType(element, dimension):
            parts = st.lists(good(element), min_size=dimension, max_size=dimension)
            if str(element) in VECTOR_WIDTHS:
                return parts.map(b"".join)
            return parts.map(lambda all_of_them: b"".join(vint(len(part)) + part for part in all_of_them))
    raise AssertionError(cql_type)


@cache
def good_or_null(cql_type: CqlType) -> st.SearchStrategy[bytes | None]:
    return st.none() | good(cql_type)


def _fields(types: tuple[CqlType, ...]) -> st.SearchStrategy[bytes]:
    cells = st.tuples(*map(good_or_null, types))
    return st.builds(lambda given, count: sized(*given[:count]), cells, st.integers(0, len(types)))


def good_removed(column: Column) -> st.SearchStrategy[bytes]:
    """Deleted elements of a multi-cell column; of a user-defined type all fields, which fits a value of nulls only."""
    if isinstance(column.type, UdtType):
        indices = range(len(column.type.fields))
        return st.just(counted(*(at.to_bytes(2, "big") for at in indices)))
    return good(deleted_elements_type(column.type))


NAMES = st.one_of(
    st.sampled_from(["a", "b", "row", "c0", "Größe", "x'y\n", '"""', "decline()", "op"]),
    st.text(min_size=1, max_size=5),
)


ATOMIC = st.sampled_from(TYPES) | st.sampled_from(FROZEN)
ANY_TYPE = ATOMIC | st.sampled_from(MULTI_CELL)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(NAMES, min_size=1, max_size=10, unique=True))
    names = [name for name in names if not name.startswith("cdc$")] or ["pk"]
    partition = draw(st.integers(1, min(3, len(names))))
    clustering = partition + draw(st.integers(0, 2))
    statics = clustering + (draw(st.integers(0, 2)) if names[partition:clustering] else 0)
    columns = [(name, draw(ATOMIC if at < clustering else ANY_TYPE)) for at, name in enumerate(names)]
    return table(
        dict(columns[:partition]),
        dict(columns[partition:clustering]),
        dict(columns[statics:]),
        dict(columns[clustering:statics]),
        keyspace=draw(NAMES),
        name=draw(NAMES),
        types=UDTS,
    )


BAD = st.one_of(st.just(b""), st.binary(max_size=17), st.sampled_from([b"\xff\xfe", b"\xed\xa0\x80", bytes(9)]))


def some_time(ticks: int) -> bytes:
    """The timeuuid of 60 bits of ticks."""
    return struct.pack(">IHH8x", ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000)


EPOCH_TICKS = 0x01B21DD213814000
MODERN_TICKS = st.integers(EPOCH_TICKS + 10 * 2**41, EPOCH_TICKS + 10 * 2**55 - 1)
TICKS = st.one_of(
    st.integers(0, (1 << 60) - 1),
    st.integers(-(10**14), 10**14).map(lambda by: EPOCH_TICKS + by),
    st.sampled_from([EPOCH_TICKS + 10 * 2**power + by for power in (41, 48, 55) for by in (-1, 0)]),
)
TTL = parse("bigint")
OPERATIONS = st.one_of(st.sampled_from([1, 2]), st.integers(-5, 10), st.integers(-128, 127))
GENERATIONS = st.one_of(st.just(GENERATION_MS), st.integers(-(2**63), 2**63 - 1))


@st.composite
def good_row(
    draw: st.DrawFn, of: TableSchema, operation: int, ticks: st.SearchStrategy[int] = TICKS
) -> tuple[bytes | None, ...]:
    """Rows as a server writes them for an operation, CQL's "empty" values apart."""
    symbol = OPERATION_SYMBOLS.get(operation, "unknown")
    static = operation == 1 and bool(of.statics) and draw(st.booleans())
    cells: dict[str, bytes | None] = {column.name: draw(good(column.type)) for column in of.partition_key}
    whole = symbol in WITH_ROW and not static
    for column in of.clustering if symbol not in WITHOUT_ROW and not static else ():
        cells[column.name] = draw(good(column.type) if whole else good_or_null(column.type))
    columns = of.statics if static else of.regulars if whole else of.values
    for column in columns if symbol not in WITHOUT_ROW and "delete" not in symbol and "expiry" not in symbol else ():
        cells.update(draw(good_change(column)))
    cells["cdc$stream_id"] = draw(WIDE)
    cells["cdc$time"] = draw(ticks.map(some_time))
    cells["cdc$batch_seq_no"] = draw(GOOD["int"])
    cells["cdc$ttl"] = draw(good_or_null(TTL))
    return tuple(cells.get(name) for name in log_columns(of))


@cache
@st.composite
def good_change(draw: st.DrawFn, column: Column) -> dict[str, bytes | None]:
    """The cells of a static or regular column."""
    value, flag = column.name, deleted_flag(column.name)
    if not is_multi_cell(column.type):
        return draw(st.sampled_from([{}, {flag: b"\x01"}]) | st.fixed_dictionaries({value: good(column.type)}))
    removed = draw(st.none() | good_removed(column))
    flags = {flag: draw(st.sampled_from([None, b"\x01"])), deleted_elements(column.name): removed}
    if removed is not None and isinstance(column.type, UdtType):
        return {**flags, value: sized(*[None] * len(column.type.fields))}
    return {**flags, value: draw(good_or_null(value_type(column.type)))}


def damaged(cell: bytes) -> st.SearchStrategy[bytes]:
    """A cell cut short, with more behind it, or with one byte replaced (a length or a count, as like as not)."""
    cut = st.integers(0, len(cell)).map(lambda at: cell[:at])
    more = st.binary(min_size=1, max_size=5).map(lambda end: cell + end)
    places, values = st.integers(0, max(0, len(cell) - 1)), st.sampled_from([b"\x00", b"\x01", b"\x7f", b"\xff"])
    return cut | more | st.builds(lambda at, byte: cell[:at] + byte + cell[at + 1 :], places, values)


@st.composite
def any_call(draw: st.DrawFn, of: TableSchema) -> Call:
    """Any call: well-formed for the most part, with up to two cells replaced by anything."""
    operation = draw(OPERATIONS)
    cells = list(draw(good_row(of, operation)))
    for at in draw(st.lists(st.integers(0, len(cells) - 1), max_size=2)):
        cells[at] = draw(st.none() | BAD | damaged(cells[at] or b""))
    odd = draw(st.sampled_from([False] * 9 + [True]))
    generation_ms = draw(st.sampled_from([True, 1.5, 2.0, None, "1", [1], 2**63, -(2**63) - 1]) if odd else GENERATIONS)
    last_in_group = draw(st.sampled_from([None, 0, 1, "", 1.0]) if odd else st.booleans())
    operation = draw(st.just(operation) | OPERATIONS)
    return Call(tuple(cells), operation, generation_ms, last_in_group)  # type: ignore[arg-type]


def outcome(encoder: TableCodec | ReferenceEncoder, call: Call) -> object:
    """What comes of a call: the bytes, or all there is to know of the error."""
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
    """Whatever the table, the row and the arguments: the codec gives what the reference gives."""
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
    """The compiled code knows every row that a server writes between February 1970 and the year 3111."""
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
    """A cell of each type is the same in every place; what is malformed names the same column."""
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
    """Every 2-byte number, and every tinyint and boolean, is encoded as the reference does."""
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
    """Cells beyond the log's columns are ignored, by the slow way."""
    cells = row(SMALL, {"pk": b"\x00\x00\x00\x01", "ck": bytes(4)})
    codec = TableCodec(SMALL, log_columns(SMALL))
    arguments = {"operation": 2, "generation_ms": 0}
    assert codec.encode((*cells, b"more"), **arguments, last_in_group=True) == codec.encode(
        cells, **arguments, last_in_group=True
    )


SMALL = table({"pk": "int"}, {"ck": "int"}, {"v": "text"})


def test_first_bad_cell_is_named() -> None:
    """Of two malformed cells the key's is named, then the other: the error stands alone."""
    codec = TableCodec(SMALL, log_columns(SMALL))
    for cells, column in (({"pk": b"", "v": b"\xff"}, "pk"), ({"pk": bytes(4), "v": b"\xff"}, "v")):
        with pytest.raises(CellError) as caught:
            codec.encode(row(SMALL, {"ck": bytes(4), **cells}), operation=1, generation_ms=0, last_in_group=True)
        assert caught.value.column == column
        assert isinstance(caught.value.__cause__, CellError)
        assert caught.value.__cause__.__context__ is None or column == "v"


def test_source_holds_no_names() -> None:
    """Names of tables and columns never become code, whatever they say."""
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
    """A type without an Avro form has no code."""
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
    """The compiled code and the reference agree in other forms as well."""
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


def test_rows_that_say_nothing() -> None:
    """The two agree on rows that show nothing, and on those that do."""
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
