"""Finds stopped tables in the jobs' logs. No fault may stop a table for good.

The job must wait for a server, a disk or a process that is missing for a while. The checkpoint is only a plan, and
lanes and clocks are no reason to stop. Of two jobs with the same name, the fenced one must try again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path


class Stops:
    """Reads growing logs, each line once.

    Args:
        tables: names `keyspace.table`.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        names = "|".join(map(re.escape, tables))
        self._stops = re.compile(rf"(?:^|[ \"])(?:{names}) stops: ")
        self._read: dict[Path, int] = {}

    def new(self, logs: Iterable[Path]) -> list[str]:
        """Return the new complete lines that report a stopped table. A log need not exist yet."""
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
