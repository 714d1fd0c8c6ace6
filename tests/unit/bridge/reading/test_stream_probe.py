"""The probe for empty streams."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BridgeError, RefusedError, RetriableError
from bridge.model.log_rows import LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMicros
from bridge.reading.stream_probe import ROWS_PER_PROBE, STREAMS_PER_PROBE, EmptyStreamProbe, StreamCounter
from tests.unit.bridge.log_pages import RawLog, raw

WINDOW = Window(UnixMicros(0), UnixMicros(1_000_000))
STREAMS = [StreamId.build(Token(token), 0, 0) for token in range(-7 * 100, 7 * 100, 7)]


class Log:
    """Answers probes, or fails: at the call or in the future."""

    def __init__(
        self, rows: Mapping[StreamId, int] | None = None, *, error: Exception | None = None, at_once: bool = False
    ) -> None:
        self.rows, self.error, self.at_once = dict(rows or {}), error, at_once
        self.asked: list[list[StreamId]] = []
        self.stopped: set[StreamId] = set()

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        assert window == WINDOW
        self.asked.append(list(streams))
        if self.error is not None and self.at_once:
            raise self.error
        future: Future[Page] = Future()
        if self.error is not None:
            future.set_exception(self.error)
            return future
        # The order does not matter.
        found = [(one.raw,) for one in reversed(streams) for _ in range(self.rows.get(one, 0))]
        # ScyllaDB returns a paging state with every full page, and sometimes with a short or empty one.
        state = b"more" if len(found) >= page_rows or self.stopped & set(streams) else None
        future.set_result(Page(("cdc$stream_id",), raw(found[:page_rows], 1), state))
        return future


def quiet(with_rows: int = 0) -> EmptyStreamProbe:
    """A probe after a reading in which this many of a hundred streams had rows."""
    known = EmptyStreamProbe()
    known.record_result("ks.t", 100, with_rows)
    return known


@given(
    tokens=st.sets(st.integers(MIN_TOKEN, MAX_TOKEN), max_size=80),
    picks=st.dictionaries(st.integers(0, 79), st.sampled_from([1, 2, 40, ROWS_PER_PROBE - 1, ROWS_PER_PROBE, 500])),
    stops=st.sets(st.integers(0, 79), max_size=3),
    in_flight=st.integers(1, 100),
    with_rows=st.integers(0, 25),
)
def test_no_stream_with_rows_is_left_out(
    tokens: set[int], picks: Mapping[int, int], stops: set[int], in_flight: int, with_rows: int
) -> None:
    """Each stream is probed once, together with its neighbours.

    All streams of an incomplete answer are read. The server's paging state tells whether an answer is complete, not its
    number of rows.
    """
    streams = sorted(StreamId.build(Token(token), 0, 0) for token in tokens)
    busy = {one: picks[number] for number, one in enumerate(streams) if number in picks}
    log = Log(busy)
    log.stopped = {one for number, one in enumerate(streams) if number in stops}
    found = quiet(with_rows).streams_to_read(log, streams, WINDOW, in_flight)
    if len(streams) < 4 or in_flight < 4:
        assert (found, log.asked) == (streams, [])
        return
    assert [one for group in log.asked for one in group] == sorted(streams, key=lambda one: one.token)
    assert all(len(group) == min(STREAMS_PER_PROBE, in_flight) for group in log.asked[:-1])
    assert 1 <= len(log.asked[-1]) <= min(STREAMS_PER_PROBE, in_flight)
    expected: set[StreamId] = set()
    for group in log.asked:
        whole = sum(busy.get(one, 0) for one in group) < ROWS_PER_PROBE and not log.stopped & set(group)
        expected |= {one for one in group if one in busy} if whole else set(group)
    assert busy.keys() <= expected
    assert set(found) == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize(("with_rows", "asks"), [(0, True), (25, True), (26, False), (100, False)])
def test_streams_are_probed_if_few_had_rows(with_rows: int, asks: bool) -> None:
    """Again the second time: a probe alone changes nothing."""
    known, log = quiet(with_rows), Log({STREAMS[0]: 2})
    for _ in range(2):
        assert known.streams_to_read(log, STREAMS, WINDOW, 32) == (STREAMS[:1] if asks else STREAMS)
    assert bool(log.asked) == asks


def test_first_reading_has_no_probe() -> None:
    """All streams are read."""
    log = Log()
    assert EmptyStreamProbe().streams_to_read(log, STREAMS, WINDOW, 32) == STREAMS
    assert log.asked == []


def test_lane_without_streams_changes_nothing() -> None:
    """If many streams of the previous lane had rows, the next lane is read without a probe."""
    known, log = quiet(100), Log()
    assert known.streams_to_read(log, [], WINDOW, 32) == []
    known.record_result("ks.t", 0, 0)
    assert known.streams_to_read(log, STREAMS, WINDOW, 32) == STREAMS
    assert log.asked == []


def test_closed_streams_are_read_to_their_end() -> None:
    """A window without an end is not probed: it needs one read of each stream."""
    log = Log()
    assert quiet().streams_to_read(log, STREAMS, Window(UnixMicros(0), None), 32) == STREAMS
    assert log.asked == []


@pytest.mark.parametrize(("in_flight", "under_way"), [(4, 4), (15, 15), (16, 16), (31, 16), (32, 32), (100, 96)])
def test_streams_under_way_are_bounded(in_flight: int, under_way: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound counts streams, not requests. Here a request is under way until its result is awaited."""
    waiting: list[tuple[Future[Page], int]] = []
    most = 0

    class Watched(Log):
        def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
            nonlocal most
            answer = super().streams_of_rows(streams, window, page_rows=page_rows)
            waiting.append((answer, len(streams)))
            most = max(most, sum(size for _, size in waiting))
            return answer

    taken = Future.result

    def result(self: Future[Any], timeout: float | None = None) -> Any:
        waiting[:] = [one for one in waiting if one[0] is not self]
        return taken(self, timeout)

    monkeypatch.setattr(Future, "result", result)
    assert set(quiet().streams_to_read(Watched(dict.fromkeys(STREAMS, 1)), STREAMS, WINDOW, in_flight)) == set(STREAMS)
    assert most == under_way


def test_few_streams_are_not_probed() -> None:
    """Probes of three streams would not save enough requests."""
    log = Log()
    assert quiet().streams_to_read(log, STREAMS, WINDOW, 3) == STREAMS
    assert log.asked == []


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [RefusedError("too many in an IN"), RetriableError("timed out"), BridgeError("no")])
def test_all_streams_are_read_if_a_probe_fails(
    caplog: pytest.LogCaptureFixture, error: BridgeError, at_once: bool
) -> None:
    """Then without a probe once, twice, 4 times ... and 100 times at most; this is logged once.

    The kind of error does not matter: ScyllaDB refuses a long `IN` with the same message as a failing node.
    """
    log = Log(error=error, at_once=at_once)
    known = quiet()
    asked_at = []
    with caplog.at_level(logging.WARNING):
        for reading in range(330):
            before = len(log.asked)
            assert known.streams_to_read(log, STREAMS, WINDOW, 16) == STREAMS
            if len(log.asked) > before:
                asked_at.append(reading)
            known.record_result("ks.t", 100, 0)
        assert asked_at == [0, 2, 5, 10, 19, 36, 69, 134, 235]
        (record,) = caplog.records
        assert record.getMessage().startswith("ks.t: the probe for streams with rows failed")
        assert record.getMessage().endswith(str(error))
        # After a success everything starts again.
        log.error = None
        while len(log.asked) == len(asked_at):
            found = known.streams_to_read(log, STREAMS, WINDOW, 16)
            known.record_result("ks.t", 100, 0)
        assert found == known.streams_to_read(log, STREAMS, WINDOW, 16) == []
        log.error = error
        known.streams_to_read(log, STREAMS, WINDOW, 16)
        known.record_result("ks.t", 100, 0)
    assert len(caplog.records) == 2


def test_failed_probe_is_logged_only_if_reading_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    """For a dropped table both fail, and the error of the reading is enough; it is not logged after a later reading."""
    known = quiet()
    with caplog.at_level(logging.WARNING):
        assert known.streams_to_read(Log(error=RefusedError("unconfigured table")), STREAMS, WINDOW, 16) == STREAMS
        assert known.streams_to_read(Log(), STREAMS, WINDOW, 16) == []
        known.record_result("ks.t", 100, 0)
    assert caplog.records == []


def test_requests_under_way_are_awaited_if_a_probe_fails() -> None:
    """Pages are requested next, and the limit on requests must hold."""
    answers: list[Future[Page]] = []

    class Failing(Log):
        def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
            answers.append(Future())
            if len(answers) == 2:
                Timer(0.05, lambda: answers[0].set_exception(RetriableError("away"))).start()
                Timer(0.15, lambda: answers[1].set_result(Page((), [], None))).start()
            return answers[-1]

    assert quiet().streams_to_read(Failing(), STREAMS, WINDOW, 32) == STREAMS
    assert [answer.done() for answer in answers] == [True, True]


@pytest.mark.parametrize(("rows", "pays"), [(1, True), (ROWS_PER_PROBE, False)])
def test_probes_stop_if_they_exclude_nothing(rows: int, pays: bool) -> None:
    """If one stream of each sixteen fills an answer, few streams have rows and all of them are read.

    Then there is no probe once, twice, 4 times ... and 100 times at most.
    """
    log, known, asked = Log(dict.fromkeys(STREAMS[::STREAMS_PER_PROBE], rows)), quiet(), 0
    for _ in range(330):
        found = known.streams_to_read(log, STREAMS, WINDOW, 32)
        assert set(found) == (log.rows.keys() if pays else set(STREAMS))
        asked, before = len(log.asked), asked
        assert asked - before in ((13,) if pays else (13, 0))
        known.record_result("ks.t", len(STREAMS), len(log.rows))
    assert asked == 13 * (330 if pays else 9)


def test_unexpected_error_is_raised() -> None:
    """No stream counts as empty because of an answer that is not understood."""
    log = Log(error=ValueError("no such page"))
    with pytest.raises(ValueError, match="no such page"):
        quiet().streams_to_read(log, STREAMS, WINDOW, 32)


def test_streams_with_rows_are_counted_once() -> None:
    """However many pages they have; the entries are passed on unchanged."""
    columns = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation")
    rows = {STREAMS[0]: [(b"a", b"b", b"c", b"d")] * 3, STREAMS[1]: [], STREAMS[2]: [(b"a", b"b", b"c", b"d")]}
    log = RawLog(LogLayout.of(columns, []), rows, 2)
    seen: list[tuple[StreamId, int]] = []

    def take(stream: StreamId, page: Page) -> list[Any]:
        seen.append((stream, len(page.rows)))
        return [stream]

    counted = StreamCounter(take)
    for stream, state in [(STREAMS[0], None), (STREAMS[0], b"\0\0\0\2"), (STREAMS[1], None), (STREAMS[2], None)]:
        page = log.page(stream, WINDOW, page_rows=2, paging_state=state).result()
        assert counted(stream, page) == [stream]
    assert counted.count == 2
    assert [count for _, count in seen] == [2, 1, 0, 1]
