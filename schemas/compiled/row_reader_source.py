"""Python source that reads the cells of one row out of a page, for the loops of ``schemas.compiled.page_loop``."""

from __future__ import annotations

import struct
from typing import Final

from schemas.compiled.cell_source import Lines

LENGTH: Final = struct.Struct(">i")
"""The length before each cell of a row; -1 is a null cell."""


class RowReaderSource:
    """Collects the reads of one row and turns them into as few calls of `struct` as possible.

    One call reads everything up to the next cell of unknown width. The lines expect the page in `body` and the place
    of the row in `at`. They leave the loop with `break` if the row has another form, and end with the place behind
    the row in `place`.
    """

    def __init__(self, helpers: dict[str, object]) -> None:
        """Start at the beginning of a row.

        Args:
            helpers: receives the functions that the lines call, by name.
        """
        self._helpers = helpers
        self._lines: Lines = ["place = at"]
        self._expected = b""
        self._constants = 0
        self._calls = 0
        self._start_call()

    def _start_call(self) -> None:
        self._format, self._size = ">", 0
        self._names: list[str] = []
        self._checks: list[str] = []

    def take(self, letters: str, names: str, size: int) -> None:
        """Read the next bytes into variables.

        Args:
            letters: the format of the bytes, as in `struct`.
            names: the variables, separated by commas.
            size: how many bytes these are.
        """
        self._flush_expected()
        self._format += letters
        self._names.append(names)
        self._size += size

    def check(self, differs: str) -> None:
        """Leave the loop if an expression over the variables read so far is true."""
        self._checks.append(differs)

    def expect(self, raw: bytes) -> None:
        """Leave the loop unless the next bytes are these."""
        self._expected += raw

    def take_any(self, cell: str, *, is_used: bool) -> None:
        """Read a cell of any width behind its length, or skip it if nothing uses it.

        The variable ``size_<cell>`` has its width afterwards.
        """
        size = f"size_{cell}"
        self.take("i", size, LENGTH.size)
        self._finish_call()
        self._lines.append(f"if {size} < 0: break")
        if is_used:
            self._lines.append(f"{cell} = body[place:place + {size}]")
        self._lines.append(f"place += {size}")

    def lines(self) -> Lines:
        """Return the source of everything that was collected."""
        self._flush_expected()
        self._finish_call()
        return self._lines

    def _flush_expected(self) -> None:
        if self._expected:
            raw, self._expected = self._expected, b""
            name = f"k{self._constants}"
            self._constants += 1
            self._format += f"{len(raw)}s"
            self._names.append(name)
            self._size += len(raw)
            self._checks.append(f"{name} != {raw!r}")

    def _finish_call(self) -> None:
        if self._names:
            unpack = f"unpack_{self._calls}"
            self._calls += 1
            self._helpers[unpack] = struct.Struct(self._format).unpack_from
            self._lines.append(f"{', '.join(self._names)}, = {unpack}(body, place)")
            if self._checks:
                self._lines.append(f"if {' or '.join(self._checks)}: break")
            self._lines.append(f"place += {self._size}")
        self._start_call()
