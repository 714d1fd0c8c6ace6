"""Reading a lane: streams are merged page by page, with bounded memory and load."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import RetriableError
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, sort_key, timeuuid_of
from bridge.reading.lane_merge import ColumnsChangedError, read_lane
from bridge.reading.request_limit import RequestLimiter
from schemas.cql.types import CqlType, NativeType

COLUMNS = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation")
LAYOUT = LogLayout.of(COLUMNS, [])
WINDOW = Window(UnixMicros(0), UnixMicros(1_000_000))


class Log:
    """A log in memory; requests are answered at once, or by the test."""

    def __init__(
        self, rows: dict[StreamId, list[Cells]], *, columns: tuple[str, ...] = COLUMNS, held: bool = False
    ) -> None:
        self.rows, self.columns, self.held = rows, columns, held
        self.asked: list[tuple[StreamId, int]] = []
        self.open: list[tuple[Future[Page], Page]] = []

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        start = int.from_bytes(paging_state or b"", "big")
        rows = self.rows[stream]
        end = start + page_rows
        page = Page(self.columns, rows[start:end], end.to_bytes(4, "big") if end < len(rows) else None)
        self.asked.append((stream, start))
        future: Future[Page] = Future()
        if self.held:
            self.open.append((future, page))
        else:
            future.set_result(page)
        return future


def stream(number: int) -> StreamId:
    return StreamId(number.to_bytes(16, "big"))


def log_row(of: StreamId, us: int, seq: int = 0, low: int = 0) -> Cells:
    return (of.raw, timeuuid_of(UnixMicros(us), low.to_bytes(8, "big")), seq.to_bytes(4, "big"), b"\x01")


def place(row: Cells) -> tuple[bytes, bytes, bytes]:
    return sort_key(row[1] or b""), row[0] or b"", row[2] or b""


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(1, 4)), max_size=60),
        min_size=1,
        max_size=6,
    ),
    st.integers(10, 60),
)
def test_streams_are_merged_in_lane_order(shape: list[list[tuple[int, int, int]]], page_rows: int) -> None:
    """For any page breaks, rows arrive once each, in the order of time, stream and number."""
    rows = {}
    for number, groups in enumerate(shape, start=1):
        of = stream(number)
        sizes = {(us, low): size for us, low, size in groups}
        made = [log_row(of, us, seq, low) for (us, low), size in sizes.items() for seq in range(size)]
        rows[of] = sorted(made, key=place)
    read = [
        row
        for chunk in read_lane(Log(rows), list(rows), WINDOW, LAYOUT, page_rows=page_rows, in_flight=3)
        for _, row in chunk
    ]
    assert read == sorted((row for of in rows.values() for row in of), key=place)


def test_group_over_a_page_break_stays_together_beside_an_equal_time() -> None:
    """A group of another stream with the same timeuuid does not split it."""
    one, two = stream(1), stream(2)
    rows = {one: [log_row(one, 5, seq) for seq in range(75)], two: [log_row(two, 5, seq) for seq in range(75)]}
    read = [
        r for chunk in read_lane(Log(rows), [two, one], WINDOW, LAYOUT, page_rows=50, in_flight=2) for _, r in chunk
    ]
    assert [row[0] for row in read] == [one.raw] * 75 + [two.raw] * 75


def test_earlier_rows_do_not_split_another_streams_group_of_equal_time() -> None:
    """The earlier rows are delivered before the group."""
    one, two = stream(1), stream(2)
    rows = {
        one: [log_row(one, 5, seq) for seq in range(75)],
        two: [log_row(two, 4), *(log_row(two, 5, seq) for seq in range(20))],
    }
    read = [
        r for chunk in read_lane(Log(rows), [one, two], WINDOW, LAYOUT, page_rows=50, in_flight=2) for _, r in chunk
    ]
    assert [row[0] for row in read] == [two.raw] + [one.raw] * 75 + [two.raw] * 20


def test_requests_under_way_are_bounded() -> None:
    """The next request is sent when one is answered."""
    rows = {stream(n): [log_row(stream(n), n)] for n in range(1, 10)}
    log = Log(rows, held=True)
    gate = RequestLimiter(log, 3)
    asked = [gate.page(of, WINDOW, page_rows=50) for of in rows]
    assert len(log.asked) == 3
    for done in range(9):
        future, page = log.open[done]
        future.set_result(page)
        assert len(log.asked) == min(9, 4 + done)
    assert all(future.done() for future in asked)


@pytest.mark.parametrize("raised", [False, True])
def test_requests_that_fail_at_once_fail_their_futures(raised: bool) -> None:
    """However many are queued: if the cluster goes away, reading ends and does not hang."""

    class Gone(Log):
        def page(
            self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
        ) -> Future[Page]:
            if len(self.asked) < 16:
                return super().page(stream, window, page_rows=page_rows, paging_state=paging_state)
            if raised:
                raise RetriableError("gone")
            future: Future[Page] = Future()
            future.set_exception(RetriableError("gone"))
            return future

    log = Gone({stream(n): [] for n in range(1, 2001)}, held=True)
    gate = RequestLimiter(log, 8)
    asked = [gate.page(of, WINDOW, page_rows=50) for of in log.rows]
    for future, page in log.open[:8]:
        future.set_result(page)
    for future, page in log.open[8:]:
        future.set_result(page)
    assert all(future.done() for future in asked)
    assert sum(future.exception() is not None for future in asked) == 2000 - 16


def test_many_streams_share_the_memory() -> None:
    """The more streams, the fewer rows per request."""

    class Sizes(Log):
        def page(
            self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
        ) -> Future[Page]:
            sizes.add(page_rows)
            return super().page(stream, window, page_rows=page_rows, paging_state=paging_state)

    sizes: set[int] = set()
    for count in (1, 1000, 3_000):
        rows: dict[StreamId, list[Cells]] = {stream(n): [] for n in range(1, count + 1)}
        assert list(read_lane(Sizes(rows), list(rows), WINDOW, LAYOUT, page_rows=2000, in_flight=8)) == []
    assert sizes == {2000, 100, 50}


def test_other_columns_are_noticed() -> None:
    """A page with other columns than the encoder expects is not misread."""
    rows = {stream(1): [log_row(stream(1), 1)]}
    with pytest.raises(ColumnsChangedError, match="columns changed"):
        list(read_lane(Log(rows, columns=(*COLUMNS[:3], "v")), list(rows), WINDOW, LAYOUT, page_rows=50, in_flight=1))


@pytest.mark.parametrize("rows", [[], [log_row(stream(1), 1)]])
def test_other_types_are_noticed(rows: list[Cells]) -> None:
    """The same names with another type are other columns, also on a page without rows: values would be misread."""
    known = replace(
        LAYOUT, types=(NativeType("blob"), NativeType("timeuuid"), NativeType("int"), NativeType("tinyint"))
    )

    class Typed(Log):
        def page(
            self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
        ) -> Future[Page]:
            future = super().page(stream, window, page_rows=page_rows, paging_state=paging_state)
            future.set_result(replace(self.open[-1][1], types=types))
            return future

    def read() -> list[list[Cells]]:
        log = Typed({stream(1): rows}, held=True)
        chunks = read_lane(log, [stream(1)], WINDOW, known, page_rows=50, in_flight=1)
        return [[row for _, row in chunk] for chunk in chunks]

    types: tuple[CqlType, ...] = known.types
    assert read() == ([rows] if rows else [])
    types = (*known.types[:3], NativeType("text"))
    with pytest.raises(ColumnsChangedError, match=f"stream {stream(1)}: the log's columns changed"):
        read()


def test_reading_that_ends_early_leaves_no_requests_behind() -> None:
    """Queued requests are not sent any more: the lane is read again, and the load would double."""
    rows = {stream(n): [log_row(stream(n), n)] for n in range(1, 10)}
    log = Log(rows, columns=(*COLUMNS[:3], "v"), held=True)
    gate = RequestLimiter(log, 2)
    for of in rows:
        gate.page(of, WINDOW, page_rows=50)
    gate.close()
    for future, page in log.open:
        future.set_result(page)
    assert len(log.asked) == 2


def test_failure_of_a_page_ends_the_reading() -> None:
    """With the error of the failed request."""
    log = Log({stream(1): []}, held=True)
    reading = read_lane(_Failing(log), [stream(1)], WINDOW, LAYOUT, page_rows=50, in_flight=1)
    with pytest.raises(RetriableError, match="timed out"):
        next(reading)


class _Failing:
    def __init__(self, log: Log) -> None:
        self._log = log

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        future: Future[Page] = Future()
        future.set_exception(RetriableError("timed out"))
        return future


def test_caller_is_called_while_a_page_is_awaited() -> None:
    """It may have a transaction open. What was merged before is with it by then."""
    log = Log({stream(1): [log_row(stream(1), us) for us in range(80)]}, held=True)
    seen: list[str] = []

    def answer_second_time() -> None:
        seen.append("wait")
        if seen[-2:] == ["wait", "wait"]:
            future, page = log.open.pop(0)
            future.set_result(page)

    chunks = read_lane(log, list(log.rows), WINDOW, LAYOUT, page_rows=50, in_flight=1, while_waiting=answer_second_time)
    for chunk in chunks:
        seen += [f"{len(chunk)} rows"]
    assert seen == ["wait", "wait", "50 rows", "wait", "wait", "30 rows"]


def test_request_that_fails_while_it_is_awaited_is_raised() -> None:
    """Whatever its error is: a timeout is no reason to wait on."""
    log = Log({stream(1): [log_row(stream(1), 1)]}, held=True)
    reading = read_lane(
        log,
        [stream(1)],
        WINDOW,
        LAYOUT,
        page_rows=50,
        in_flight=1,
        while_waiting=lambda: log.open[0][0].set_exception(TimeoutError("no answer")),
    )
    with pytest.raises(TimeoutError, match="no answer"):
        next(reading)
