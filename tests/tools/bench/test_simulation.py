"""The simulated day, a few minutes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.simulation.run import resolving, run
from bench.simulation.scenario import Size, Violation

SMALL = Size(tables=2, minutes=12, streams=64, change_every_s=20, interval_s=4, rows_per_minute=60, killed=0.1)
BOUNDED = replace(SMALL, requests_per_s=16)


@pytest.mark.parametrize(("size", "seed"), [(SMALL, 0), (BOUNDED, 1)])
def test_invariants_hold(size: Size, seed: int) -> None:
    """Order, exactly once and nothing left out, over late generations, skewed clocks and killed jobs."""
    figures = run(size, seed)
    assert figures["generations"] == 37
    assert figures["rows"] > 1_000
    assert figures["deaths"] > 5
    # Published up to 40 s late, then confidence, leeway, clocks that are behind, and a micro-batch or two.
    assert figures["longest_stall_s"] < 60
    assert (figures["requests_per_s"] < 1.2 * 16) == (size is BOUNDED)  # a job that starts again begins to count again


def test_violations_are_noticed() -> None:
    """A reader without leeway and confidence window skips rows that come late into closed streams."""
    with pytest.raises(Violation):
        run(replace(SMALL, leeway_s=0, confidence_s=0), 1)


def test_memory_grows_with_the_streams_of_a_lane() -> None:
    """Twice the streams, twice the memory."""
    one, two = resolving(1 << 12, 4), resolving(1 << 13, 4)
    assert two["of_lane"] == 2 * one["of_lane"] == 1 << 11
    assert two["mib"] < 2.5 * max(one["mib"], 0.1)
