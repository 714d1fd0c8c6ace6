"""Rows of a result as the CQL wire has them. Cells are cut out only when somebody reads them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, overload

from bridge.model.log_rows import Cells

_INT: Final = Struct(">i")
_NULLS: Final = 7
_NULL_LENGTHS: Final = _INT.pack(-1) * _NULLS
_NULLS_BYTES: Final = len(_NULL_LENGTHS)
_NONES: Final = (None,) * (_NULLS + 1)


class RawRows(Sequence[Cells]):
    """The rows in the body of a result; as a sequence, one tuple of raw cells a row.

    Attributes:
        body: bytes with the rows. A cell is its length (4 bytes, negative for null) and its value.
        at: offset of the first row in `body`.
        width: cells in a row.
    """

    __slots__ = ("_count", "_parsed", "at", "body", "width")

    def __init__(self, body: bytes, at: int, width: int) -> None:
        """Create the sequence; `at` is the offset of the row count, which precedes the rows."""
        (self._count,) = _INT.unpack_from(body, at)
        self.body, self.at, self.width = body, at + _INT.size, width
        self._parsed: list[Cells] | None = None

    def __len__(self) -> int:
        return int(self._count)

    @overload
    def __getitem__(self, index: int) -> Cells: ...

    @overload
    def __getitem__(self, index: slice) -> list[Cells]: ...

    def __getitem__(self, index: int | slice) -> Cells | list[Cells]:
        if self._parsed is None:
            self._parsed = []
            at = self.at
            for _ in range(self._count):
                row, at = parse_row(self.body, self.width, at)
                self._parsed.append(row)
        return self._parsed[index]


def parse_row(body: bytes, width: int, at: int) -> tuple[Cells, int]:
    """Return the cells of the row that begins at offset `at`, and the offset behind it."""
    read_length = _INT.unpack_from
    row: list[bytes | None] = []
    left = width
    while left:
        (length,) = read_length(body, at)
        at += 4
        left -= 1
        if length >= 0:
            row.append(body[at : at + length])
            at += length
        elif left >= _NULLS and body.startswith(_NULL_LENGTHS, at):
            # Most cells of an update of a few columns are null, so several nulls are read at once.
            row += _NONES
            at += _NULLS_BYTES
            left -= _NULLS
        else:
            row.append(None)
    return tuple(row), at
