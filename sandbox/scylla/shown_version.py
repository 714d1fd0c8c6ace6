"""The version of ScyllaDB that the local CQL server shows, and what depends on it."""

from __future__ import annotations

from typing import Final, NamedTuple

from sandbox.writing_session import WritingSession

_VERSION: Final = "SELECT version FROM system.versions WHERE key = 'local'"


class ShownVersion(NamedTuple):
    """The first two numbers of a version."""

    major: int
    minor: int

    @property
    def has_tablets(self) -> bool:
        """Whether keyspaces may have tablets."""
        return self >= (6, 0)

    @property
    def captures_tablets(self) -> bool:
        """Whether tables with tablets may have CDC."""
        return self >= (2025, 4)

    @property
    def marks_copies(self) -> bool:
        """Whether a node marks in `system.cdc_local` that the generations of the older table are copied."""
        return self < (2026, 2)


NEWEST: Final = ShownVersion(2026, 2)


def shown_version(session: WritingSession) -> ShownVersion:
    """Return the version that the server shows; the newest if it shows none.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    rows = session.rows(_VERSION)
    return ShownVersion(*map(int, rows[0]["version"].split(".")[:2])) if rows else NEWEST
