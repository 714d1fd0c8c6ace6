"""CDC times: microseconds since the Unix epoch, and the version 1 timeuuids that carry them.

Owns the arithmetic of `cdc$time` (spec section 3) and nothing else; a timeuuid is its 16 raw bytes here, because
that is how the server sends it and because `uuid.UUID` orders and decodes it differently from the server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NewType

from schemas.log.timeuuid import FLIPPED_SIGNS, TICKS_PER_MICRO, UNIX_EPOCH_TICKS, ticks_of

UnixMillis = NewType("UnixMillis", int)
"""An instant in milliseconds since the Unix epoch (generation timestamps have this resolution)."""

UnixMicros = NewType("UnixMicros", int)
"""An instant in microseconds since the Unix epoch (write timestamps and window bounds)."""

_LOW_MIN: Final = bytes([0x80]) * 8
_MAX_TICKS: Final = (1 << 60) - 1

MIN_MICROS: Final = UnixMicros(-(UNIX_EPOCH_TICKS // TICKS_PER_MICRO))
MAX_MICROS: Final = UnixMicros((_MAX_TICKS - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO)


def millis_to_micros(instant_ms: UnixMillis) -> UnixMicros:
    """The same instant in microseconds."""
    return UnixMicros(instant_ms * 1000)


def micros_of(timeuuid: bytes) -> UnixMicros:
    """The write timestamp that a `cdc$time` carries, in microseconds (floored).

    The variant bits are not looked at: servers before 2026.1 fill them at random.
    """
    return UnixMicros((ticks_of(timeuuid) - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO)


def timeuuid_of(instant_us: UnixMicros, low: bytes) -> bytes:
    """The timeuuid of a write timestamp with the given low half (8 bytes).

    Raises:
        ValueError: the instant lies outside what 60 bits of ticks can hold, or `low` is not 8 bytes.
    """
    ticks = instant_us * TICKS_PER_MICRO + UNIX_EPOCH_TICKS
    if not 0 <= ticks <= _MAX_TICKS:
        raise ValueError(f"{instant_us} us since the epoch can't be held by a timeuuid")
    if len(low) != 8:
        raise ValueError(f"the low half of a timeuuid has 8 bytes, not {len(low)}")
    return (
        (ticks & 0xFFFFFFFF).to_bytes(4, "big")
        + ((ticks >> 32) & 0xFFFF).to_bytes(2, "big")
        + (0x1000 | (ticks >> 48)).to_bytes(2, "big")
        + low
    )


def lower_bound(instant_us: UnixMicros) -> bytes:
    """The lowest timeuuid of an instant as the server orders them: a window's inclusive start, or exclusive end."""
    return timeuuid_of(instant_us, _LOW_MIN)


def sort_key(timeuuid: bytes) -> bytes:
    """Bytes whose plain order is the server's order of timeuuids.

    The server compares the 60-bit time first and then the low half as signed bytes (spec section 3).
    """
    high = bytes((timeuuid[6] & 0x0F, timeuuid[7]))
    return high + timeuuid[4:6] + timeuuid[0:4] + timeuuid[8:16].translate(FLIPPED_SIGNS)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def iso_of_micros(instant_us: int) -> str:
    """An instant as in `2026-01-01T12:00:00.123456Z`; as `<n> us` where calendars end (ScyllaDB's go further)."""
    try:
        instant = _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return f"{instant_us} us"
    return instant.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def iso_of_millis(instant_ms: int) -> str:
    """An instant as in `2026-01-01T12:00:00.123Z`; as `<n> ms` where calendars end."""
    try:
        instant = _EPOCH + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return f"{instant_ms} ms"
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
