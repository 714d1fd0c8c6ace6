"""How often a table is polled: within its share of requests, and less often while it is idle."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.planning.poll_rate import PollLimits, PollRate


@given(
    st.lists(st.tuples(st.floats(0, 20), st.booleans(), st.integers(0, 5000)), max_size=60),
    st.floats(1, 5000),
    st.floats(0, 30),
)
def test_no_span_of_time_has_more_requests_than_allowed(
    events: list[tuple[float, bool, int]], requests_per_s: float, idle_interval_s: float
) -> None:
    """From any micro-batch on, all but the last one fit into the time; no wait is endless."""
    now_s = 50.0
    poll_rate = PollRate(PollLimits(requests_per_s, idle_interval_s), now_s)
    planned: list[tuple[float, int]] = []
    for step_s, idle, streams in events:
        now_s += step_s
        if not idle:
            poll_rate.record_changes(now_s)
        wait_s = poll_rate.due_in_s(now_s, idle=idle)
        # Sums with a clock reading are rounded.
        assert wait_s <= max([idle_interval_s, *(many / requests_per_s for _, many in planned[-1:])]) + 1e-6
        if not wait_s:
            poll_rate.record_batch(now_s, streams)
            planned.append((now_s, streams))
    for place, (from_s, _) in enumerate(planned):
        # One rounding error for each micro-batch.
        done = sum(many for _, many in planned[place:-1])
        assert done <= (planned[-1][0] - from_s) * requests_per_s * (1 + 1e-9) + 1e-6


def test_a_change_after_silence_waits_half_as_long_at_most() -> None:
    """And no longer than is configured; what is not idle does not wait."""
    poll_rate = PollRate(PollLimits(1000, 10), 0)
    poll_rate.record_batch(100, 1)
    poll_rate.record_changes(96)
    assert poll_rate.due_in_s(100, idle=True) == pytest.approx(2)
    assert poll_rate.due_in_s(101, idle=True) == pytest.approx(1.5)
    assert poll_rate.due_in_s(104, idle=True) == 0
    poll_rate.record_batch(200, 1)
    assert poll_rate.due_in_s(204, idle=True) == pytest.approx(6)
    assert poll_rate.due_in_s(204, idle=False) == 0
