"""Records as they are consumed: values, which whoever diagnose at them can make too; no import of the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One consumed record.

    Attributes:
        timestamp_ms: the broker's or producer's timestamp, ms since the epoch.
    """

    topic: str
    partition: int
    kafka_offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int
