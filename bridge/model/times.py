"""Times: instants in milliseconds and microseconds, timeuuids of `cdc$time`, and instants as text. Pure.

A timeuuid is 16 raw bytes here: servers send it so, and `uuid.UUID` orders timeuuids differently from the server.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, NewType

from schemas.log.timeuuid import FLIPPED_SIGNS, TICKS_PER_MICRO, UNIX_EPOCH_TICKS, ticks_of

UnixMillis = NewType("UnixMillis", int)
"""Milliseconds since the Unix epoch, the resolution of generation timestamps."""

UnixMicros = NewType("UnixMicros", int)
"""Microseconds since the Unix epoch, the resolution of write timestamps and window bounds."""

_LOW_MIN: Final = bytes([0x80]) * 8
_MAX_TICKS: Final = (1 << 60) - 1

MIN_MICROS: Final = UnixMicros(-(UNIX_EPOCH_TICKS // TICKS_PER_MICRO))
MAX_MICROS: Final = UnixMicros((_MAX_TICKS - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO)


def millis_to_micros(instant_ms: UnixMillis) -> UnixMicros:
    """Return the instant in microseconds."""
    return UnixMicros(instant_ms * 1000)


def micros_of(timeuuid: bytes) -> UnixMicros:
    """Return the write timestamp in a `cdc$time`, in microseconds (rounded down).

    The function ignores the variant bits, because servers before 2026.1 fill them at random.

    Raises:
        ValueError: `timeuuid` has not 16 bytes.
    """
    return UnixMicros((ticks_of(timeuuid) - UNIX_EPOCH_TICKS) // TICKS_PER_MICRO)


def timeuuid_of(instant_us: UnixMicros, low: bytes) -> bytes:
    """Return the timeuuid of a write timestamp and a low half (8 bytes).

    Raises:
        ValueError: 60 bits of ticks can't hold the instant, or `low` has not 8 bytes.
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
    """Return the lowest timeuuid of an instant in the server's order: a window's inclusive start or exclusive end."""
    return timeuuid_of(instant_us, _LOW_MIN)


def sort_key(timeuuid: bytes) -> bytes:
    """Return 16 bytes whose plain order is the server's order of timeuuids.

    The server compares the 60 bits of time first, then the low half as signed bytes.
    """
    high = bytes((timeuuid[6] & 0x0F, timeuuid[7]))
    return high + timeuuid[4:6] + timeuuid[0:4] + timeuuid[8:16].translate(FLIPPED_SIGNS)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def millis_of(instant: datetime) -> UnixMillis:
    """Return an instant in milliseconds (rounded down); without a time zone it is UTC, as CQL drivers return it."""
    return UnixMillis((instant.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1))


def iso_of_micros(instant_us: int) -> str:
    """Return an instant as in `2026-01-01T12:00:00.123456Z`; as `<n> us` beyond Python's calendar."""
    try:
        instant = _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return f"{instant_us} us"
    return instant.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def iso_of_millis(instant_ms: int) -> str:
    """Return an instant as in `2026-01-01T12:00:00.123Z`; as `<n> ms` beyond Python's calendar."""
    try:
        instant = _EPOCH + timedelta(milliseconds=instant_ms)
    except OverflowError:
        return f"{instant_ms} ms"
    return instant.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
