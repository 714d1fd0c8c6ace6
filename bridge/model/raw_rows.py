"""Rows of a result as the wire has them: nothing is taken apart before it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, overload

from bridge.model.changes import Cells

_INT: Final = Struct(">i")


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
    for _ in range(width):
        (length,) = read_length(body, at)
        at += 4
        if length < 0:
            row.append(None)
        else:
            row.append(body[at : at + length])
            at += length
    return tuple(row), at
