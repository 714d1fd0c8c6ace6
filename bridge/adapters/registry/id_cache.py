"""A cache of schema ids that the processes of one executor share, so that known schemas survive a registry's outage.

Python workers start and end, and a lane's task runs in any of them: an id in one worker's memory would be requested
again. There is one small file for each (registry, subject, schema), which is either complete or missing. The files
contain no secrets.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path

_log = logging.getLogger(__name__)


class SchemaIdCache:
    """A `bridge.adapters.registry.client.SchemaIdStore` in a folder. A lost id costs one request to the registry."""

    def __init__(self, folder: Path, registry: str) -> None:
        """Use a folder; it is created with the first id.

        Args:
            folder: private to the application.
            registry: the registry's address; ids are valid in one registry only.
        """
        self._folder = folder
        self._registry = registry

    def get(self, subject: str, schema_text: str) -> int | None:
        """The id of a schema in a subject; None if no process has stored it."""
        path = self._path(subject, schema_text)
        try:
            return int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("known schema ids: %s can't be read (%s)", path, error)
            return None

    def put(self, subject: str, schema_text: str, schema_id: int) -> None:
        """Store an id for all processes that use the folder."""
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
