"""Which of a lane's streams are read: those that have rows, where few have any."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BridgeError, RefusedError, RetriableError
from bridge.model.changes import LogLayout, Page
from bridge.model.cursors import Window
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMicros
from bridge.quiet_streams import TOGETHER, CountedStreams, QuietStreams
from tests.unit.bridge.log_pages import RawLog

WINDOW = Window(UnixMicros(0), UnixMicros(1_000_000))
STREAMS = [StreamId.build(Token(token), 0, 0) for token in range(-7 * 100, 7 * 100, 7)]


class Log:
    """Says which streams have rows, or fails: at once, or in its answer."""

    def __init__(
        self, busy: Collection[StreamId] = (), *, error: BridgeError | None = None, at_once: bool = False
    ) -> None:
        self.busy, self.error, self.at_once = set(busy), error, at_once
        self.asked: list[list[StreamId]] = []

    def with_rows(self, streams: Sequence[StreamId], window: Window) -> Future[Collection[StreamId]]:
        assert window == WINDOW
        self.asked.append(list(streams))
        if self.error is not None and self.at_once:
            raise self.error
        future: Future[Collection[StreamId]] = Future()
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result([one for one in streams if one in self.busy])
        return future


def quiet(with_rows: int = 0) -> QuietStreams:
    """As it is when that many of a hundred streams had rows."""
    known = QuietStreams()
    known.note(100, with_rows)
    return known


@given(
    tokens=st.sets(st.integers(MIN_TOKEN, MAX_TOKEN), max_size=80),
    picks=st.sets(st.integers(0, 79)),
    in_flight=st.integers(1, 100),
    with_rows=st.integers(0, 25),
)
def test_no_stream_with_rows_is_left_out(tokens: set[int], picks: set[int], in_flight: int, with_rows: int) -> None:
    """Each is asked about once, with neighbours; those that have rows are read, and of a lane that asks only those."""
    streams = sorted(StreamId.build(Token(token), 0, 0) for token in tokens)
    busy = {one for number, one in enumerate(streams) if number in picks}
    log = Log(busy)
    found = quiet(with_rows).to_read(log, streams, WINDOW, in_flight)
    if len(streams) < 4:
        assert (found, log.asked) == (streams, [])
        return
    assert set(found) == busy
    assert len(found) == len(busy)
    asked = [one for group in log.asked for one in group]
    assert asked == sorted(streams, key=lambda one: one.token)
    assert all(len(group) == min(TOGETHER, in_flight) for group in log.asked[:-1])
    assert 1 <= len(log.asked[-1]) <= min(TOGETHER, in_flight)


@pytest.mark.parametrize(("with_rows", "asks"), [(0, True), (25, True), (26, False), (100, False)])
def test_streams_are_asked_first_where_few_had_rows(with_rows: int, asks: bool) -> None:
    """Also a second time: what is not read again and again is the same as it was."""
    known, log = quiet(with_rows), Log(STREAMS[:1])
    for _ in range(2):
        assert known.to_read(log, STREAMS, WINDOW, 32) == (STREAMS[:1] if asks else STREAMS)
    assert bool(log.asked) == asks


def test_nothing_is_known_at_first() -> None:
    """All are read then."""
    log = Log()
    assert QuietStreams().to_read(log, STREAMS, WINDOW, 32) == STREAMS
    assert log.asked == []


def test_a_lane_without_streams_is_no_lane_with_rows() -> None:
    """It says nothing of the others, and does not divide by zero."""
    known, log = QuietStreams(), Log()
    known.note(0, 0)
    assert known.to_read(log, [], WINDOW, 32) == []


def test_closed_streams_are_read_to_their_end() -> None:
    """There is no end to ask about: it is one read of each."""
    log = Log()
    assert quiet().to_read(log, STREAMS, Window(UnixMicros(0), None), 32) == STREAMS
    assert log.asked == []


@pytest.mark.parametrize(("in_flight", "under_way"), [(1, 1), (15, 15), (16, 16), (31, 16), (32, 32), (100, 96)])
def test_streams_under_way_are_bounded(in_flight: int, under_way: int) -> None:
    """By streams, not by requests: the server reads each."""
    most = 0

    class Slow(Log):
        """Answers a request when it is waited for."""

        def with_rows(self, streams: Sequence[StreamId], window: Window) -> Future[Collection[StreamId]]:
            nonlocal most
            answer = super().with_rows(streams, window)
            waiting.append((answer, len(streams)))
            most = max(most, sum(size for _, size in waiting))
            return answer

    waiting: list[tuple[Future[Any], int]] = []
    log = Slow(STREAMS)
    taken = Future.result

    def result(self: Future[Any], timeout: float | None = None) -> Any:
        waiting[:] = [one for one in waiting if one[0] is not self]
        return taken(self, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Future, "result", result)
        assert set(quiet().to_read(log, STREAMS, WINDOW, in_flight)) == set(STREAMS)
    assert most == under_way


@pytest.mark.parametrize("at_once", [True, False])
def test_a_server_that_refuses_the_question_is_not_asked_again(caplog: pytest.LogCaptureFixture, at_once: bool) -> None:
    """All streams are read then; it is said once, with the server's words."""
    log = Log(error=RefusedError("at most 10 partitions in an IN"), at_once=at_once)
    known = quiet()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert known.to_read(log, STREAMS, WINDOW, 32) == STREAMS
            known.note(100, 0)
    # One more may have been sent before the first answer came.
    assert len(log.asked) <= 2
    (record,) = caplog.records
    assert "one by one: at most 10 partitions in an IN" in record.getMessage()


@pytest.mark.parametrize("at_once", [True, False])
def test_a_server_that_fails_fails_the_attempt(at_once: bool) -> None:
    """As at a page: nothing is taken for silent because nobody answered."""
    log = Log(error=RetriableError("timed out"), at_once=at_once)
    with pytest.raises(RetriableError, match="timed out"):
        quiet().to_read(log, STREAMS, WINDOW, 32)


def test_streams_with_rows_are_counted_once() -> None:
    """Whatever number of pages they have; and entries are those of what is behind."""
    columns = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation")
    rows = {STREAMS[0]: [(b"a", b"b", b"c", b"d")] * 3, STREAMS[1]: [], STREAMS[2]: [(b"a", b"b", b"c", b"d")]}
    log = RawLog(LogLayout.of(columns, []), rows, 2)
    seen: list[tuple[StreamId, int]] = []

    def take(stream: StreamId, page: Page) -> list[Any]:
        seen.append((stream, len(page.rows)))
        return [stream]

    counted = CountedStreams(take)
    for stream, state in [(STREAMS[0], None), (STREAMS[0], b"\0\0\0\2"), (STREAMS[1], None), (STREAMS[2], None)]:
        page = log.page(stream, WINDOW, page_rows=2, paging_state=state).result()
        assert counted(stream, page) == [stream]
    assert counted.count == 2
    assert [count for _, count in seen] == [2, 1, 0, 1]
