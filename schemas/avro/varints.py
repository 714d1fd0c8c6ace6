"""Avro's variable-length numbers: zigzag, then 7 bits for each byte, the low bits first.

Most of an encoded row is such numbers, so tables give two bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

TABLE_BITS: Final = 14
TABLE_SIZE: Final = 1 << TABLE_BITS

_MIN_LONG: Final = -(1 << 63)
_MAX_LONG: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class VarintTables:
    """Encodings of unsigned (already zigzag) numbers below 2**14, each behind one prefix.

    Attributes:
        whole: the number's encoding, 1 or 2 bytes.
        head: 2 bytes with the low 14 bits of a longer number; their high bits mark that more bytes follow.
        lengths: encodings of the numbers 0 to 2**13 - 1 as Avro longs, for the lengths of strings.
    """

    whole: tuple[bytes, ...]
    head: tuple[bytes, ...]
    lengths: tuple[bytes, ...]


@cache
def varint_tables(prefix: bytes = b"") -> VarintTables:
    """Return the tables for a prefix. They are cached, because there are few prefixes."""
    last = [bytes((low,)) for low in range(0x80)]
    more = [bytes((low | 0x80,)) for low in range(0x80)]
    whole = (*(prefix + one for one in last), *(prefix + low + high for high in last[1:] for low in more))
    head = tuple(prefix + low + high for high in more for low in more)
    return VarintTables(whole, head, whole[::2])


def long_bytes(value: int) -> bytes:
    """Return the encoding of an Avro long.

    Raises:
        OverflowError: the number does not fit in 64 bits.
    """
    if not _MIN_LONG <= value <= _MAX_LONG:
        raise OverflowError(f"{value} does not fit in 64 bits")
    return unsigned_bytes(value << 1 if value >= 0 else ~(value << 1))


_TABLES: Final = varint_tables()
_HEAD: Final = _TABLES.head
_WHOLE: Final = _TABLES.whole


def unsigned_bytes(value: int) -> bytes:
    """Return the encoding of a number that is already zigzag, so 0 or more; it may have any size."""
    head, whole = _HEAD, _WHOLE
    if value < 0x4000:
        return whole[value]
    first = head[value & 0x3FFF]
    if value < 0x1000_0000:
        return first + whole[value >> 14]
    first += head[value >> 14 & 0x3FFF]
    if value < 0x400_0000_0000:
        return first + whole[value >> 28]
    first += head[value >> 28 & 0x3FFF]
    if value < 0x100_0000_0000_0000:
        return first + whole[value >> 42]
    return first + head[value >> 42 & 0x3FFF] + unsigned_bytes(value >> 56)
