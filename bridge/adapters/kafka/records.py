"""Consumed records as values. Imports no client, so that tests and tools can make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One consumed record.

    Attributes:
        kafka_offset: its offset in the partition.
        key: None for a record without a key.
        value: None for a tombstone.
        timestamp_ms: the broker's or producer's timestamp, in ms since the epoch.
    """

    topic: str
    partition: int
    kafka_offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int
