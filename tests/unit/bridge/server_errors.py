"""What is seen when servers, Java, disks or ports are not as they should be: as it was told by the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that was tried.

    Attributes:
        tried: in words.
        told: lines on standard error, shortened by `...`.
        status: the exit status, or what happens instead.
        test: the function that holds it; None where it was tried by hand.
    """

    tried: str
    told: tuple[str, ...]
    status: str
    test: str | None = None


SERVER_CASES: Final[dict[str, list[Entry]]] = {}
