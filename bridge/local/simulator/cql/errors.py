"""What can be wrong with a statement."""

from __future__ import annotations


class CqlError(ValueError):
    """A statement that can't be understood or carried out here; the message names it, and the place where it fails."""
