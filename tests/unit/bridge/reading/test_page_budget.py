"""The memory of a lane, in bytes of the pages that were returned and not yet consumed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, sort_key, timeuuid_of
from bridge.reading import page_budget
from bridge.reading.lane_merge import read_lane
from bridge.reading.page_budget import PageBudget, page_bytes
from tests.unit.bridge.log_pages import raw

COLUMNS = ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "v")
LAYOUT = LogLayout.of(COLUMNS, [])
WINDOW = Window(UnixMicros(0), UnixMicros(1_000_000_000))
SERVERS_PAGE_BYTES = 1 << 16
ROOM_BYTES = 4 << 20

Widths = Callable[[int, int], int]
"""The size of a row's value in bytes, by the numbers of the stream and of the row in it."""


class Log:
    """A log that answers at once; its pages end at a size limit, as a server's do.

    Attributes:
        asked: the row limit of each request.
        buffered: bytes of the returned pages whose rows were not all consumed.
        most: the maximum of `buffered`.
    """

    def __init__(
        self, streams: int, rows: int, width: Widths, page_bytes: int = SERVERS_PAGE_BYTES, group: int = 1
    ) -> None:
        self.streams = [StreamId(number.to_bytes(16, "big")) for number in range(1, streams + 1)]
        self.asked: list[int] = []
        self.buffered = self.most = 0
        self._rows, self._width, self._page_bytes, self._group = rows, width, page_bytes, group
        self._left: dict[bytes, list[list[int]]] = {one.raw: [] for one in self.streams}

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        start = int.from_bytes(paging_state or b"", "big")
        number = int.from_bytes(stream.raw, "big")
        rows: list[Cells] = []
        size = 0
        while len(rows) < page_rows and start + len(rows) < self._rows and size < self._page_bytes:
            at = start + len(rows)
            # The streams write in turns.
            time = timeuuid_of(UnixMicros(at // self._group * len(self.streams) + number), stream.raw[8:])
            size += self._width(number, at)
            seq = (at % self._group).to_bytes(4, "big")
            rows.append((stream.raw, time, seq, b"\x02", bytes(self._width(number, at))))
        end = start + len(rows)
        page = Page(COLUMNS, raw(rows, len(COLUMNS)), end.to_bytes(4, "big") if end < self._rows else None)
        self.asked.append(page_rows)
        self._left[stream.raw].append([len(rows), page_bytes(page)])
        self.buffered += page_bytes(page)
        self.most = max(self.most, self.buffered)
        future: Future[Page] = Future()
        future.set_result(page)
        return future

    def consume(self, rows: Sequence[Cells]) -> None:
        """Count rows as consumed; a page is released with its last row."""
        for row in rows:
            pages = self._left[row[0] or b""]
            pages[0][0] -= 1
            if not pages[0][0]:
                self.buffered -= pages.pop(0)[1]


def drain(log: Log, *, page_rows: int = 2000) -> list[Cells]:
    found: list[Cells] = []
    for chunk in read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=page_rows, in_flight=8):
        rows: list[Cells] = [row for _, row in chunk]  # type: ignore[misc]  # they are rows' entries all
        log.consume(rows)
        found += rows
    return found


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "_MAX_BYTES", ROOM_BYTES)
    monkeypatch.setattr(page_budget, "_MIN_PAGE_BYTES", 2 << 10)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("streams", "rows", "width"), [(8, 1000, 1000), (60, 90, 10_000), (300, 60, 2_000)])
def test_wide_rows_stay_within_the_bytes(streams: int, rows: int, width: int) -> None:
    """For any number of streams and any size of the server's pages."""
    log = Log(streams, rows, lambda *_: width)
    assert len(drain(log)) == streams * rows
    assert log.buffered == 0
    assert log.most <= ROOM_BYTES + SERVERS_PAGE_BYTES


@pytest.mark.usefixtures("_small")
def test_one_page_of_each_stream_is_always_held() -> None:
    """Rows larger than the budget are read one at a time, one of each stream."""
    width = ROOM_BYTES // 10
    log = Log(40, 3, lambda *_: width)
    assert len(drain(log)) == 120
    assert log.most <= 41 * (width + 200)
    assert set(log.asked[1:]) == {1}


@pytest.mark.usefixtures("_small")
def test_groups_over_many_pages_stay_within_the_bytes() -> None:
    """Then many pages of a stream end with the same time."""
    log = Log(60, 90, lambda *_: 40_000, group=45)
    assert len(drain(log)) == 60 * 90
    assert log.buffered == 0
    assert log.most <= ROOM_BYTES + SERVERS_PAGE_BYTES


@pytest.mark.usefixtures("_small")
def test_rows_that_become_wide_are_noticed() -> None:
    """If wide rows follow narrow ones, the next requests ask for fewer rows."""
    log = Log(64, 200, lambda _, number: 10 if number < 100 else 8_000)
    assert len(drain(log, page_rows=100)) == 64 * 200
    assert log.most <= 2 * ROOM_BYTES


def test_narrow_rows_are_limited_by_number_and_requested_ahead() -> None:
    """Each stream's next page is under way before it is needed."""
    log = Log(8, 500, lambda *_: 100)
    next(read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=200, in_flight=64))
    assert log.asked == [200] * 2 * 8


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8),
    st.integers(1, 40),
    st.integers(200, 20_000),
    st.integers(0, 2**32),
)
def test_rows_arrive_in_order_for_any_budget(widths: list[int], rows: int, room: int, seed: int) -> None:
    """Every row once, in lane order, even if no page ever finds room."""
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_budget, "_MAX_BYTES", room)
        patch.setattr(page_budget, "_MIN_PAGE_BYTES", random.choice((1, 100, 1000)))
        log = Log(len(widths), rows, lambda stream, _: widths[stream - 1], page_bytes=1000)
        found = drain(log, page_rows=random.choice((1, 3, 50)))
    assert found == sorted(found, key=lambda row: (sort_key(row[1] or b""), row[0], row[2]))
    assert len({row[:3] for row in found}) == len(found) == rows * len(widths)
    assert log.buffered == 0


@pytest.mark.usefixtures("_small")
def test_consumed_pages_make_room() -> None:
    """Even after many times the budget, each stream's next page is under way before it is needed."""
    log = Log(4, 4000, lambda *_: 2_000, page_bytes=1 << 20)
    ahead = []
    for chunk in read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=100, in_flight=8):
        log.consume([row for _, row in chunk])  # type: ignore[misc]  # they are rows' entries all
        ahead.append(sum(len(pages) for pages in log._left.values()))
    assert len(ahead) > 4 * ROOM_BYTES / (100 * 2_000)
    # The last pages have no successor.
    assert min(ahead[: -2 * len(log.streams)]) > len(log.streams)


@pytest.mark.usefixtures("_small")
def test_pages_under_way_count() -> None:
    """A page counts with the row width of recent pages, until it has arrived or failed."""
    open_: list[Future[Page]] = []

    class Held:
        def page(self, *_: object, **__: object) -> Future[Page]:
            open_.append(Future())
            return open_[-1]

    memory = PageBudget(Held(), 4, 2000)
    wide = Page(COLUMNS, raw([(b"", b"", b"", b"", bytes(1 << 20))], len(COLUMNS)), None)
    for _ in range(4):
        memory.reserve()
        memory.page(StreamId(bytes(16)), WINDOW, page_rows=2000)
    assert memory.has_room()
    open_[0].set_result(wide)
    assert not memory.has_room()
    open_[1].set_exception(ValueError())
    open_[2].set_exception(ValueError())
    assert memory.has_room()
    open_[3].set_result(wide)
    memory.release(page_bytes(wide))
    assert memory.has_room()
