"""Names under which schemas are registered: the registry's TopicName strategy."""

from __future__ import annotations

from typing import NewType

Subject = NewType("Subject", str)
"""Name in the registry of one line of schema versions."""


def key_subject(topic: str) -> Subject:
    """Return the subject of a topic's record keys: ``<topic>-key``."""
    return Subject(f"{topic}-key")


def value_subject(topic: str) -> Subject:
    """Return the subject of a topic's record values: ``<topic>-value``."""
    return Subject(f"{topic}-value")
