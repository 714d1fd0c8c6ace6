"""What the jobs' logs say of tables that stopped for good, and which fault may bring that about."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

_REPLACED: Final = "its progress is that of another lane layout"
"""Of a `bridge.errors.LayoutError`: what decision 3 in ARCHITECTURE.md promises to whoever works under a layout that
another job has replaced."""

MAY_STOP: Final[Mapping[str, tuple[str, ...]]] = {"second job": (_REPLACED,), "zombie job": (_REPLACED,)}
"""By the kind of a fault (`tests.chaos.plan.KINDS`), words of reasons for which a table may stop for good under it.

No other fault may: a server, a disk or a process that is gone for a while is to be waited for, whatever is left of the
checkpoint is a plan only, and lanes and clocks are no reason to stop.
"""


class Stops:
    """Reads logs as they grow, each line once.

    Args:
        tables: as the logs name them, `keyspace.table`.
    """

    def __init__(self, tables: Iterable[str]) -> None:
        names = "|".join(map(re.escape, tables))
        self._stops = re.compile(rf"(?:^|[ \"])(?:{names}) stops: ")
        self._read: dict[Path, int] = {}

    def unexpected(self, logs: Iterable[Path], kind: str | None) -> list[str]:
        """Whole lines since the last look by which a table stops for good, though it should not.

        Args:
            logs: may not be there yet.
            kind: of the fault that is going on, or has gone on last; None before the first.
        """
        allowed: Collection[str] = MAY_STOP.get(kind or "", ())
        lines = [line for log in logs for line in self._new(log) if self._stops.search(line)]
        return [line for line in lines if not any(words in line for words in allowed)]

    def _new(self, log: Path) -> list[str]:
        try:
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                text, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._read[log] = self._read.get(log, 0) + len(text) + len(newline)
        return text.decode("utf-8", "replace").splitlines()
