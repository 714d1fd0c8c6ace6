r"""A loop for the log rows of one form: the bytes of a page straight to Avro keys and values.

A form fixes for each column whether its cell is null, which bytes it has, or how wide it is. Most logs have few forms
(an insert of every column, for example). Where the form is known, nearly all offsets are known too: a row takes a few
calls of `struct`, one comparison covers a whole stretch of lengths and nulls, and an untouched column is one byte of a
constant. For ``ks.t (pk int, ck int, v text, primary key (pk, ck))`` the loop of a plain insert reads, shortened::

    while done < most:
        k_start, low, middle, high, node, k0, c7, k1, c8, size_c9 = unpack_0(body, at)
        if k_start != start or k0 != b'...' or k1 != b'...': break       # a row of another form
        place = at + 86
        c9 = body[place:place + size_c9]
        ...                                                              # the lines of schemas.compiled.cell_source
        add((pack_key(...), key, join((...)), stream_id + time + b'\x00\x00\x00\x00'))
        at, done = place + size_c9, done + 1

The lines for a cell are those of ``schemas.compiled.row_encoder``. The loop ends before the first row that has another
form or that its code declines; the caller encodes that row in another way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from schemas.avro.varints import long_bytes
from schemas.compiled.cell_source import (
    DECLINED,
    EMPTY_ARRAY,
    NULL,
    SET_TO_NULL,
    SOME,
    Lines,
    number_format,
    shared_helpers,
)
from schemas.compiled.container_source import CellSource, array_writer, udt_change_writer
from schemas.compiled.envelope_bytes import PARTITION_DELETE, ROW_DELETE, known_operations, operation_symbol_bytes
from schemas.compiled.row_encoder import RowSource, block
from schemas.compiled.row_reader_source import LENGTH, RowReaderSource
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, NativeType, UdtType, is_multi_cell
from schemas.log.columns import OPERATION, TTL, deleted_elements_type, value_type
from schemas.log.operations import STATIC_UPDATE, Operation, operation_of
from schemas.log.timeuuid import FLIPPED_SIGNS, TICKS_PER_MICRO, TIMEUUID_BYTES, UNIX_EPOCH_TICKS
from schemas.options import OutputOptions
from schemas.shapes.catalog import shape_of

PlainChange: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Sort key of the row's ``cdc$time`` (16 bytes), key body, value body, position (36 bytes)."""

PageLoop: TypeAlias = Callable[[bytes, int, int, bytes, bytes, bytes, Callable[[PlainChange], object]], tuple[int, int]]
"""The loop of one form.

Its arguments are the page's body, the place of the first row, the most rows to encode, the bytes before a row's time,
the stream id, `PageEncoder.source_prefix`, and a function that takes each change. It returns how many rows it encoded
and the place behind them.
"""

RowForm: TypeAlias = tuple[bytes | int | None, ...]
"""For each cell: None if it is null, its bytes where they decide the kind of the row, else its width or `ANY_WIDTH`."""

ANY_WIDTH: Final = -1
FIRST_SEQ_NO: Final = bytes(4)
"""``cdc$batch_seq_no`` of a group's first row."""

_NULL_LENGTH: Final = b"\xff\xff\xff\xff"
_START_BYTES: Final = 24
"""Lengths of the stream id and of the time, and the stream id between them."""

_LAST_IN_GROUP: Final = b"\x01"
_LOWEST_TICKS: Final = 10 << 41
_HIGHEST_TICKS: Final = (10 << 55) - (1 << 32)
"""Bounds of the upper bits of a time, in ticks since 1970. Between them, and with any lower 32 bits, a time in µs takes
8 bytes of Avro (``schemas.compiled.row_encoder``)."""


def compile_loop(table: TableSchema, positions: dict[str, int], output: OutputOptions, form: RowForm) -> PageLoop:
    """Return the loop for the rows of one form.

    Args:
        table: the base table.
        positions: name -> index of the log's columns; stream id, time and batch_seq_no are the first three.
        output: the forms of the values; its shape has `Shape.bytes_without_images`.
        form: the form of a row that is a group by itself and that the table's row encoder does not decline.

    Raises:
        UnsupportedTypeError: a column's type has no Avro form.
    """
    source = _PageLoopSource(table, positions, output, form)
    text = "\n".join(source.loop_function())
    scope = {**shared_helpers(), **_time_helpers(), "declined": DECLINED, **source.helpers}
    exec(text, scope)  # noqa: S102 - the package schemas.compiled makes every word of it
    return cast("PageLoop", scope["encode_rows"])


class _PageLoopSource(RowSource):
    """Makes the source of one loop. What the form fixes for all its rows is decided here, and not in the loop."""

    def __init__(self, table: TableSchema, positions: dict[str, int], output: OutputOptions, form: RowForm) -> None:
        super().__init__(table, positions, output)
        self._form = form
        self._constants: dict[str, bytes] = {}
        self._numbers: set[str] = set()
        self._types = {self._variable_of(TTL): cast("CqlType", NativeType("bigint"))}
        self._types |= {self._variable_of(one.name): one.type for one in table.columns if not one.is_hidden}
        cell = form[positions[OPERATION]]
        assert isinstance(cell, bytes)
        self._operation = operation_of(cell)
        self._op, self._kind, self._number = known_operations(has_clustering=bool(table.clustering))[self._operation]

    def loop_function(self) -> Lines:
        """Return the source of ``encode_rows``, a `PageLoop`."""
        reading = [*self._read_cells(), *_time_lines()]
        encoding, parts = self._encode_cells()
        loop = [
            *reading,
            *encoding,
            f"value = join(({', '.join(_merge_constants(parts))}))",
            f"position = stream_id + time + {FIRST_SEQ_NO!r}",
            "add((pack_key(high & 0xFFF, middle, low, node.translate(flip)), key, value, position))",
            "at = place",
            "done += 1",
        ]
        return block(
            "def encode_rows(body, at, most, start, stream_id, source, add):",
            [
                "done = 0",
                "was_middle = was_high = was_top = -1",
                *block("try:", block("while done < most:", loop)),
                *block("except declined:", ["pass"]),
                "return done, at",
            ],
        )

    def _encode_cells(self) -> tuple[Lines, list[bytes | str]]:
        """Return the lines that encode the cells, and the parts of the value: constants and expressions."""
        clustering = [self._variable_of(column.name) for column in self._clustering]
        ttl = self._variable_of(TTL)
        lines = [*self._nullable_lines(ttl, NativeType("bigint")), *self._key_lines()]
        for column, cell in zip(self._clustering, clustering, strict=True):
            lines += self._nullable_lines(cell, column.type)
        op = self._op
        if clustering and self._operation == Operation.UPDATE and all(self._is_null(cell) for cell in clustering):
            op = operation_symbol_bytes(STATIC_UPDATE)
        parts: list[bytes | str] = [op, "key", *map(self._constant_or_variable, clustering)]
        if clustering:
            parts.append(NULL)
        if self._touches_no_column():
            parts.append(NULL + EMPTY_ARRAY)
        else:
            parts.append(SOME)
            for column in self._values:
                lines += self._value_lines(column)
                parts.append(self._constant_or_variable(self._variable_of(column.name)))
            parts.append(EMPTY_ARRAY)
        parts += [self._constant_or_variable(ttl), "source", "time", *_TIMESTAMP_PARTS]
        no_images = shape_of(self._output.shape).bytes_without_images
        assert no_images is not None
        parts.append(long_bytes(0) + self._number + _LAST_IN_GROUP + no_images)
        return lines, parts

    def _read_cells(self) -> Lines:
        """Return the lines that take the row's cells out of the body, and leave the loop if it has another form."""
        reader = RowReaderSource(self.helpers)
        reader.take(f"{_START_BYTES}s", "k_start", _START_BYTES)
        reader.check("k_start != start")
        reader.take("IHH8s", "low, middle, high, node", TIMEUUID_BYTES)
        for place, kind in enumerate(self._form[2:], start=2):
            cell = f"c{place}"
            if kind is None:
                reader.expect(_NULL_LENGTH)
            elif isinstance(kind, bytes):
                reader.expect(LENGTH.pack(len(kind)) + kind)
            elif kind == ANY_WIDTH:
                reader.take_any(cell, is_used=cell in self._used)
            else:
                reader.expect(LENGTH.pack(kind))
                letter = number_format(self._types[cell], self._output) if cell in self._types else None
                if letter is not None:
                    self._numbers.add(cell)
                reader.take(letter or f"{kind}s", cell if cell in self._used else "_", kind)
        return [*reader.lines(), f"time = body[at + {_START_BYTES}:at + {_START_BYTES + TIMEUUID_BYTES}]"]

    def _is_null(self, cell: str) -> bool:
        return self._form[int(cell[1:])] is None

    def _is_flag_set(self, cell: str) -> bool:
        kind = self._form[int(cell[1:])]
        return isinstance(kind, bytes) and kind != NULL

    def _touches_no_column(self) -> bool:
        """Return whether no row of the form touches a column."""
        if self._kind in (ROW_DELETE, PARTITION_DELETE):
            return True
        cells = [self._variables_of(column) for column in self._values]
        touched = any(
            not self._is_null(value) or self._is_flag_set(flag) or not all(map(self._is_null, removed))
            for value, flag, *removed in cells
        )
        return bool(self._values) and not touched

    def _constant_or_variable(self, cell: str) -> bytes | str:
        return self._constants.get(cell, cell)

    def _encode_lines(self, cell: str, cql_type: CqlType, *, unions: int) -> Lines:
        size = f"size_{cell}" if self._form[int(cell[1:])] == ANY_WIDTH else None
        code = CellSource(cell, unions, self._output, is_number=cell in self._numbers, size=size)
        lines = code.of(cql_type)
        self.helpers.update(code.helpers)
        return lines

    def _nullable_lines(self, cell: str, cql_type: CqlType) -> Lines:
        if self._is_null(cell):
            self._constants[cell] = NULL
            return []
        return self._encode_lines(cell, cql_type, unions=1)

    def _value_lines(self, column: Column) -> Lines:
        if is_multi_cell(column.type):
            return self._multi_cell_lines(column)
        cell, flag = self._variables_of(column)
        if not self._is_null(cell):
            return self._encode_lines(cell, column.type, unions=2)
        self._constants[cell] = SET_TO_NULL if self._is_flag_set(flag) else NULL
        return []

    def _multi_cell_lines(self, column: Column) -> Lines:
        cell, flag, removed = self._variables_of(column)
        if self._is_null(cell) and self._is_null(removed) and not self._is_flag_set(flag):
            self._constants[cell] = NULL
            return []
        begin = SOME + bytes((self._is_flag_set(flag),))
        added = "None" if self._is_null(cell) else cell
        gone = "None" if self._is_null(removed) else removed
        if isinstance(column.type, UdtType):
            write = self._add_helper(f"change_{cell}", udt_change_writer(column.type, self._output))
            return [f"{cell} = {begin!r} + {write}({added}, {gone})"]
        add = self._add_helper(f"added_{cell}", array_writer(value_type(column.type), self._output))
        remove = self._add_helper(f"removed_{cell}", array_writer(deleted_elements_type(column.type), self._output))
        first = f"{begin + EMPTY_ARRAY!r}" if added == "None" else f"{begin!r} + {add}({cell})"
        last = f"{EMPTY_ARRAY!r}" if gone == "None" else f"{remove}({removed})"
        return [f"{cell} = {first} + {last}"]


_TIMESTAMP_PARTS: Final = ("head_0[us & 0x3FFF]", "head_0[us >> 14 & 0x3FFF]", "tail")


def _time_lines() -> Lines:
    """Return the lines that make ``us`` and ``tail`` of a time, as ``schemas.compiled.row_encoder`` does.

    The upper parts of a time seldom change from row to row, so the loop keeps what it made of them.
    """
    return [
        *block(
            "if middle != was_middle or high != was_high:",
            [
                f"base = ((high & 0xFFF) << 48 | middle << 32) - {UNIX_EPOCH_TICKS}",
                f"if not {_LOWEST_TICKS} <= base < {_HIGHEST_TICKS}: break",
                "was_middle, was_high = middle, high",
            ],
        ),
        f"us = (base + low) // {TICKS_PER_MICRO} << 1",
        "top = us >> 28",
        *block(
            "if top != was_top:",
            ["was_top = top", "tail = head_0[top & 0x3FFF] + whole_0[top >> 14]"],
        ),
    ]


def _time_helpers() -> dict[str, object]:
    return {"flip": FLIPPED_SIGNS, "pack_key": struct.Struct(">HHI8s").pack}


def _merge_constants(parts: Sequence[bytes | str]) -> list[str]:
    """Return the parts of a value as expressions, with neighbouring constants joined."""
    merged: list[str] = []
    held = b""
    for part in parts:
        if isinstance(part, bytes):
            held += part
            continue
        if held:
            merged.append(repr(held))
            held = b""
        merged.append(part)
    return [*merged, repr(held)] if held else merged
