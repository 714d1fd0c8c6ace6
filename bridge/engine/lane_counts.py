"""How many lanes a table has, by the cores that the settings of Spark name."""

from __future__ import annotations

import os
import re
from typing import Final

from bridge.config.document import SparkSettings

_LOCAL: Final = re.compile(r"^local(?:\[(?P<threads>\*|\d+)(?:,\d+)?\])?$")
_MOST_LANES_A_CORE: Final = 8
"""More lanes than this get a warning; fewer prepare a table for a larger machine."""


def configured_cores(settings: SparkSettings) -> int:
    """Return how many cores read lanes at a time: those of a local master, or of the configured executors."""
    match = _LOCAL.match(settings.master)
    if match is not None:
        threads = match["threads"] or "1"
        return (os.cpu_count() or 1) if threads == "*" else int(threads)
    executors = int(settings.properties.get("spark.executor.instances", 1))
    return max(1, executors * int(settings.properties.get("spark.executor.cores", 1)))


def too_many_lanes(settings: SparkSettings, lanes: int) -> str | None:
    """Return a warning when a local master has far too few cores for so many lanes; None otherwise.

    Of a cluster's cores the settings name only those of executors that do not come and go.
    """
    cores = configured_cores(settings)
    if _LOCAL.match(settings.master) is None or lanes <= _MOST_LANES_A_CORE * cores:
        return None
    return (
        f"{lanes} lanes are read {cores} at a time, and each has a transaction of its own in every micro-batch; about "
        "as many lanes as cores are faster (spark.lanes, tables[].lanes)"
    )
