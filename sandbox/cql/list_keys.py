"""Keys of list cells, as the server generates them: timeuuids in the order of the list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bridge.model.times import UnixMicros, micros_of, sort_key, timeuuid_of
from sandbox.cql.parser.errors import CqlError

_MIRROR_US: Final = 2 * 1_262_304_000_000_000
"""Twice 2010-01-01. Keys of prepended cells count backwards from here, so that they sort before all appended ones."""
_NODE: Final = bytes.fromhex("0e8ad4a0f3e4")
_HALF: Final = 0x80
_LAST: Final = (1 << 14) - 1


class ListKeys:
    """Generates the keys of one request. Appended cells keep their order even with one timestamp."""

    def __init__(self, known: Iterable[bytes] = ()) -> None:
        """Start a request. `known` holds its keys, in any order, if a real server has generated them already."""
        self._known = sorted(known, key=sort_key)
        self._generates = not self._known
        self._appended = 0
        self._prepended = 0

    def append(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Return keys that sort after all existing cells.

        Raises:
            CqlError: there are too few known keys.
        """
        if not self._generates:
            return self._taken(count, timestamp_us, slice(count))
        first = self._appended
        self._appended += count
        return [timeuuid_of(timestamp_us, _low(first + number)) for number in range(count)]

    def prepend(self, count: int, timestamp_us: UnixMicros) -> list[bytes]:
        """Return keys that sort before all existing cells, in the order of the new cells.

        Raises:
            CqlError: there are too few known keys.
        """
        instant_us = prepended_us(timestamp_us)
        if not self._generates:
            # Each further value of a request goes before the earlier ones.
            return self._taken(count, instant_us, slice(-count, None))
        self._prepended += count
        first = _LAST + 1 - self._prepended
        return [timeuuid_of(instant_us, _low(first + number)) for number in range(count)]

    def _taken(self, count: int, instant_us: UnixMicros, part: slice) -> list[bytes]:
        fitting = [key for key in self._known if micros_of(key) == instant_us]
        if count > len(fitting):
            raise CqlError(f"{count} keys for cells of a list are needed at {instant_us}, but {len(fitting)} are known")
        taken = fitting[part] if count else []
        self._known = [key for key in self._known if key not in taken]
        return taken


def prepended_us(timestamp_us: UnixMicros) -> UnixMicros:
    """Return the time that the keys of prepended cells have, for a statement's timestamp; both in Unix us."""
    return UnixMicros(_MIRROR_US - timestamp_us)


def _low(number: int) -> bytes:
    # The server compares these bytes as signed numbers. The top bits are the timeuuid's variant.
    return bytes((_HALF | number >> 8, (number & 0xFF) ^ _HALF)) + _NODE
