"""What the jobs' logs say of tables that stopped for good, which no fault may bring about.

A server, a disk or a process that is gone for a while is to be waited for, whatever is left of the checkpoint is a plan
only, and lanes and clocks are no reason to stop. Of two jobs named alike the one that is fenced tries again: it is told
by its owner before its layout is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


class Stops:
    """Reads logs as they grow, each line once.

    Args:
        tables: as the logs name them, `keyspace.table`.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        names = "|".join(map(re.escape, tables))
        self._stops = re.compile(rf"(?:^|[ \"])(?:{names}) stops: ")
        self._read: dict[Path, int] = {}

    def new(self, logs: Iterable[Path]) -> list[str]:
        """Whole lines since the last look by which a table stops for good; a log may not be there yet."""
        return [line for log in logs for line in self._new(log) if self._stops.search(line)]

    def _new(self, log: Path) -> list[str]:
        try:
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                text, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read[log] = self._read.get(log, 0) + len(text) + len(newline)
        return text.decode("utf-8", "replace").splitlines()
