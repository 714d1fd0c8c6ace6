"""The form of a quoted error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One case.

    Attributes:
        tried: what it is, in words.
        told: lines on standard error, shortened by `...`.
        status: the exit status, or what happens instead.
        test: the test that checks it; None if it was tried by hand.
    """

    tried: str
    told: tuple[str, ...]
    status: str = "2"
    test: str | None = None


def entry(tried: str, told: str, status: str = "2", test: str | None = None) -> Entry:
    return Entry(tried, (told,), status, test)
