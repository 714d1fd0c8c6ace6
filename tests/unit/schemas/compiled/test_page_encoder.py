"""The loops of a page encoder at the limits of their tables: they encode each row, with the reference's bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product

import pytest

from schemas.compiled import page_encoder, page_loop
from schemas.compiled.cell_source import DeclinedError
from schemas.compiled.page_encoder import PageEncoder
from schemas.compiled.reference_encoder import ReferenceEncoder
from schemas.compiled.row_encoder import ChangeEncoder, compile_encoders
from schemas.cql.table import TableSchema
from schemas.errors import SchemaError
from schemas.log.cell_readers import LogRow
from schemas.log.columns import log_positions
from schemas.log.log_change import LogChange
from schemas.log.timeuuid import UNIX_EPOCH_TICKS
from schemas.options import DEFAULT_OUTPUT
from schemas.table_codec import TableCodec
from tests.unit.schemas.example_tables import NATIVE, STREAM, counted, log_columns, row, sized, table
from tests.unit.schemas.recorded_cells import RECORDED

GENERATION_MS = 1_700_000_000_000
START = struct.pack(">i", len(STREAM)) + STREAM + struct.pack(">i", 16)
BLOCK_TICKS = 1 << 32
"""So many ticks share the upper parts of a time, which a loop keeps."""


@cache
def encoders(of: TableSchema) -> tuple[ChangeEncoder, ReferenceEncoder]:
    positions = log_positions(of, log_columns(of))
    return compile_encoders(of, positions)[1], ReferenceEncoder(of, positions)


def plain(of: TableSchema, cells: dict[str, bytes | None], operation: int = 2) -> LogRow:
    """A row that is a group by itself."""
    number = operation.to_bytes(1, "big", signed=True)
    return row(of, {"cdc$operation": number, "cdc$end_of_batch": b"\x01", **cells})


def made_by_loop(of: TableSchema, rows: Sequence[LogRow]) -> list[tuple[bytes, bytes]] | None:
    """Keys and values of the rows that one call of a loop encodes; None if the first row's form has no loop."""
    pages = PageEncoder(of, log_positions(of, log_columns(of)), DEFAULT_OUTPUT, encoders(of)[0])
    for _ in range(page_encoder.ROWS_BEFORE_COMPILING):
        pages.find_loop(rows[0])
    if not pages.loops:
        return None
    found: list[page_loop.PlainChange] = []
    body = b"".join(sized(*one) for one in rows)
    done, end = pages.loops[0](
        body, 0, len(rows), START, STREAM, pages.source_prefix(GENERATION_MS, STREAM), found.append
    )
    assert done == len(found)
    assert end == len(b"".join(sized(*one) for one in rows[:done]))
    assert [position for *_, position in found] == [b"".join(map(bytes, one[:3])) for one in rows[:done]]  # type: ignore[arg-type]
    return [(key, value) for _, key, value, _ in found]


def made_by_reference(of: TableSchema, rows: Iterable[LogRow]) -> list[tuple[bytes, bytes]]:
    at = log_columns(of).index("cdc$operation")
    numbers = ((one, int.from_bytes(one[at] or b"", "big", signed=True)) for one in rows)
    return [encoders(of)[1].encode(LogChange(one, number, GENERATION_MS, True)) for one, number in numbers]


def numbers(size_bytes: int) -> list[bytes]:
    """Big-endian numbers around every power of two, because the length of the encoding depends on the magnitude."""
    bits = 8 * size_bytes - 1
    near = {sign * ((1 << power) + by) for power, by, sign in product(range(bits), (-1, 0, 1), (-1, 1))}
    near |= {-1 << bits, (1 << bits) - 1}
    return [one.to_bytes(size_bytes, "big", signed=True) for one in sorted(near) if -1 << bits <= one < 1 << bits]


def recorded(cql_type: str) -> list[bytes]:
    return [bytes.fromhex(raw) for name, raw, _ in RECORDED if name == cql_type]


TEXTS = [bytes(size).replace(b"\x00", b"x") for size in (0, 1, 63, 64, 8191, 8192, 8193)]
UNSCALED = [bytes(size) for size in (1, 8, 63, 64, 8187, 8188, 8191, 8192, 8193)]
IDS = [bytes(16), b"\xff" * 16, bytes(range(16)), bytes(range(240, 256))]
LIMITS: dict[str, list[bytes]] = {
    "ascii": [*TEXTS, bytes(range(128))],
    "bigint": numbers(8),
    "blob": [*TEXTS, bytes(range(256))],
    "boolean": [bytes((one,)) for one in range(256)],
    "counter": numbers(8),
    "date": [bytes((raw[0] ^ 0x80,)) + raw[1:] for raw in numbers(4)],
    "decimal": [scale + raw for scale, raw in product([*numbers(4)[::7], bytes(4), b"\x7f" + b"\xff" * 3], UNSCALED)],
    "double": [struct.pack(">d", one) for one in (0.0, -0.0, 5e-324, 1.7976931348623157e308)],
    "duration": recorded("duration"),
    "float": [struct.pack(">f", one) for one in (0.0, -0.0, 1e-45, 3.4028234663852886e38)],
    "inet": [*IDS, bytes(4), b"\xff" * 4, bytes(10) + b"\xff\xff\x01\x02\x03\x04", bytes(15) + b"\x01"],
    "int": numbers(4),
    "smallint": numbers(2),
    "text": [*TEXTS, "é€😀\x00\uffff".encode(), "é".encode() * 4096],
    "time": numbers(8),
    "timestamp": numbers(8),
    "timeuuid": IDS,
    "tinyint": [bytes((one,)) for one in range(256)],
    "uuid": IDS,
    "varchar": [*TEXTS, "ÿ".encode()],
    "varint": [*UNSCALED, *numbers(1), *numbers(8)[::9], b"\xff" * 17],
}
for _float in ("double", "float"):
    LIMITS[_float] += recorded(_float)


@pytest.mark.parametrize("cql_type", NATIVE)
def test_each_type_at_its_limits(monkeypatch: pytest.MonkeyPatch, cql_type: str) -> None:
    """One loop encodes all cells of a type: as a key, as a column and in a collection."""
    monkeypatch.setattr(page_loop, "DECLINED", ())
    of = table({"p": cql_type}, {"c": cql_type}, {"v": cql_type, "l": f"frozen<list<{cql_type}>>"})
    cells = [raw for raw in LIMITS[cql_type] if raw or cql_type in ("ascii", "blob", "text", "varchar")]
    rows = [plain(of, {"p": raw, "c": raw, "v": raw, "l": counted(raw, raw)}) for raw in cells]
    assert made_by_loop(of, rows) == made_by_reference(of, rows)


SMALL = table({"p": "int"}, {"c": "int"}, {"v": "text"})


def test_failed_lookup_leaves_the_row_to_the_reference() -> None:
    """An IndexError in compiled code makes a row slower and does not stop the lane."""
    codec = TableCodec(SMALL, log_columns(SMALL))
    cells = at_ticks(UNIX_EPOCH_TICKS + 10_000_000 * 1_700_000_000)
    for _ in range(page_encoder.ROWS_BEFORE_COMPILING):
        codec.page_encoder.find_loop(cells)
    (loop,) = codec.page_encoder.loops
    for compiled in (loop, codec._encode, codec._encode_key):
        compiled.__globals__.update(whole_0=(), head_0=())
    body, source = sized(*cells), codec.page_encoder.source_prefix(GENERATION_MS, STREAM)
    assert loop(body, 0, 1, START, STREAM, source, lambda _: None) == (0, 0)
    assert codec.page_encoder.encode_row(cells, GENERATION_MS) is None
    (expected,) = made_by_reference(SMALL, [cells])
    assert codec.encode(cells, operation=2, generation_ms=GENERATION_MS, last_in_group=True) == expected
    assert codec.encode_key(cells) == expected[0]


def at_ticks(ticks: int) -> LogRow:
    """A row of a time in ticks since 1582."""
    time = struct.pack(">IHH8x", ticks & 0xFFFF_FFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000)
    return plain(SMALL, {"p": bytes(4), "c": bytes(4), "v": b"x", "cdc$time": time})


def test_times_whose_upper_parts_change() -> None:
    """A loop does not reuse the upper parts of a time if either of them changes."""
    first = UNIX_EPOCH_TICKS + 10_000_000 * 1_700_000_000 & ~(BLOCK_TICKS - 1)
    blocks = [high << 16 | middle for high, middle in ((0, 0), (1, 0), (1, 1), (0, 1), (2, 1), (2, 2), (2, 2), (0, 2))]
    ticks = [first + block * BLOCK_TICKS + low for block in blocks for low in (0, 1, BLOCK_TICKS >> 1, BLOCK_TICKS - 1)]
    rows = [at_ticks(one) for one in ticks]
    assert made_by_loop(SMALL, rows) == made_by_reference(SMALL, rows)


LOWEST, BEHIND = UNIX_EPOCH_TICKS + 10 * 2**41, UNIX_EPOCH_TICKS + 10 * 2**55
"""The first time whose number of microseconds has 8 bytes in Avro, and the first that has more."""


@pytest.mark.parametrize("limit", [LOWEST, BEHIND])
def test_times_around_the_limits_of_a_loop(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """The bytes are right, a loop encodes all rows up to a block from the limit, and no lookup fails beyond it."""
    monkeypatch.setattr(page_loop, "DECLINED", ())
    near = {limit + block * BLOCK_TICKS + by for block in (-2, -1, 0, 1, 2) for by in (-1, 0, 1)}
    start = limit & ~(BLOCK_TICKS - 1)
    near |= {start + block * BLOCK_TICKS + by for block in (-2, -1, 0, 1, 2) for by in (-1, 0, 1)}
    modern = at_ticks(UNIX_EPOCH_TICKS + 10_000_000 * 1_700_000_000)
    taken = 0
    for ticks in sorted(near):
        rows = [modern, at_ticks(ticks)]
        found = made_by_loop(SMALL, rows)
        assert found == made_by_reference(SMALL, rows)[: len(found or ())]
        if LOWEST + BLOCK_TICKS <= ticks < BEHIND - BLOCK_TICKS:
            assert len(found or ()) == 2
            taken += 1
    assert taken


def test_times_around_the_limits_of_single_rows() -> None:
    """Times within the limits are encoded; those beyond are declined without a failed lookup."""
    encode, _ = encoders(SMALL)
    within = [at_ticks(one) for one in (LOWEST, LOWEST + 1, BEHIND - 1)]
    assert [encode(one, 2, GENERATION_MS, True) for one in within] == made_by_reference(SMALL, within)
    for ticks in (0, UNIX_EPOCH_TICKS, LOWEST - 1, BEHIND, (1 << 60) - 1):
        with pytest.raises(DeclinedError):
            encode(at_ticks(ticks), 2, GENERATION_MS, True)


KEYS_ONLY = [({}, {}), ({"c": "int"}, {}), ({"c": "int"}, {"s": "int"}), ({"c": "int", "d": "text"}, {})]


@pytest.mark.parametrize("operation", [1, 2, 3, 4, -3, -4])
@pytest.mark.parametrize("regular", [{}, {"v": "text"}, {"v": "text", "l": "set<int>"}])
@pytest.mark.parametrize(("clustering", "static"), KEYS_ONLY)
def test_changes_that_touch_no_column(
    clustering: dict[str, str], static: dict[str, str], regular: dict[str, str], operation: int
) -> None:
    """Loops encode such changes of a row, a static row or a partition, whichever columns the table has."""
    of = table({"p": "int"}, clustering, regular, static)
    key = {} if operation in (4, -4) else dict.fromkeys(clustering, bytes(4))
    rows = [plain(of, {"p": number.to_bytes(4, "big"), **key}, operation) for number in range(2)]
    assert made_by_loop(of, rows) == made_by_reference(of, rows)
    if static and operation == 1:
        rows = [plain(of, {"p": bytes(4)}, operation)] * 2
        assert made_by_loop(of, rows) == made_by_reference(of, rows)


FLAGGED = table(
    {"p": "int"},
    {"c": "int"},
    {"a": "text", "l": "list<int>", "u": "near"},
    {"s": "text"},
    types={"near": {"x": "int", "y": "text"}},
)
ID_AND_NUMBER = counted(bytes(16), bytes(4), of=2)
TOUCHED: list[dict[str, bytes | None]] = [
    {},
    {"a": b"x"},
    {"l": ID_AND_NUMBER},
    {"cdc$deleted_elements_l": counted(bytes(16))},
    {"u": sized(bytes(4))},
    {"cdc$deleted_elements_u": counted(bytes(2))},
    {"cdc$deleted_a": b"\x01"},
    {"cdc$deleted_l": b"\x01"},
]


@pytest.mark.parametrize("flag", ["a", "l", "u", "s"])
@pytest.mark.parametrize("kind", [b"\x00", b"\x01", b""])
def test_false_flags(flag: str, kind: bytes) -> None:
    """A column whose flag is false is not deleted: all three encoders agree, or decline the row.

    No server writes such a flag, or one that is not a boolean.
    """
    _, reference = encoders(FLAGGED)
    codec = flagged_codec()
    for operation, touched in product((1, 2, 3), TOUCHED):
        key = {"p": bytes(4), "c": bytes(4)}
        cells = plain(FLAGGED, {**key, **touched, f"cdc$deleted_{flag}": kind}, operation)
        try:
            expected = reference.encode(LogChange(cells, operation, GENERATION_MS, True))
        except SchemaError:
            with pytest.raises(SchemaError):
                codec.encode(cells, operation=operation, generation_ms=GENERATION_MS, last_in_group=True)
            assert made_by_loop(FLAGGED, [cells]) is None
            continue
        assert codec.encode(cells, operation=operation, generation_ms=GENERATION_MS, last_in_group=True) == expected
        assert made_by_loop(FLAGGED, [cells]) in (None, [expected])


def test_false_flags_have_loops() -> None:
    """Loops encode rows with a false flag if the flag's column has no value."""
    for flag, touched in product("alu", TOUCHED):
        if f"cdc$deleted_{flag}" in touched or (flag == "a" and "a" in touched):
            continue
        cells = plain(FLAGGED, {"p": bytes(4), "c": bytes(4), **touched, f"cdc$deleted_{flag}": b"\x00"}, 1)
        assert made_by_loop(FLAGGED, [cells]) == made_by_reference(FLAGGED, [cells])


@cache
def flagged_codec() -> TableCodec:
    return TableCodec(FLAGGED, log_columns(FLAGGED))
