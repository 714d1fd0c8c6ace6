"""Encodes the log rows of one table page by page: decides which forms of rows get a compiled loop, and keeps the loops.

``schemas.compiled.page_loop`` makes a loop for one form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, cast

from schemas.compiled.cell_source import DECLINED
from schemas.compiled.envelope_bytes import UNKNOWN, known_operations, source_writer
from schemas.compiled.page_loop import ANY_WIDTH, FIRST_SEQ_NO, PageLoop, RowForm, compile_loop
from schemas.compiled.row_encoder import ChangeEncoder
from schemas.cql.table import TableSchema
from schemas.cql.types import NativeType
from schemas.log.cell_readers import LogRow
from schemas.log.columns import (
    BATCH_SEQ_NO,
    END_OF_BATCH,
    META_PREFIX,
    OPERATION,
    STREAM_ID,
    TIME,
    TTL,
    deleted_flag,
)
from schemas.log.operations import operation_of
from schemas.log.timeuuid import TIMEUUID_BYTES
from schemas.options import OutputOptions
from schemas.shapes.catalog import shape_of

MAX_LOOPS: Final = 16
"""Limit for one table; it bounds the memory that a table with very many forms takes."""

MISSES_BEFORE_REPLACEMENT: Final = 1_000
"""When a table has `MAX_LOOPS` loops, so many rows without a loop replace one, because compiling takes some ms."""

ROWS_BEFORE_COMPILING: Final = 8
"""After so many rows of a form its loop is compiled, which takes some ms."""

_MAX_CANDIDATES: Final = 256
_TRUE: Final = b"\x01"
_STREAM_ID_BYTES: Final = 16


class PageEncoder:
    """The compiled loops of one table. Not for use by several threads.

    Attributes:
        loops: the loops, the most recently used one first. The caller keeps this order with `move_to_front`.
    """

    def __init__(
        self, table: TableSchema, positions: dict[str, int], output: OutputOptions, encode: ChangeEncoder
    ) -> None:
        """Start without loops.

        Args:
            table: the base table.
            positions: name -> index of the log's columns.
            output: the shape and the forms of the values.
            encode: the table's row encoder. It decides whether rows of a form can have a loop.
        """
        self.loops: list[PageLoop] = []
        self._table, self._positions, self._output, self._encode = table, positions, output, encode
        self._source_of = source_writer(table)
        self._operations = known_operations(has_clustering=bool(table.clustering))
        self._loop_of: dict[RowForm, PageLoop] = {}
        self._rows_seen: Counter[RowForm] = Counter()
        self._misses = 0
        names = sorted(positions, key=positions.__getitem__)
        self._widths = [_width_of(table, name) for name in names]
        decisive = {BATCH_SEQ_NO, OPERATION, END_OF_BATCH} | {deleted_flag(column.name) for column in table.values}
        self._decisive = {place for place, name in enumerate(names) if name in decisive}
        begins_with_position = names[:3] == [STREAM_ID, TIME, BATCH_SEQ_NO]
        self._is_possible = begins_with_position and shape_of(output.shape).bytes_without_images is not None

    def source_prefix(self, generation_ms: int, stream_id: bytes) -> bytes:
        """Return the Avro bytes of the field ``source`` before the time, for the rows of one stream.

        Args:
            generation_ms: start of the stream's generation, ms since the Unix epoch.
            stream_id: the stream's 16 bytes.
        """
        return self._source_of(generation_ms) + stream_id

    def move_to_front(self, index: int) -> None:
        """Move a loop to the front of `loops`."""
        self.loops.insert(0, self.loops.pop(index))

    def find_loop(self, row: LogRow) -> bool:
        """Look up the loop for a row's form, and move it to the front of `loops`.

        A form whose rows come again and again gets its loop here, for the rows that follow.

        Args:
            row: a row that the first loops did not take, as raw cells.

        Returns:
            Whether there is a loop for the row.
        """
        form = self._form_of(row) if self._is_possible else None
        if form is None:
            return False
        loop = self._loop_of.get(form)
        if loop is None:
            self._misses += 1
            if len(self._loop_of) < MAX_LOOPS or self._misses > MISSES_BEFORE_REPLACEMENT:
                self._count_row(form, row)
            return False
        self.move_to_front(self.loops.index(loop))
        return True

    def encode_row(self, row: LogRow, generation_ms: int) -> tuple[bytes, bytes, bytes] | None:
        """Return key body, value body and position of one row without a loop.

        This is for forms that are too rare for a loop. If each update of a table sets any of 30 columns, most rows
        have such a form.

        Args:
            row: the row as raw cells.
            generation_ms: start of the row's generation, ms since the Unix epoch.

        Returns:
            None if the row is not a group by itself, or if the row encoder declines it.
        """
        operation = self._operation_if_alone(row) if self._is_possible else None
        if operation is None:
            return None
        try:
            key, value = self._encode(row, operation, generation_ms, True)
        except DECLINED:
            return None
        return key, value, b"".join(cast("Sequence[bytes]", row[:3]))

    def _count_row(self, form: RowForm, row: LogRow) -> None:
        """Count a row of a form without a loop, and compile the loop after enough of them."""
        self._rows_seen[form] += 1
        if self._rows_seen[form] < ROWS_BEFORE_COMPILING:
            if len(self._rows_seen) > _MAX_CANDIDATES:
                self._rows_seen.clear()
            return
        del self._rows_seen[form]
        operation = form[self._positions[OPERATION]]
        assert isinstance(operation, bytes)
        try:
            # Whether cells contradict their operation depends only on which cells are null, so one row answers for
            # all of the form.
            self._encode(row, operation_of(operation), 0, True)
        except DECLINED:
            return
        if len(self._loop_of) >= MAX_LOOPS:
            evicted = self.loops.pop()
            self._loop_of = {known: loop for known, loop in self._loop_of.items() if loop is not evicted}
        self._loop_of[form] = loop = compile_loop(self._table, self._positions, self._output, form)
        self.loops.insert(0, loop)
        self._misses = 0

    def _operation_if_alone(self, row: LogRow) -> int | None:
        """Return the operation of a row that is a group by itself; None for other rows and unknown operations."""
        if row[2] != FIRST_SEQ_NO or len(row[0] or b"") != _STREAM_ID_BYTES or len(row[1] or b"") != TIMEUUID_BYTES:
            return None
        ends = self._positions.get(END_OF_BATCH)
        if ends is not None and row[ends] != _TRUE:
            return None
        cell = row[self._positions[OPERATION]]
        if cell is None or len(cell) != 1:
            return None
        operation = operation_of(cell)
        known = self._operations.get(operation)
        return None if known is None or known[1] == UNKNOWN else operation

    def _form_of(self, row: LogRow) -> RowForm | None:
        """Return the form of a row; None if no loop can take rows like it."""
        if self._operation_if_alone(row) is None:
            return None
        form: list[bytes | int | None] = []
        for place, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
            if cell is None:
                form.append(None)
            elif place in self._decisive:
                form.append(cell)
            elif width == ANY_WIDTH or width == len(cell):
                form.append(width)
            else:
                return None
        return tuple(form)


def _width_of(table: TableSchema, column: str) -> int:
    """Return the width in bytes of a log column's cells, or `ANY_WIDTH`."""
    if column == TTL:
        return 8
    if column.startswith(META_PREFIX):
        return ANY_WIDTH
    (found,) = (one for one in table.columns if one.name == column)
    width = found.type.fixed_width_bytes if isinstance(found.type, NativeType) else None
    return ANY_WIDTH if width is None else width
