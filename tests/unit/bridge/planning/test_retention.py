"""TTLs of a log, and reports of changes that expired unread."""

from __future__ import annotations

import re
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.data_loss import Gap
from bridge.planning.retention import ExpiredChanges, LogTtl

SECOND = 1_000_000
DAY, HOUR = 86_400, 3_600
LOG = UUID(int=1)


def at(seconds: float) -> Cursor:
    return Cursor(UnixMillis(0), UnixMicros(int(seconds * SECOND)))


def batch(since_s: float, until_s: float) -> PlannedBatch:
    return PlannedBatch(at(since_s), at(until_s), Layout(1, at(0)))


def edge(seconds: float) -> UnixMicros:
    return at(seconds).time_us


def span(words: str) -> tuple[float, ...]:
    """Return the seconds that a report names."""
    return tuple(60 * int(minute) + float(second) for minute, second in re.findall(r"T00:(\d\d):([\d.]+)Z", words))


def test_changes_that_were_read_in_time_are_not_reported() -> None:
    """Even if the edge moves on while nothing is read, or changes do not expire."""
    expired_changes = ExpiredChanges()
    assert expired_changes.end_batch(edge(100)) == ""
    expired_changes.begin_batch(batch(100, 110))
    assert expired_changes.end_batch(edge(100)) == ""
    assert expired_changes.end_batch(edge(200)) == ""
    expired_changes.begin_batch(batch(210, 220))
    assert expired_changes.end_batch(None) == ""
    assert expired_changes.leave_edge() == ""


def test_spans_are_reported_together_and_once() -> None:
    """Spans within half a minute are reported together; none is left out or repeated."""
    expired_changes = ExpiredChanges()
    said = []
    for second in range(0, 100, 10):
        expired_changes.begin_batch(batch(second, second + 10))
        said.append(span(expired_changes.end_batch(edge(second + 4))))
    assert [one for one in said if one] == [(0, 4), (10, 34), (40, 64), (70, 94)]
    expired_changes.begin_batch(batch(90, 91))
    assert expired_changes.end_batch(edge(94)) == ""


def test_rest_is_reported_at_the_end() -> None:
    """The spans that were held back are reported once."""
    expired_changes = ExpiredChanges()
    assert expired_changes.report_rest() == ""
    expired_changes.begin_batch(batch(0, 10))
    assert span(expired_changes.end_batch(edge(4))) == (0, 4)
    expired_changes.begin_batch(batch(10, 20))
    assert expired_changes.end_batch(edge(14)) == ""
    assert span(expired_changes.report_rest()) == (10, 14)
    assert expired_changes.report_rest() == ""


def test_held_back_spans_do_not_wait_for_an_edge_that_went_back() -> None:
    """The edge of a log that was created again needs long to come back to where it was."""
    expired_changes = ExpiredChanges()
    expired_changes.begin_batch(batch(1000, 1010))
    assert span(expired_changes.end_batch(edge(1004))) == (1000, 1004)
    expired_changes.begin_batch(batch(1010, 1020))
    assert expired_changes.end_batch(edge(1014)) == ""
    assert span(expired_changes.end_batch(edge(104))) == (1010, 1014)


def test_spans_in_the_summary_are_not_reported_again() -> None:
    """The summary includes spans that were held back."""
    expired_changes = ExpiredChanges(at_edge=True)
    expired_changes.begin_batch(batch(0, 10))
    assert span(expired_changes.end_batch(edge(4))) == (0, 4)
    expired_changes.begin_batch(batch(10, 20))
    assert expired_changes.end_batch(edge(14)) == ""
    assert span(expired_changes.leave_edge()) == (0, 14)
    assert expired_changes.report_rest() == ""
    expired_changes.begin_batch(batch(60, 70))
    assert span(expired_changes.end_batch(edge(64))) == (60, 64)


def test_first_micro_batch_at_the_edge_is_not_reported() -> None:
    """Later ones are, and so is the first one of a job that comes back there."""
    silent, loud = ExpiredChanges(at_edge=True, skips_first_batch=True), ExpiredChanges(at_edge=True)
    for expired_changes, spans in ((silent, (10, 15)), (loud, (0, 15))):
        expired_changes.begin_batch(batch(0, 10))
        assert span(expired_changes.end_batch(edge(15))) == spans
        assert expired_changes.is_behind_edge
        assert span(expired_changes.leave_edge()) == spans
        assert not expired_changes.is_behind_edge
        assert expired_changes.leave_edge() == ""


def test_no_summary_if_nothing_was_reported() -> None:
    """Only changes that are not reported have expired."""
    expired_changes = ExpiredChanges(at_edge=True, skips_first_batch=True)
    expired_changes.begin_batch(batch(0, 10))
    assert expired_changes.end_batch(edge(5)) == ""
    assert expired_changes.leave_edge() == ""


def test_summary_includes_an_accepted_gap() -> None:
    """It does not include what was reported before the gap."""
    expired_changes = ExpiredChanges()
    expired_changes.begin_batch(batch(0, 10))
    assert span(expired_changes.end_batch(edge(5))) == (0, 5)
    expired_changes.accept_gap(Gap("", edge(10), edge(100), at(10)))
    expired_changes.begin_batch(batch(10, 110))
    assert expired_changes.end_batch(edge(105)) == ""
    expired_changes.begin_batch(batch(110, 200))
    assert span(expired_changes.end_batch(edge(131))) == (100, 131)
    words = expired_changes.leave_edge()
    assert span(words) == (10, 131)
    # [105, 110) was read before it expired.
    assert "116.0 s" in words


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), min_size=1, max_size=12), st.integers(0, 50))
def test_every_expired_instant_is_reported_once(steps: list[tuple[int, int]], start_s: int) -> None:
    """For any micro-batches and edge, reported spans ascend, do not overlap, and cover what expired unread."""
    expired_changes = ExpiredChanges()
    expired: set[int] = set()
    spans: list[tuple[float, ...]] = []
    reached_s, edge_s = start_s, 0
    for length_s, moved_s in steps:
        expired_changes.begin_batch(batch(reached_s, reached_s + length_s))
        edge_s += moved_s
        expired |= set(range(reached_s, edge_s))
        spans.append(span(expired_changes.end_batch(edge(edge_s))))
        reached_s += length_s
    spans = [one for one in (*spans, span(expired_changes.report_rest())) if one]
    assert all(since_s < until_s for since_s, until_s in spans)
    assert all(first[1] <= second[0] for first, second in pairwise(spans))
    reported = {second for since_s, until_s in spans for second in range(int(since_s), int(until_s))}
    assert expired <= reported
    assert not reported or (min(reported), max(reported)) == (min(expired), max(expired))


@pytest.mark.parametrize(
    ("seen", "now_s", "oldest_s"),
    [
        ([], 0, None),
        ([(0, 0)], 9 * DAY, None),
        ([(0, DAY)], 0, -DAY),
        ([(0, DAY), (50, DAY)], 60, 60 - DAY),
        # A raised TTL: earlier changes keep their own.
        ([(0, HOUR), (100, DAY)], 200, 200 - HOUR),
        ([(0, HOUR), (100, DAY)], 100 + HOUR, 100),
        ([(0, HOUR), (100, DAY)], 99 + DAY, 100),
        ([(0, HOUR), (100, DAY)], 200 + DAY, 200),
        ([(0, HOUR), (100, 0)], 99 * DAY, 100),
        # A lowered TTL: the edge stays until the first change from after the ALTER TABLE expires.
        ([(0, DAY), (100, HOUR)], 100 + HOUR, 100 + HOUR - DAY),
        ([(0, DAY), (100, HOUR)], 101 + HOUR, 101),
        ([(0, 0), (100, HOUR)], 100 + HOUR, None),
        ([(0, 0), (100, HOUR)], 200 + HOUR, 200),
        ([(0, DAY), (100, HOUR), (200, DAY)], 250 + HOUR, 200),
    ],
)
def test_changes_keep_the_ttl_that_they_were_written_under(
    seen: list[tuple[int, int]], now_s: int, oldest_s: int | None
) -> None:
    """The retention edge after the option was changed."""
    ttl = LogTtl()
    for at_s, ttl_s in seen:
        now_us = UnixMicros(at_s * SECOND)
        ttl = ttl.observe(ttl_s, now_us, last_look_us=now_us)
    assert ttl.edge_us(UnixMicros(now_s * SECOND)) == (None if oldest_s is None else oldest_s * SECOND)


def test_time_of_a_ttl_change_is_bounded_by_the_looks() -> None:
    """A longer TTL holds from this look on, a shorter one from the last look on."""
    known = LogTtl().observe(DAY, UnixMicros(0), LOG)
    shorter = known.observe(HOUR, UnixMicros(9 * HOUR * SECOND), LOG)
    assert shorter.edge_us(UnixMicros(9 * HOUR * SECOND)) == 8 * HOUR * SECOND
    # If the last look was two hours ago, earlier changes still exist.
    seen = known.observe(HOUR, UnixMicros(9 * HOUR * SECOND), LOG, last_look_us=UnixMicros(7 * HOUR * SECOND))
    assert seen.edge_us(UnixMicros(9 * HOUR * SECOND)) == 8 * HOUR * SECOND
    assert seen.edge_us(UnixMicros(8 * HOUR * SECOND)) == -16 * HOUR * SECOND
    longer = shorter.observe(DAY, UnixMicros(20 * HOUR * SECOND), LOG)
    assert longer.edge_us(UnixMicros(21 * HOUR * SECOND)) == 20 * HOUR * SECOND
    assert longer.observe(0, UnixMicros(0), UUID(int=2)).edge_us(UnixMicros(99 * DAY * SECOND)) is None
