"""Word from the sink to the planner that changes came: the time of a file on the machine of Spark's driver.

Spark tells a source nothing of the rows that its tasks read, and runs the planner and the sink's commit in processes of
their own, beside the job's first one. A lost word costs a table that is written to again some seconds of latency once.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_NAME: Final = "changes-came"


def note(path: str) -> None:
    """Say that changes came; what can't be said is logged."""
    try:
        os.utime(path)
    except OSError as error:
        _log.warning("the planner could not be told of changes (%s): %s", path, error.strerror)


class Arrivals:
    """The planner's side."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen_ns = self._now_ns()

    def came(self) -> bool:
        """Whether changes came since the last time this was asked."""
        now_ns = self._now_ns()
        came, self._seen_ns = now_ns != self._seen_ns, now_ns
        return came

    def _now_ns(self) -> int | None:
        try:
            return self._path.stat().st_mtime_ns
        except OSError as error:
            _log.warning("whether changes came can't be seen (%s): %s", self._path, error.strerror)
            return None


class ActivityFile:
    """The file, for as long as the job runs; raises OSError where there is no folder for temporary files."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="scylla-cdc-bridge-"))
        file = self._folder / _NAME
        file.touch()
        self.path = str(file)

    def close(self) -> None:
        """Remove it; safe to call twice."""
        shutil.rmtree(self._folder, ignore_errors=True)
