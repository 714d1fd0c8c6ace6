"""Schema ids that the processes of one executor share, so that an outage of the registry stops nothing known.

Python workers come and go, and a lane's task runs in any of them: what one remembered alone would be asked again.
One small file for each (registry, subject, schema); a file is whole or not there. Nothing secret is in it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path

_log = logging.getLogger(__name__)


class SchemaIdCache:
    """A `client.SchemaIdStore` in a folder. Failing to keep an id costs a question to the registry, no more."""

    def __init__(self, folder: Path, registry: str) -> None:
        """Take the folder, which need not exist yet.

        Args:
            folder: private to the application.
            registry: the registry's address; ids mean nothing in another one.
        """
        self._folder = folder
        self._registry = registry

    def get(self, subject: str, schema_text: str) -> int | None:
        """The id of a schema in a subject, if a process of this folder has learned it."""
        path = self._path(subject, schema_text)
        try:
            return int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("known schema ids: %s can't be read (%s)", path, error)
            return None

    def put(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Keep an id for every process of this folder."""
        path = self._path(subject, schema_text)
        fresh = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            fresh.write_text(str(schema_id), encoding="ascii")
            fresh.replace(path)
        except OSError as error:
            _log.warning("known schema ids: %s can't be written (%s)", path, error)

    def _path(self, subject: str, schema_text: str) -> Path:
        return self._folder / hashlib.sha256(f"{self._registry}\n{subject}\n{schema_text}".encode()).hexdigest()
