"""The error of an invalid statement."""

from __future__ import annotations


class CqlError(ValueError):
    """The simulator cannot parse or run a statement. The message names the cause.

    Attributes:
        at: position of the error in characters from the text's beginning; None if it is the statement as a whole.
    """

    def __init__(self, message: str, *, at: int | None = None) -> None:
        """Take the message and the position."""
        super().__init__(message)
        self.at = at
