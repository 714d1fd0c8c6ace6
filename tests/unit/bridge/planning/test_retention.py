"""Which spans are said to have expired unread."""

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
from bridge.planning.retention import Expiry, LogTtl

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
    """The seconds that are named."""
    return tuple(60 * int(minute) + float(second) for minute, second in re.findall(r"T00:(\d\d):([\d.]+)Z", words))


def test_what_was_read_in_time_is_not_mentioned() -> None:
    """However far the edge gets when nothing is worked, and where nothing expires."""
    expiry = Expiry()
    assert expiry.done(edge(100)) == ""
    expiry.works(batch(100, 110))
    assert expiry.done(edge(100)) == ""
    assert expiry.done(edge(200)) == ""
    expiry.works(batch(210, 220))
    assert expiry.done(None) == ""
    assert expiry.ahead() == ""


def test_spans_are_said_once_and_not_all_the_time() -> None:
    """What comes within half a minute is said together; nothing is left out, or said again."""
    expiry = Expiry()
    said = []
    for second in range(0, 100, 10):
        expiry.works(batch(second, second + 10))
        said.append(span(expiry.done(edge(second + 4))))
    assert [one for one in said if one] == [(0, 4), (10, 34), (40, 64), (70, 94)]
    expiry.works(batch(90, 91))
    assert expiry.done(edge(94)) == ""


def test_rest_is_said_at_the_end() -> None:
    """What was kept back, once."""
    expiry = Expiry()
    assert expiry.rest() == ""
    expiry.works(batch(0, 10))
    assert span(expiry.done(edge(4))) == (0, 4)
    expiry.works(batch(10, 20))
    assert expiry.done(edge(14)) == ""
    assert span(expiry.rest()) == (10, 14)
    assert expiry.rest() == ""


def test_what_is_kept_back_does_not_wait_for_an_edge_that_has_gone_back() -> None:
    """As that of a log that was made anew does: it takes long to where it was."""
    expiry = Expiry()
    expiry.works(batch(1000, 1010))
    assert span(expiry.done(edge(1004))) == (1000, 1004)
    expiry.works(batch(1010, 1020))
    assert expiry.done(edge(1014)) == ""
    assert span(expiry.done(edge(104))) == (1010, 1014)


def test_what_was_said_with_the_whole_is_not_said_again() -> None:
    """What was kept back when the reading gets ahead of the edge is in those words."""
    expiry = Expiry(at_edge=True)
    expiry.works(batch(0, 10))
    assert span(expiry.done(edge(4))) == (0, 4)
    expiry.works(batch(10, 20))
    assert expiry.done(edge(14)) == ""
    assert span(expiry.ahead()) == (0, 14)
    assert expiry.rest() == ""
    expiry.works(batch(60, 70))
    assert span(expiry.done(edge(64))) == (60, 64)


def test_first_micro_batch_at_the_edge_is_excused_in_silence() -> None:
    """What lies behind it is not, nor where a job comes back to that place."""
    silent, loud = Expiry(at_edge=True, in_silence=True), Expiry(at_edge=True)
    for expiry, spans in ((silent, (10, 15)), (loud, (0, 15))):
        expiry.works(batch(0, 10))
        assert span(expiry.done(edge(15))) == spans
        assert expiry.goes_on
        assert span(expiry.ahead()) == spans
        assert not expiry.goes_on
        assert expiry.ahead() == ""


def test_silence_at_the_edge_says_nothing_when_it_is_left() -> None:
    """Where nothing was passed over but what is excused."""
    expiry = Expiry(at_edge=True, in_silence=True)
    expiry.works(batch(0, 10))
    assert expiry.done(edge(5)) == ""
    assert expiry.ahead() == ""


def test_accepted_gap_counts_with_what_follows_it() -> None:
    """It was said itself; what was said before it is another matter."""
    expiry = Expiry()
    expiry.works(batch(0, 10))
    assert span(expiry.done(edge(5))) == (0, 5)
    expiry.accepted(Gap("", edge(10), edge(100), at(10)))
    expiry.works(batch(10, 110))
    assert expiry.done(edge(105)) == ""
    expiry.works(batch(110, 200))
    assert span(expiry.done(edge(131))) == (100, 131)
    words = expiry.ahead()
    assert span(words) == (10, 131)
    # [105, 110) was read before it expired.
    assert "116.0 s" in words


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 90)), min_size=1, max_size=12), st.integers(0, 50))
def test_every_expired_instant_is_reported_once(steps: list[tuple[int, int]], start_s: int) -> None:
    """Whatever the micro-batches and the edge: reported spans ascend, do not overlap and cover what expired unread."""
    expiry = Expiry()
    expired: set[int] = set()
    spans: list[tuple[float, ...]] = []
    reached_s, edge_s = start_s, 0
    for length_s, moved_s in steps:
        expiry.works(batch(reached_s, reached_s + length_s))
        edge_s += moved_s
        expired |= set(range(reached_s, edge_s))
        spans.append(span(expiry.done(edge(edge_s))))
        reached_s += length_s
    spans = [one for one in (*spans, span(expiry.rest())) if one]
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
        # Raised: what was written before keeps its TTL.
        ([(0, HOUR), (100, DAY)], 200, 200 - HOUR),
        ([(0, HOUR), (100, DAY)], 100 + HOUR, 100),
        ([(0, HOUR), (100, DAY)], 99 + DAY, 100),
        ([(0, HOUR), (100, DAY)], 200 + DAY, 200),
        ([(0, HOUR), (100, 0)], 99 * DAY, 100),
        # Lowered: nothing more is lost than before, until the first change from after it expires.
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
    """The edge of what may have expired, after the option was changed."""
    ttl = LogTtl()
    for at_s, ttl_s in seen:
        now_us = UnixMicros(at_s * SECOND)
        ttl = ttl.seen(ttl_s, now_us, looked_us=now_us)
    assert ttl.oldest_us(UnixMicros(now_s * SECOND)) == (None if oldest_s is None else oldest_s * SECOND)


def test_ttl_that_was_changed_while_nobody_looked_may_have_been_so_for_long() -> None:
    """What is sure is that a longer one holds by now, and that a shorter one did not before the last look."""
    known = LogTtl().seen(DAY, UnixMicros(0), LOG)
    shorter = known.seen(HOUR, UnixMicros(9 * HOUR * SECOND), LOG)
    assert shorter.oldest_us(UnixMicros(9 * HOUR * SECOND)) == 8 * HOUR * SECOND
    # Beside a look two hours ago: what was written before that is still there.
    seen = known.seen(HOUR, UnixMicros(9 * HOUR * SECOND), LOG, looked_us=UnixMicros(7 * HOUR * SECOND))
    assert seen.oldest_us(UnixMicros(9 * HOUR * SECOND)) == 8 * HOUR * SECOND
    assert seen.oldest_us(UnixMicros(8 * HOUR * SECOND)) == -16 * HOUR * SECOND
    longer = shorter.seen(DAY, UnixMicros(20 * HOUR * SECOND), LOG)
    assert longer.oldest_us(UnixMicros(21 * HOUR * SECOND)) == 20 * HOUR * SECOND
    assert longer.seen(0, UnixMicros(0), UUID(int=2)).oldest_us(UnixMicros(99 * DAY * SECOND)) is None
