"""Rows of a result as the wire has them: nothing is taken apart before it is asked for."""

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
    """The rows in a result's body; as a sequence, their raw cells.

    Attributes:
        body: holds the rows, each cell behind its length, null's being negative.
        at: where the first row begins.
        width: how many cells a row has.
    """

    __slots__ = ("_count", "_parsed", "at", "body", "width")

    def __init__(self, body: bytes, at: int, width: int) -> None:
        """Take where in the body the count of the rows stands."""
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
    """The cells of the row that begins at `at`, and where it ends."""
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
            # Of an update that sets a few columns nearly all cells are null, and so are most rows' flags.
            row += _NONES
            at += _NULLS_BYTES
            left -= _NULLS
        else:
            row.append(None)
    return tuple(row), at
