"""Durations, numbers and sizes as short text for people. Pure."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """Return a duration: `0.4 s`, `12 s`, `3 min 20 s`, `5 h 10 min`, `2 d 4 h`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds else "0 s"
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    for limit, unit, unit_name, small, small_name in (
        (3600, 60, "min", 1, "s"),
        (86400, 3600, "h", 60, "min"),
        (float("inf"), 86400, "d", 3600, "h"),
    ):
        if seconds < limit:
            whole, rest = divmod(int(seconds), unit)
            return f"{whole} {unit_name}" + (f" {rest // small} {small_name}" if rest // small else "")
    raise AssertionError("no duration is longer than the last limit")


def number(value: float) -> str:
    """Return a number: `0`, `0.4`, `7.5`, `950`, `12.3k`, `4.1M`."""
    for limit, divisor, letter in ((1e4, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M"), (float("inf"), 1e9, "G")):
        if abs(value) < limit:
            scaled = value / divisor
            if scaled == int(scaled) or (divisor == 1 and abs(scaled) >= 100):
                return f"{scaled:,.0f}{letter}"
            return f"{scaled:.1f}{letter}"
    raise AssertionError("no number is greater than the last limit")


def size(value: float) -> str:
    """Return a number of bytes: `512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
