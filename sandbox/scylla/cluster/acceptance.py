"""Finds the generation of a write, and the writes that ScyllaDB refuses (vnodes, spec section 5.5). Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from bridge.errors import BridgeError
from bridge.model.times import UnixMicros

LEEWAY_US: Final = 5_000_000
"""A coordinator accepts timestamps this far ahead of its clock, and older ones this long after a switch, in us."""


class SimulatorRefusal(BridgeError):  # noqa: N818  # a server's answer, not a failure of ours
    """The simulated server refuses the write, with ScyllaDB's message. Nothing was written."""


def accepting_generation(starts_us: Sequence[UnixMicros], write_us: UnixMicros, now_us: UnixMicros) -> int:
    """Return the index of the generation that a write belongs to.

    Args:
        starts_us: starts of the generations that the coordinator knows, ascending.
        write_us: the write's timestamp.
        now_us: the coordinator's clock.

    Raises:
        SimulatorRefusal: the timestamp is too far ahead, or belongs to a generation that is closed, or to none.
    """
    if write_us > now_us + LEEWAY_US:
        raise SimulatorRefusal(
            'cdc: attempted to get a stream "from the future" '
            f"(write timestamp {write_us}, node's clock {now_us}, leeway {LEEWAY_US} us)"
        )
    settled_us = now_us - LEEWAY_US
    # Every coordinator has switched at least to this generation; older ones accept no writes.
    oldest = bisect_right(starts_us, settled_us) - 1
    if write_us <= settled_us and _is_past(starts_us, oldest, write_us, now_us):
        raise SimulatorRefusal(
            'cdc: attempted to get a stream "from the past" '
            f"(write timestamp {write_us}, node's clock {now_us}, leeway {LEEWAY_US} us)"
        )
    found = bisect_right(starts_us, write_us) - 1
    if found < max(oldest, 0):
        raise SimulatorRefusal(f"cdc::metadata::get_stream: could not find any CDC stream for timestamp {write_us}")
    return found


def _is_past(starts_us: Sequence[UnixMicros], oldest: int, write_us: UnixMicros, now_us: UnixMicros) -> bool:
    if oldest < 0 or write_us < starts_us[oldest]:
        return True
    return bisect_right(starts_us, now_us) - 1 > oldest
