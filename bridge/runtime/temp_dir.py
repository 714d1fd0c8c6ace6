"""Temporary folders that are not deleted while they are in use."""

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
    """A temporary folder that only this user can enter; it exists until `close`.

    The folder is locked. Programs that delete temporary files unused for days (systemd-tmpfiles) skip locked folders,
    and a job runs longer than that.

    Attributes:
        path: the folder.

    Args:
        parent: the folder to make it in; None for the usual one (`TMPDIR`).

    Raises:
        OSError: there is no folder for temporary files.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        self._locked: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        # A file system without locks is not an error: nothing may delete its files.
        with suppress(OSError):
            fcntl.flock(self._locked, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        """Remove the folder and its contents; safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._locked is not None:
            os.close(self._locked)
            self._locked = None
