"""The errors of the local stack."""


class LocalStackError(Exception):
    """The local stack cannot do what was asked; the message says why and what to do about it."""
