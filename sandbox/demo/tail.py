"""Reads a growing file of lines as far as they are complete."""

from __future__ import annotations

from pathlib import Path


class LineTail:
    """What another process appends to a file, in portions. The file may come into being later."""

    def __init__(self, path: Path) -> None:
        """Begin at the beginning of `path`."""
        self._path = path
        self._at = 0

    def lines(self, most_bytes: int = 4 * 1024 * 1024) -> list[str]:
        """The next complete lines, without their ends; none when nothing was added."""
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
