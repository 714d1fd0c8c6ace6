"""What Kafka's own files say of a topic: who wrote which batch, and how each transaction ended. No consumer sees that.

The form of a record batch is Kafka's, version 2 (https://kafka.apache.org/documentation/#recordbatch).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.stack.stack import LocalStack

_HEAD = struct.Struct(">qiibIhiqqqhii")
_OVERHEAD = 12
"""Offset and length, which the length does not count."""

_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKERS = {0: "abort", 1: "commit"}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of records, or the marker that ends a transaction.

    Attributes:
        producer: its producer's id and epoch; the same for all that a transaction writes.
        records: how many there are.
        marker: "commit" or "abort"; None for records.
    """

    partition: int
    producer: tuple[int, int]
    is_transactional: bool
    records: int
    marker: str | None


def batches(stack: LocalStack, topic: str) -> list[Batch]:
    """Those of a topic, partition after partition, in the order of their offsets."""
    found: list[Batch] = []
    for folder in sorted((stack.folder / "data" / "kafka" / "log").glob(f"{topic}-*")):
        name, _, partition = folder.name.rpartition("-")
        if name == topic:
            for segment in sorted(folder.glob("*.log")):
                found += _of_segment(segment, int(partition))
    return found


def _of_segment(segment: Path, partition: int) -> Iterator[Batch]:
    raw, at = segment.read_bytes(), 0
    while at + _HEAD.size <= len(raw):
        (_, length, _, magic, _, attributes, _, _, _, producer, epoch, _, count) = _HEAD.unpack_from(raw, at)
        if not length:  # what Kafka has set aside for the segment ends here
            return
        assert magic == 2, f"{segment}: batches of version {magic}"
        marker = None
        if attributes & _CONTROL:
            # Of its one record all lengths and deltas are one byte each, and so are two of the key's four.
            body = raw[at + _HEAD.size : at + _OVERHEAD + length]
            marker = _MARKERS[struct.unpack_from(">hh", body, 5)[1]]
        yield Batch(partition, (producer, epoch), bool(attributes & _TRANSACTIONAL), count, marker)
        at += _OVERHEAD + length
