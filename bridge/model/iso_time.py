"""Instants as text for people: ISO 8601 in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

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
