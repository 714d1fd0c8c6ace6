"""What ends a benchmark early."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement could not be made, or its result is wrong; the message says what to look at."""
