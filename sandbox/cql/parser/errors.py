"""What can be wrong with a statement."""

from __future__ import annotations


class CqlError(ValueError):
    """A statement that can't be understood or carried out here; the message names it, and the place where it fails.

    Attributes:
        at: where it fails, in characters from the text's beginning; None where it is the statement as a whole.
    """

    def __init__(self, message: str, *, at: int | None = None) -> None:
        """Take the words, and the place if there is one."""
        super().__init__(message)
        self.at = at
