r"""One function for each table, written as Python source: a log row straight to its Avro key and value.

Why source: a loop over the columns would spend most of its time on calls and on looking up what
the table already settles (measured: functions for each column take 1.4 to 2 times as long). The
function of ``ks.t (pk int, ck int, v text, primary key (pk, ck))`` reads, shortened::

    def encode(row, operation, generation_ms, last_in_group):
        c0, c1, c2, c3, c4, _, _, c7, c8, c9, _ = row     # the log's columns in their order
        if c8 is None or ...: decline()
        low, middle, high = unpack_time(c1)
        ...
        (c8,) = unpack_int_0(c8)                          # the partition key
        c8 = c8 << 1 if c8 >= 0 else ~(c8 << 1)
        c8 = whole_0[c8] if c8 < 0x4000 else ...
        key = c8
        ...
        if not with_columns:
            return key, join((op, key, c7, b'\x00\x00', c4, source, c0, c1, ...))
        if c9 is None:                                    # a column: untouched, set to null, or set
            c9 = b'\x00' if c3 is None else deleted[c3]
        else:
            ...
        return key, join((op, key, c7, b'\x02', c9, b'\x00', c4, source, c0, c1, ...))

Nothing but numbers and names made here enters the source: columns are known by their place in the
row. What the function does not know (bad cells and CQL's "empty" values, images, times before 1970)
it declines, see ``schemas.cell_code``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias, cast

from schemas.avro_schema import ENVELOPE_VERSION, OPERATIONS, UNKNOWN_OPERATION
from schemas.cell_code import SOME, CellCode, Lines, decline, shared_helpers
from schemas.cql_types import CqlType, NativeType
from schemas.log_cells import LogRow
from schemas.log_columns import BATCH_SEQ_NO, STREAM_ID, TIME, TTL, deleted_flag
from schemas.operations import IMAGES, OPERATION_SYMBOLS, WITH_COLUMNS
from schemas.reference import GREGORIAN_OFFSET_TICKS100NS
from schemas.table_schema import Column, TableSchema
from schemas.varints import long_bytes

KeyEncoder: TypeAlias = Callable[[LogRow], bytes]
"""Row -> key body; raises one of `schemas.cell_code.DECLINED`."""

ChangeEncoder: TypeAlias = Callable[[LogRow, int, int, bool], tuple[bytes, bytes]]
"""Row, operation, generation_ms, last_in_group -> key body, value body; raises as `KeyEncoder`."""

_NULL: Final = b"\x00"
_SET_TO_NULL: Final = SOME + _NULL
_EMPTY_ARRAY: Final = b"\x00"
_INDENT: Final = "    "
_ID_BYTES: Final = 16
_CACHED_GENERATIONS: Final = 8


def compile_encoders(table: TableSchema, positions: dict[str, int]) -> tuple[KeyEncoder, ChangeEncoder]:
    """Return the table's two functions.

    Args:
        table: the base table.
        positions: where the log's columns are in a row; a row has as many cells.

    Raises:
        UnsupportedTypeError: a column's type has no Avro form yet.
    """
    code = _RowCode(table, positions)
    source = "\n".join((*code.key_function(), *code.change_function()))
    scope = {**shared_helpers(), **_envelope_helpers(table), **code.helpers}
    exec(source, scope)  # noqa: S102 - every word of it is from this module and schemas.cell_code
    return cast("KeyEncoder", scope["encode_key"]), cast("ChangeEncoder", scope["encode"])


class _RowCode:
    """The source of one table's functions; a cell's variable is named after its place in the row.

    Attributes:
        helpers: what the source uses by name, so far.
    """

    def __init__(self, table: TableSchema, positions: dict[str, int]) -> None:
        self.helpers: dict[str, object] = {}
        self._positions = positions
        self._partition_key, self._clustering, self._values = table.partition_key, table.clustering, table.values
        self._key_cells = [self._cell(column.name) for column in self._partition_key]
        self._meta = [self._cell(name) for name in (STREAM_ID, TIME, BATCH_SEQ_NO, TTL)]
        used = {*self._key_cells, *self._meta}
        used |= {self._cell(column.name) for column in (*self._clustering, *self._values)}
        used |= {self._cell(deleted_flag(column.name)) for column in self._values}
        cells = (f"c{place}" for place in range(len(positions)))
        self._unpack_row = f"{', '.join(cell if cell in used else '_' for cell in cells)}, = row"

    def key_function(self) -> Lines:
        """``encode_key(row)``: the body of the record key."""
        reading = [f"{cell} = row[{cell[1:]}]" for cell in self._key_cells]
        return _block(
            "def encode_key(row):", [*reading, self._refuse_null(self._key_cells), *self._key_lines(), "return key"]
        )

    def change_function(self) -> Lines:
        """``encode(row, operation, generation_ms, last_in_group)``: the bodies of record key and value."""
        stream_id, time, batch_seq_no, ttl = self._meta
        clustering = [self._cell(column.name) for column in self._clustering]
        values = [self._cell(column.name) for column in self._values]
        before = ["op", "key", *clustering]
        after = [ttl, "source", stream_id, time, *_TIMESTAMP_PARTS, batch_seq_no, "last"]
        body = [
            self._unpack_row,
            self._refuse_null([stream_id, time, batch_seq_no, *self._key_cells]),
            f"if len({stream_id}) != {_ID_BYTES}: decline()",
            "if operation in images: decline()",
            "op, with_columns = operations.get(operation, unknown)",
            "source = source_of(generation_ms)",
            "last = b'\\x01' if last_in_group is True else b'\\x00' if last_in_group is False else decline()",
            *_timestamp_lines(time),
            *self._code(batch_seq_no, NativeType("int"), unions=0),
            *self._nullable(ttl, NativeType("bigint")),
            *self._key_lines(),
        ]
        for column, cell in zip(self._clustering, clustering, strict=True):
            body += self._nullable(cell, column.type)
        body += _block("if not with_columns:", [_returned([*before, repr(_NULL + _EMPTY_ARRAY), *after])])
        for column in self._values:
            body += self._value(column)
        body.append(_returned([*before, repr(SOME), *values, repr(_EMPTY_ARRAY), *after]))
        return _block("def encode(row, operation, generation_ms, last_in_group):", body)

    def _cell(self, column: str) -> str:
        return f"c{self._positions[column]}"

    def _code(self, cell: str, cql_type: CqlType, *, unions: int) -> Lines:
        code = CellCode(cell, unions)
        lines = code.of(cql_type)
        self.helpers.update(code.helpers)
        return lines

    def _refuse_null(self, cells: Lines) -> str:
        return f"if {' or '.join(f'{cell} is None' for cell in cells)}: decline()"

    def _key_lines(self) -> Lines:
        lines: Lines = []
        for column, cell in zip(self._partition_key, self._key_cells, strict=True):
            lines += self._code(cell, column.type, unions=0)
        return [*lines, f"key = {' + '.join(self._key_cells)}"]

    def _nullable(self, cell: str, cql_type: CqlType) -> Lines:
        """A clustering column or the TTL: null or a value."""
        return [
            *_block(f"if {cell} is None:", [f"{cell} = {_NULL!r}"]),
            *_block("else:", self._code(cell, cql_type, unions=1)),
        ]

    def _value(self, column: Column) -> Lines:
        """A static or regular column: untouched, set to null, or set."""
        cell, flag = self._cell(column.name), self._cell(deleted_flag(column.name))
        return [
            *_block(f"if {cell} is None:", [f"{cell} = {_NULL!r} if {flag} is None else deleted[{flag}]"]),
            *_block("else:", self._code(cell, column.type, unions=2)),
        ]


_TIMESTAMP_PARTS: Final = (
    "head_0[us & 0x3FFF]",
    "head_0[us >> 14 & 0x3FFF]",
    "head_0[us >> 28 & 0x3FFF]",
    "whole_0[us >> 42]",
)


def _timestamp_lines(time: str) -> Lines:
    """Make ``us`` of a timeuuid: zigzag µs since the Unix epoch, in the range of 8 Avro bytes (1970 to 3111).

    The version nibble is cut off unseen: old servers' timeuuids are not RFC ones.
    """
    ticks = "((high & 0xFFF) << 48 | middle << 32 | low)"
    return [
        f"low, middle, high = unpack_time({time})",
        f"us = ({ticks} - {GREGORIAN_OFFSET_TICKS100NS}) // 10 << 1",
        f"if not {1 << 42} <= us < {1 << 56}: decline()",
    ]


def _block(head: str, body: Lines) -> Lines:
    return [head, *(_INDENT + line for line in body)]


def _returned(parts: list[str]) -> str:
    return f"return key, join(({', '.join(parts)}))"


def _envelope_helpers(table: TableSchema) -> dict[str, object]:
    """Return what the change function uses besides the code of cells."""
    return {
        "deleted": {bytes((flag,)): _SET_TO_NULL if flag else _NULL for flag in range(256)},
        "images": IMAGES,
        "operations": {number: _operation(symbol) for number, symbol in OPERATION_SYMBOLS.items()},
        "source_of": _source_writer(table),
        "unknown": _operation(UNKNOWN_OPERATION),
        "unpack_time": struct.Struct(">IHH8x").unpack,
    }


def _operation(symbol: str) -> tuple[bytes, bool]:
    """Return the encoding of ``op``, and whether such a change carries columns."""
    return long_bytes(OPERATIONS.index(symbol)), symbol in WITH_COLUMNS


def _source_writer(table: TableSchema) -> Callable[[int], bytes]:
    """Return the writer of the source record's first part, which is the same for a whole generation."""
    names = [name.encode() for name in (table.keyspace, table.name)]
    fixed = long_bytes(ENVELOPE_VERSION) + b"".join(long_bytes(len(name)) + name for name in names)

    @lru_cache(maxsize=_CACHED_GENERATIONS)
    def source_of(generation_ms: int) -> bytes:
        return fixed + long_bytes(generation_ms) if type(generation_ms) is int else decline()

    return source_of
