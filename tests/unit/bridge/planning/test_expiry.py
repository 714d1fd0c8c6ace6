"""Which spans are said to have expired unread."""

from __future__ import annotations

import re

from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.planning.expiry import Expiry
from bridge.planning.retention import Gap

SECOND = 1_000_000


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
