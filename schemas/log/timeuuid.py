"""The arithmetic of version 1 timeuuids, the type of ``cdc$time`` (spec section 3).

A timeuuid is its 16 raw bytes here, because the server sends it so, and because `uuid.UUID` orders it differently.
Its first half is a 60-bit count of 100 ns ticks since 1582-10-15; its second half tells writes of one tick apart.
"""

from __future__ import annotations

from typing import Final

TIMEUUID_BYTES: Final = 16
TICKS_PER_MICRO: Final = 10
UNIX_EPOCH_TICKS: Final = 0x01B21DD213814000
"""Ticks from 1582-10-15 to 1970-01-01."""

FLIPPED_SIGNS: Final = bytes(byte ^ 0x80 for byte in range(256))
"""Table for `bytes.translate`: afterwards, the plain order of bytes is the order of the signed bytes."""


def ticks_of(timeuuid: bytes) -> int:
    """Return the 100 ns ticks since 1582-10-15 that a timeuuid carries.

    The version nibble and the variant bits are ignored: servers before 2026.1 fill the variant at random.

    Raises:
        ValueError: not 16 bytes.
    """
    if len(timeuuid) != TIMEUUID_BYTES:
        raise ValueError(f"a timeuuid has {TIMEUUID_BYTES} bytes, not {len(timeuuid)}")
    return (
        ((timeuuid[6] & 0x0F) << 56)
        | (timeuuid[7] << 48)
        | int.from_bytes(timeuuid[4:6], "big") << 32
        | int.from_bytes(timeuuid[0:4], "big")
    )
