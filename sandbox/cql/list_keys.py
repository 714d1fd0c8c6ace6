"""Keys of list cells, as the server generates them: timeuuids in the order of the list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql.parser.errors import CqlError

_MIRROR_US: Final = 2 * 1_262_304_000_000_000
"""Twice 2010-01-01. Keys of prepended cells count backwards from here, so that they sort before all appended ones."""
_NODE: Final = bytes.fromhex("0e8ad4a0f3e4")
_HALF: Final = 0x80
_LAST: Final = (1 << 14) - 1


class ListKeys:
    """Generates the keys of one request. Appended cells keep their order even with one timestamp."""

    def __init__(self, known: Sequence[bytes] = ()) -> None:
        """Start a request. `known` holds its keys if a real server has generated them already."""
        self._known = list(known)
        self._appended = 0
        self._prepended = 0

    def append(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Return keys that sort after all existing cells.

        Raises:
            CqlError: there are too few known keys.
        """
        if self._known:
            return self._taken(count)
        first = self._appended
        self._appended += count
        return [timeuuid_of(timestamp_us, _low(first + number)) for number in range(count)]

    def prepend(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Return keys that sort before all existing cells, in the order of the new cells.

        Raises:
            CqlError: there are too few known keys.
        """
        if self._known:
            return self._taken(count)
        self._prepended += count
        first = _LAST + 1 - self._prepended
        instant_us = UnixMicros(_MIRROR_US - timestamp_us)
        return [timeuuid_of(instant_us, _low(first + number)) for number in range(count)]

    def _taken(self, count: int) -> list[bytes]:
        if count > len(self._known):
            raise CqlError(f"{count} keys for cells of a list are needed, but {len(self._known)} are known")
        taken, self._known = self._known[:count], self._known[count:]
        return taken


def _low(number: int) -> bytes:
    # The server compares these bytes as signed numbers. The top bits are the timeuuid's variant.
    return bytes((_HALF | number >> 8, (number & 0xFF) ^ _HALF)) + _NODE
