r"""One loop for each form that a table's log rows have: result bytes of many rows straight to Avro keys and values.

A form says of each column whether its cell is null, which bytes it has, or how wide it is; most logs have few of them
(an insert of every column, say). Where the form is known, so are nearly all offsets: a row is a few calls of `struct`,
whole stretches of lengths and nulls are one comparison, and an untouched column is nothing but a byte of a constant.
For ``ks.t (pk int, ck int, v text, primary key (pk, ck))`` the loop of a plain insert reads, shortened::

    while done < most:
        k_start, low, middle, high, node, k0, c7, k1, c8, size_c9 = unpack_0(body, at)
        if k_start != start or k0 != b'...' or k1 != b'...': break       # a row of another form
        place = at + 86
        c9 = body[place:place + size_c9]
        ...                                                              # the lines of schemas.compiled.cell_source
        add((pack_key(...), key, join((...)), stream_id + time + b'\x00\x00\x00\x00'))
        at, done = place + size_c9, done + 1

What a cell becomes is written by the very code that `schemas.compiled.row_encoder` writes it with. The loop ends
before the first
row that has another form, or that this code declines; who calls it goes on there in another way.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast

from schemas.compiled.cell_source import DECLINED, SOME, Lines, number_format, shared_helpers
from schemas.compiled.container_source import CellCode, array_writer, udt_change_writer
from schemas.compiled.row_encoder import (
    EMPTY_ARRAY,
    NULL,
    PARTITION_DELETE,
    ROW_DELETE,
    SET_TO_NULL,
    UNKNOWN,
    ChangeEncoder,
    RowCode,
    block,
    known_operations,
    operation_symbol_bytes,
    source_writer,
)
from schemas.cql.table import Column, TableSchema
from schemas.cql.types import CqlType, NativeType, UdtType, is_multi_cell
from schemas.log.cell_readers import LogRow
from schemas.log.change_records import GREGORIAN_OFFSET_TICKS100NS
from schemas.log.columns import (
    BATCH_SEQ_NO,
    END_OF_BATCH,
    META_PREFIX,
    OPERATION,
    STREAM_ID,
    TIME,
    TTL,
    deleted_elements_type,
    deleted_flag,
    value_type,
)
from schemas.log.operations import STATIC_UPDATE, UPDATE
from schemas.options import DEFAULT_OUTPUT, OutputOptions
from schemas.shapes import shape_of

PlainChange: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Sort key of the row's ``cdc$time`` (16 bytes), key body, value body, position (36 bytes)."""

RunEncoder: TypeAlias = Callable[
    [bytes, int, int, bytes, bytes, bytes, Callable[[PlainChange], object]], tuple[int, int]
]
"""Body, place of the first row, most rows, bytes before a row's time, stream id, `RunEncoders.source`, what takes the
changes -> how many rows were encoded, and the place behind them."""

Form: TypeAlias = tuple[bytes | int | None, ...]
"""For each cell None if it is null, its bytes where they decide what the row is, else its width or `ANY_WIDTH`."""

ANY_WIDTH: Final = -1
MOST_FORMS: Final = 16
"""Loops of one table: what a table without end of forms may cost in memory."""

PATIENCE: Final = 1_000
"""When there are so many loops, one is replaced after so many more looks in vain: compiling takes some ms."""

WORTH_A_LOOP: Final = 8
"""After so many rows of a form its loop is compiled, which takes some ms."""

_MOST_CANDIDATES: Final = 256
_TRUE: Final = b"\x01"
_FIRST: Final = bytes(4)
_NULL_LENGTH: Final = b"\xff\xff\xff\xff"
_LENGTH: Final = struct.Struct(">i")
_START_BYTES: Final = 24
_ID_BYTES: Final = 16
_LAST_IN_GROUP: Final = b"\x01"
_FLIP: Final = bytes(byte ^ 0x80 for byte in range(256))
_LOWEST_TICKS: Final = 10 << 41
_HIGHEST_TICKS: Final = (10 << 55) - (1 << 32)
"""From `_LOWEST_TICKS` on and below these, plus 32 bits of ticks, a time takes 8 bytes of Avro (see `row_code`)."""


class RunEncoders:
    """The loops of one table so far. Not for several threads.

    Attributes:
        loops: the compiled ones, the one that was used last in front (`use` sees to it).
    """

    def __init__(
        self, table: TableSchema, positions: dict[str, int], output: OutputOptions, encode: ChangeEncoder
    ) -> None:
        """Take what the loops are made of.

        Args:
            table: the base table.
            positions: where the log's columns are in a row.
            output: the forms of the values.
            encode: the table's encoder of single rows, which says what a form's rows are worth.
        """
        self.loops: list[RunEncoder] = []
        self._table, self._positions, self._output, self._encode = table, positions, output, encode
        self._source_of = source_writer(table)
        self._operations = known_operations(has_clustering=bool(table.clustering))
        self._known: dict[Form, RunEncoder] = {}
        self._seen: Counter[Form] = Counter()
        self._met = 0
        names = sorted(positions, key=positions.__getitem__)
        self._widths = [_width(table, name) for name in names]
        decisive = {BATCH_SEQ_NO, OPERATION, END_OF_BATCH} | {deleted_flag(column.name) for column in table.values}
        self._decisive = {place for place, name in enumerate(names) if name in decisive}
        self._is_possible = (
            names[:3] == [STREAM_ID, TIME, BATCH_SEQ_NO] and shape_of(output.shape).bytes_without_images is not None
        )

    def source(self, generation_ms: int, stream_id: bytes) -> bytes:
        """Return what stands before the time in the values of a stream."""
        return self._source_of(generation_ms) + stream_id

    def use(self, number: int) -> None:
        """Put a loop in front."""
        self.loops.insert(0, self.loops.pop(number))

    def knows(self, row: LogRow) -> bool:
        """Look at a row that the first loops did not take; if there is one for its form, it comes to the front.

        A form that is met again and again gets its loop here.
        """
        form = self._form(row) if self._is_possible else None
        if form is None:
            return False
        loop = self._known.get(form)
        if loop is None:
            self._met += 1
            if len(self._known) < MOST_FORMS or self._met > PATIENCE:
                self._count(form, row)
            return False
        self.use(self.loops.index(loop))
        return True

    def one(self, row: LogRow, generation_ms: int) -> tuple[bytes, bytes, bytes] | None:
        """Return key body, value body and position of a row by itself; None if such rows are not for a loop either.

        For the forms that come too seldom for a loop: of a table whose updates touch any of 30 columns that is most.
        """
        operation = self._alone(row) if self._is_possible else None
        if operation is None:
            return None
        try:
            key, value = self._encode(row, operation, generation_ms, True)
        except DECLINED:
            return None
        return key, value, b"".join(cast("Sequence[bytes]", row[:3]))

    def _count(self, form: Form, row: LogRow) -> None:
        self._seen[form] += 1
        if self._seen[form] < WORTH_A_LOOP:
            if len(self._seen) > _MOST_CANDIDATES:
                self._seen.clear()
            return
        del self._seen[form]
        try:
            # Whether cells contradict their operation is a matter of which there are: one row tells for all.
            self._encode(row, _operation(form, self._positions), 0, True)
        except DECLINED:
            return
        if len(self._known) >= MOST_FORMS:
            unused = self.loops.pop()
            self._known = {known: other for known, other in self._known.items() if other is not unused}
        self._known[form] = loop = compile_run(self._table, self._positions, self._output, form)
        self.loops.insert(0, loop)
        self._met = 0

    def _alone(self, row: LogRow) -> int | None:
        """The operation of a row that is a group by itself; None of any other, and where others go with it."""
        if row[2] != _FIRST or len(row[0] or b"") != _ID_BYTES or len(row[1] or b"") != _ID_BYTES:
            return None
        ends = self._positions.get(END_OF_BATCH)
        if ends is not None and row[ends] != _TRUE:
            return None
        cell = row[self._positions[OPERATION]]
        if cell is None or len(cell) != 1:
            return None
        operation = _signed(cell)
        known = self._operations.get(operation)
        return None if known is None or known[1] == UNKNOWN else operation

    def _form(self, row: LogRow) -> Form | None:
        """The form of a row; None if rows like it are not for a loop."""
        if self._alone(row) is None:
            return None
        form: list[bytes | int | None] = []
        for place, (one, width) in enumerate(zip(row, self._widths, strict=True)):
            if one is None:
                form.append(None)
            elif place in self._decisive:
                form.append(one)
            elif width == ANY_WIDTH or width == len(one):
                form.append(width)
            else:
                return None
        return tuple(form)


def compile_run(
    table: TableSchema, positions: dict[str, int], output: OutputOptions = DEFAULT_OUTPUT, form: Form = ()
) -> RunEncoder:
    """Return the loop for the rows of one form.

    Args:
        table: the base table.
        positions: where the log's columns are in a row; stream id, time and number are the first three.
        output: the forms of the values; their shape has `Shape.bytes_without_images`.
        form: of a row that ends its group, is its first, and that the table's encoder knows.
    """
    code = _RunCode(table, positions, output, form)
    source = "\n".join(code.run_function())
    scope = {**shared_helpers(), **_helpers(), **code.helpers}
    exec(source, scope)  # noqa: S102 - every word of it is from here, row_code, cell_code and container_code
    return cast("RunEncoder", scope["encode_run"])


class _RunCode(RowCode):
    """The source of one loop. What of a row is the same for all of its form is decided here, not there."""

    def __init__(self, table: TableSchema, positions: dict[str, int], output: OutputOptions, form: Form) -> None:
        super().__init__(table, positions, output)
        self._form = form
        self._constants: dict[str, bytes] = {}
        self._numbers: set[str] = set()
        self._types = {self._cell(TTL): cast("CqlType", NativeType("bigint"))}
        self._types |= {self._cell(one.name): one.type for one in table.columns if not one.is_hidden}
        cell = form[positions[OPERATION]]
        assert isinstance(cell, bytes)
        self._operation = _signed(cell)
        self._op, self._kind, self._number = known_operations(has_clustering=bool(table.clustering))[self._operation]

    def run_function(self) -> Lines:
        """``encode_run``: a `RunEncoder`."""
        loop = [*self._reading(), *_time_lines()]
        clustering = [self._cell(column.name) for column in self._clustering]
        ttl = self._cell(TTL)
        loop += self._nullable(ttl, NativeType("bigint"))
        loop += self._key_lines()
        for column, cell in zip(self._clustering, clustering, strict=True):
            loop += self._nullable(cell, column.type)
        op = self._op
        if clustering and self._operation == UPDATE and all(self._is_null(cell) for cell in clustering):
            op = operation_symbol_bytes(STATIC_UPDATE)
        parts: list[bytes | str] = [op, "key", *map(self._part, clustering)]
        if clustering:
            parts.append(NULL)
        if self._is_bare():
            parts.append(NULL + EMPTY_ARRAY)
        else:
            parts.append(SOME)
            for column in self._values:
                loop += self._value(column)
                parts.append(self._part(self._cell(column.name)))
            parts.append(EMPTY_ARRAY)
        parts += [self._part(ttl), "source", "time", "head_0[us & 0x3FFF]", "head_0[us >> 14 & 0x3FFF]", "tail"]
        # The number of a group's first row, and of its operation.
        no_images = shape_of(self._output.shape).bytes_without_images
        assert no_images is not None
        parts += [b"\x00" + self._number + _LAST_IN_GROUP + no_images]
        loop += [
            f"value = join(({', '.join(_merged(parts))}))",
            f"position = stream_id + time + {_FIRST!r}",
            "add((pack_key(high & 0xFFF, middle, low, node.translate(flip)), key, value, position))",
            "at = place",
            "done += 1",
        ]
        return block(
            "def encode_run(body, at, most, start, stream_id, source, add):",
            [
                "done = 0",
                "was_middle = was_high = was_top = -1",
                *block("try:", block("while done < most:", loop)),
                *block("except declined:", ["pass"]),
                "return done, at",
            ],
        )

    def _reading(self) -> Lines:
        """The lines that take the row's cells out of the body, and leave the loop if it has another form."""
        reader = _Reader(self.helpers)
        reader.take(f"{_START_BYTES}s", "k_start", _START_BYTES)
        reader.check("k_start != start")
        reader.take("IHH8s", "low, middle, high, node", _ID_BYTES)
        for place, kind in enumerate(self._form[2:], start=2):
            cell = f"c{place}"
            if kind is None:
                reader.expect(_NULL_LENGTH)
            elif isinstance(kind, bytes):
                reader.expect(_LENGTH.pack(len(kind)) + kind)
            elif kind == ANY_WIDTH:
                reader.take_any(cell, is_used=cell in self._used)
            else:
                reader.expect(_LENGTH.pack(kind))
                letter = number_format(self._types[cell], self._output) if cell in self._types else None
                if letter is not None:
                    self._numbers.add(cell)
                reader.take(letter or f"{kind}s", cell if cell in self._used else "_", kind)
        return [*reader.lines(), f"time = body[at + {_START_BYTES}:at + {_START_BYTES + _ID_BYTES}]"]

    def _is_null(self, cell: str) -> bool:
        return self._form[int(cell[1:])] is None

    def _flag(self, cell: str) -> bool:
        kind = self._form[int(cell[1:])]
        return isinstance(kind, bytes) and kind != NULL

    def _is_bare(self) -> bool:
        """Whether the change says nothing of any column."""
        if self._kind in (ROW_DELETE, PARTITION_DELETE):
            return True
        cells = [self._cells_of(column) for column in self._values]
        touched = any(
            not self._is_null(value) or self._flag(flag) or not all(map(self._is_null, removed))
            for value, flag, *removed in cells
        )
        return bool(self._values) and not touched

    def _part(self, cell: str) -> bytes | str:
        return self._constants.get(cell, cell)

    def _code(self, cell: str, cql_type: CqlType, *, unions: int) -> Lines:
        size = f"size_{cell}" if self._form[int(cell[1:])] == ANY_WIDTH else None
        code = CellCode(cell, unions, self._output, is_number=cell in self._numbers, size=size)
        lines = code.of(cql_type)
        self.helpers.update(code.helpers)
        return lines

    def _nullable(self, cell: str, cql_type: CqlType) -> Lines:
        if self._is_null(cell):
            self._constants[cell] = NULL
            return []
        return self._code(cell, cql_type, unions=1)

    def _value(self, column: Column) -> Lines:
        if is_multi_cell(column.type):
            return self._multi_cell(column)
        cell, flag = self._cells_of(column)
        if not self._is_null(cell):
            return self._code(cell, column.type, unions=2)
        self._constants[cell] = SET_TO_NULL if self._flag(flag) else NULL
        return []

    def _multi_cell(self, column: Column) -> Lines:
        cell, flag, removed = self._cells_of(column)
        if self._is_null(cell) and self._is_null(removed) and not self._flag(flag):
            self._constants[cell] = NULL
            return []
        begin = SOME + bytes((self._flag(flag),))
        added = "None" if self._is_null(cell) else cell
        gone = "None" if self._is_null(removed) else removed
        if isinstance(column.type, UdtType):
            write = self._helper(f"change_{cell}", udt_change_writer(column.type, self._output))
            return [f"{cell} = {begin!r} + {write}({added}, {gone})"]
        add = self._helper(f"added_{cell}", array_writer(value_type(column.type), self._output))
        remove = self._helper(f"removed_{cell}", array_writer(deleted_elements_type(column.type), self._output))
        first = f"{begin + EMPTY_ARRAY!r}" if added == "None" else f"{begin!r} + {add}({cell})"
        last = f"{EMPTY_ARRAY!r}" if gone == "None" else f"{remove}({removed})"
        return [f"{cell} = {first} + {last}"]


class _Reader:
    """Gathers what is read with one call of `struct`: all up to a cell of any width, and so on behind that."""

    def __init__(self, helpers: dict[str, object]) -> None:
        self._helpers = helpers
        self._lines: Lines = ["place = at"]
        self._expected = b""
        self._checked = 0
        self._segments = 0
        self._begin()

    def _begin(self) -> None:
        self._format, self._size = ">", 0
        self._names: list[str] = []
        self._checks: list[str] = []

    def take(self, letters: str, names: str, size: int) -> None:
        """Read the next bytes under a name."""
        self._flush()
        self._format += letters
        self._names.append(names)
        self._size += size

    def check(self, differs: str) -> None:
        """Leave the loop if this is so."""
        self._checks.append(differs)

    def expect(self, raw: bytes) -> None:
        """Leave the loop unless the next bytes are these."""
        self._expected += raw

    def take_any(self, cell: str, *, is_used: bool) -> None:
        """Read a cell of any width, behind its length, or pass it over."""
        size = f"size_{cell}"
        self.take("i", size, _LENGTH.size)
        self._end()
        self._lines.append(f"if {size} < 0: break")
        if is_used:
            self._lines.append(f"{cell} = body[place:place + {size}]")
        self._lines.append(f"place += {size}")

    def lines(self) -> Lines:
        """All of them."""
        self._flush()
        self._end()
        return self._lines

    def _flush(self) -> None:
        if self._expected:
            raw, self._expected = self._expected, b""
            name = f"k{self._checked}"
            self._checked += 1
            self._format += f"{len(raw)}s"
            self._names.append(name)
            self._size += len(raw)
            self._checks.append(f"{name} != {raw!r}")

    def _end(self) -> None:
        if self._names:
            unpack = f"unpack_{self._segments}"
            self._segments += 1
            self._helpers[unpack] = struct.Struct(self._format).unpack_from
            self._lines.append(f"{', '.join(self._names)}, = {unpack}(body, place)")
            if self._checks:
                self._lines.append(f"if {' or '.join(self._checks)}: break")
            self._lines.append(f"place += {self._size}")
        self._begin()


def _time_lines() -> Lines:
    """Make ``us`` and ``tail`` of a time, as `row_encoder` does; its upper parts seldom change between rows."""
    return [
        *block(
            "if middle != was_middle or high != was_high:",
            [
                f"base = ((high & 0xFFF) << 48 | middle << 32) - {GREGORIAN_OFFSET_TICKS100NS}",
                f"if not {_LOWEST_TICKS} <= base < {_HIGHEST_TICKS}: break",
                "was_middle, was_high = middle, high",
            ],
        ),
        "us = (base + low) // 10 << 1",
        "top = us >> 28",
        *block(
            "if top != was_top:",
            ["was_top = top", "tail = head_0[top & 0x3FFF] + whole_0[top >> 14]"],
        ),
    ]


def _merged(parts: Sequence[bytes | str]) -> list[str]:
    """Parts of a value as expressions, neighbouring constants as one."""
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


def _helpers() -> dict[str, object]:
    return {"declined": DECLINED, "flip": _FLIP, "pack_key": struct.Struct(">HHI8s").pack}


def _width(table: TableSchema, column: str) -> int:
    """How wide a column's cells are, or `ANY_WIDTH`."""
    if column == TTL:
        return 8
    if column.startswith(META_PREFIX):
        return ANY_WIDTH
    (found,) = (one for one in table.columns if one.name == column)
    width = found.type.fixed_width_bytes if isinstance(found.type, NativeType) else None
    return ANY_WIDTH if width is None else width


def _signed(cell: bytes) -> int:
    return cell[0] - 256 if cell[0] > 127 else cell[0]


def _operation(form: Form, positions: dict[str, int]) -> int:
    cell = form[positions[OPERATION]]
    assert isinstance(cell, bytes)
    return _signed(cell)
