"""Folders for temporary files that stay for as long as they are needed, however long that is."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "scylla-cdc-bridge-"


class TemporaryFolder:
    """One that only this user can enter.

    It is locked: what clears such folders of files that nobody has touched for days (systemd-tmpfiles) leaves locked
    ones alone, and a job runs for longer than that.

    Attributes:
        path: where it is.
    """

    def __init__(self) -> None:
        """Make it; raises OSError where there is no folder for temporary files."""
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._held: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        # Not every file system has locks, or somebody who clears it.
        with suppress(OSError):
            fcntl.flock(self._held, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove it with all that is in it; safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._held is not None:
            os.close(self._held)
            self._held = None
