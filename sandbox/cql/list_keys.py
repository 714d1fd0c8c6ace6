"""Keys of list cells, as the server makes them: timeuuids that sort as the list does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bridge.model.times import UnixMicros, timeuuid_of
from sandbox.cql.parser.errors import CqlError

_MIRROR_US: Final = 2 * 1_262_304_000_000_000
"""Twice 2010-01-01: keys of prepended cells run backwards from there, so they sort before all appended ones."""
_NODE: Final = bytes.fromhex("0e8ad4a0f3e4")
_HALF: Final = 0x80
_LAST: Final = (1 << 14) - 1


class ListKeys:
    """Makes the keys of one request: what it appends keeps its order even at one timestamp."""

    def __init__(self, known: Sequence[bytes] = ()) -> None:
        """Begin a request; `known` are the keys that it shall hand out, where a real server has made them already."""
        self._known = list(known)
        self._appended = 0
        self._prepended = 0

    def append(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Keys behind everything that is there.

        Raises:
            CqlError: the known keys don't suffice.
        """
        if self._known:
            return self._taken(count)
        first = self._appended
        self._appended += count
        return [timeuuid_of(timestamp_us, _low(first + number)) for number in range(count)]

    def prepend(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Keys before everything that is there, in the order of the new cells.

        Raises:
            CqlError: the known keys don't suffice.
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
    # The server compares these bytes signed; the top bits are those of a timeuuid's variant.
    return bytes((_HALF | number >> 8, (number & 0xFF) ^ _HALF)) + _NODE
