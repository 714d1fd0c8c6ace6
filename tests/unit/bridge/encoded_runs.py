"""Runs of plain changes as a table's loops make them."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.encoding.group_encoder import EncodedRun
from bridge.model.times import sort_key

_TIME = slice(16, 32)


def run_of(keys: Iterable[bytes], values: Iterable[bytes], positions: Iterable[bytes]) -> EncodedRun:
    """A run of these key bodies, value bodies and positions, as many of each."""
    records = zip(keys, values, positions, strict=True)
    return EncodedRun([(sort_key(position[_TIME]), key, value, position) for key, value, position in records])
