"""Runs of plain changes as the page encoder returns them."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.encoding.group_encoder import EncodedRun
from bridge.model.position import timeuuid_in
from bridge.model.times import sort_key


def run_of(keys: Iterable[bytes], values: Iterable[bytes], positions: Iterable[bytes]) -> EncodedRun:
    """Return a run of equally many key bodies, value bodies and positions."""
    records = zip(keys, values, positions, strict=True)
    return EncodedRun([(sort_key(timeuuid_in(position)), key, value, position) for key, value, position in records])
