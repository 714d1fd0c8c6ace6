"""The form of a quoted error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem and its messages.

    Attributes:
        tried: the problem, as docs/errors.md describes it.
        told: lines on standard error; `...` marks text that is left out.
        status: the exit status, or what happens instead.
        test: name of the test that checks it; None if it was checked by hand.
    """

    tried: str
    told: tuple[str, ...]
    status: str = "2"
    test: str | None = None


def entry(tried: str, told: str, status: str = "2", test: str | None = None) -> Entry:
    return Entry(tried, (told,), status, test)
