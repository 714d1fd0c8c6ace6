"""Reads the complete lines of a growing file."""

from __future__ import annotations

from pathlib import Path


class LineTail:
    """Reads what another process appends to a file. The file need not exist yet."""

    def __init__(self, path: Path) -> None:
        """Start at the beginning of the file."""
        self._path = path
        self._at = 0

    def lines(self, most_bytes: int = 4 * 1024 * 1024) -> list[str]:
        """Return the next complete lines without their line ends; an empty list if there are none."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                raw = file.read(most_bytes)
        except FileNotFoundError:
            return []
        complete, _, _ = raw.rpartition(b"\n")
        if not complete:
            return []
        self._at += len(complete) + 1
        return complete.decode().split("\n")
