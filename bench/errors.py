"""The benchmark's error."""

from __future__ import annotations


class BenchError(Exception):
    """A measurement failed, or its result is wrong. The message names the cause."""
