"""Hypothesis strategies for tables and log rows, and for the calls of an encoder with them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from hypothesis import strategies as st

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
from schemas.log.columns import deleted_elements, deleted_elements_type, deleted_flag, value_type
from schemas.log.operations import OPERATION_SYMBOLS, WITH_ROW, WITHOUT_ROW
from schemas.log.timeuuid import UNIX_EPOCH_TICKS
from tests.unit.schemas.example_tables import NATIVE, counted, log_columns, sized, table
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
    """The arguments of one call of an encoder."""

    row: Sequence[bytes | None]
    operation: int
    generation_ms: int
    last_in_group: bool


def signed(size_bytes: int) -> st.SearchStrategy[bytes]:
    """Big-endian numbers of all magnitudes, because the length of the encoding depends on the magnitude."""
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
"""Well-formed cells of each type, also at the limits of the compiled code's tables."""


def vint(size: int) -> bytes:
    """The length of a vector's element as a vint of up to 3 bytes, from its definition."""
    if size < 1 << 7:
        return bytes((size,))
    return (0x8000 | size).to_bytes(2, "big") if size < 1 << 14 else (0xC00000 | size).to_bytes(3, "big")


VECTOR_WIDTHS = {"bigint", "boolean", "double", "float", "int", "timestamp", "timeuuid", "uuid"}


@cache
def good(cql_type: CqlType) -> st.SearchStrategy[bytes]:
    """Well-formed cells of any type; cached, because making a strategy takes longer than drawing from it."""
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
    """Deleted elements of a multi-cell column; of a user-defined type all fields, which fits a value of nulls."""
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


MODERN_TICKS = st.integers(UNIX_EPOCH_TICKS + 10 * 2**41, UNIX_EPOCH_TICKS + 10 * 2**55 - 1)
TICKS = st.one_of(
    st.integers(0, (1 << 60) - 1),
    st.integers(-(10**14), 10**14).map(lambda by: UNIX_EPOCH_TICKS + by),
    st.sampled_from([UNIX_EPOCH_TICKS + 10 * 2**power + by for power in (41, 48, 55) for by in (-1, 0)]),
)
TTL = parse("bigint")
OPERATIONS = st.one_of(st.sampled_from([1, 2]), st.integers(-5, 10), st.integers(-128, 127))
GENERATIONS = st.one_of(st.just(GENERATION_MS), st.integers(-(2**63), 2**63 - 1))


@st.composite
def good_row(
    draw: st.DrawFn, of: TableSchema, operation: int, ticks: st.SearchStrategy[int] = TICKS
) -> tuple[bytes | None, ...]:
    """Rows as a server writes them for an operation, without CQL's "empty" values."""
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
    """A cell that is cut, extended, or has one byte replaced, often in a length or a count."""
    cut = st.integers(0, len(cell)).map(lambda at: cell[:at])
    more = st.binary(min_size=1, max_size=5).map(lambda end: cell + end)
    places, values = st.integers(0, max(0, len(cell) - 1)), st.sampled_from([b"\x00", b"\x01", b"\x7f", b"\xff"])
    return cut | more | st.builds(lambda at, byte: cell[:at] + byte + cell[at + 1 :], places, values)


@st.composite
def any_call(draw: st.DrawFn, of: TableSchema) -> Call:
    """A call that is mostly well-formed, with up to two cells replaced by anything."""
    operation = draw(OPERATIONS)
    cells = list(draw(good_row(of, operation)))
    for at in draw(st.lists(st.integers(0, len(cells) - 1), max_size=2)):
        cells[at] = draw(st.none() | BAD | damaged(cells[at] or b""))
    odd = draw(st.sampled_from([False] * 9 + [True]))
    generation_ms = draw(st.sampled_from([True, 1.5, 2.0, None, "1", [1], 2**63, -(2**63) - 1]) if odd else GENERATIONS)
    last_in_group = draw(st.sampled_from([None, 0, 1, "", 1.0]) if odd else st.booleans())
    operation = draw(st.just(operation) | OPERATIONS)
    return Call(tuple(cells), operation, generation_ms, last_in_group)  # type: ignore[arg-type]
