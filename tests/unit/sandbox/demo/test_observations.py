from __future__ import annotations

import pytest

from bridge.model.times import UnixMicros, UnixMillis
from sandbox.demo.report.observations import GenerationMark, Observations, Point, latency_summary, percentile

BEGIN_S = 1_700_000_000


def us(second: float) -> UnixMicros:
    return UnixMicros(int((BEGIN_S + second) * 1_000_000))


def observed(*pairs: tuple[float, float]) -> Observations:
    """What was written and arrived at these seconds."""
    seen = Observations(begin_us=us(0))
    for written_s, arrived_s in pairs:
        seen.written_us.append(us(written_s))
        seen.arrive(us(arrived_s), us(written_s))
    return seen


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (1, 1), (10, 1), (11, 2), (50, 5), (99, 10), (100, 10)])
def test_percentile_is_the_nearest_rank(percent: int, expected: int) -> None:
    """A percentile is the smallest value that this share of the values does not exceed, in any order of the values."""
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], percent) == expected


def test_no_percentile_of_nothing() -> None:
    """Nothing has no percentile; a summary says null."""
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 50)
    assert latency_summary([]) == {"p50": None, "p90": None, "p95": None, "p99": None, "max": None}


def test_latencies_in_milliseconds() -> None:
    """From the write timestamp to the arrival."""
    assert observed((1, 3.5), (2, 3.5)).latencies_ms == [2500.0, 1500.0]


def test_calm_latencies_leave_out_changes_of_generation() -> None:
    """What was written soon after a start, or before a late publication was digested, is left out."""
    seen = observed((9, 10), (10, 17), (16.9, 18), (17, 18), (20, 30), (28, 30), (31.5, 32))
    ahead = GenerationMark(UnixMillis(us(10) // 1000), us(6))
    late = GenerationMark(UnixMillis(us(20) // 1000), us(24))
    seen.generations = {ahead.start_ms: ahead, late.start_ms: late}
    assert seen.calm_latencies_ms(7_000_000) == [1000.0, 1000.0, 500.0]
    assert (ahead.late_s, late.late_s) == (-4.0, 4.0)


def test_rate_counts_empty_seconds() -> None:
    """A second in which nothing came is a zero, not a hole."""
    seen = observed((0.1, 1.0), (0.9, 3.2), (2.0, 3.9))
    assert seen.rate(seen.written_us) == [Point(0.5, 2), Point(1.5, 0), Point(2.5, 1)]
    assert seen.rate(seen.arrived_us) == [Point(1.5, 1), Point(2.5, 0), Point(3.5, 2)]
    assert seen.rate([]) == []


def test_lag_goes_up_and_back_to_zero() -> None:
    """It counts what was written and has not arrived."""
    lag = dict(observed((0.0, 2.0), (1.0, 2.0)).lag(step_s=0.5))
    assert [lag[at] for at in (0.0, 0.5, 1.0, 1.5, 2.0)] == [1, 1, 2, 2, 0]
    assert Observations().lag() == []


def test_latency_over_time_is_by_the_moment_of_the_write() -> None:
    """Each step's percentile is of the changes that were written in it."""
    points = observed((0.1, 1.1), (0.2, 3.2), (1.1, 1.6)).latency(50, step_s=1.0)
    assert points == [Point(0.5, 1.0), Point(1.5, 0.5)]
    assert Observations().latency(50) == []


def test_changes_per_second() -> None:
    """Arrivals over the time between the first and the last."""
    assert observed((0, 1), (0, 2), (0, 3)).changes_per_s == 1.5
    assert observed((0, 1)).changes_per_s == 0.0
    assert observed((0, 1), (0, 1)).changes_per_s == 0.0
