"""The Kafka partition of a key, as Java's default partitioner computes it. Pure."""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def placement(key: bytes) -> int:
    """Return a number whose remainder by the number of a topic's partitions is the key's partition.

    It is murmur2 of the key without the sign bit, as Kafka's `Utils.murmur2` and `Utils.toPositive` compute it.
    """
    value = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        value = value * _MULTIPLIER & _WORD ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _WORD
    value = (value ^ value >> 13) * _MULTIPLIER & _WORD
    return (value ^ value >> 15) & _POSITIVE
