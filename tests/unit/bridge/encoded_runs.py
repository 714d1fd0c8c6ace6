"""Runs of plain changes, as a table's loops would have made them."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.encoding import EncodedRun


def run_of(keys: Sequence[bytes], values: Sequence[bytes], positions: Sequence[bytes]) -> EncodedRun:
    """A run of these bodies at these positions (36 bytes each); whoever publishes it does not look at sort keys."""
    return EncodedRun([(b"", *one) for one in zip(keys, values, positions, strict=True)])
