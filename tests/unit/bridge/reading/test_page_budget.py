"""What a lane holds of its log, counted in bytes of the pages that were given out and not handed on."""

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
"""Number of a stream and of a row in it -> bytes of the row's value."""


class Log:
    """A log whose pages are answered at once, and end at some size as a server's do.

    Attributes:
        asked: rows asked for, request by request.
        buffered: bytes of the pages that were given out and whose rows were not all handed on.
        most: the most of that so far.
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
            # Streams write in turns.
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

    def handed_on(self, rows: Sequence[Cells]) -> None:
        """Count a page no more once all of its rows were among these."""
        for row in rows:
            pages = self._left[row[0] or b""]
            pages[0][0] -= 1
            if not pages[0][0]:
                self.buffered -= pages.pop(0)[1]


def drained(log: Log, *, page_rows: int = 2000) -> list[Cells]:
    found: list[Cells] = []
    for chunk in read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=page_rows, in_flight=8):
        rows: list[Cells] = [row for _, row in chunk]  # type: ignore[misc]  # they are rows' entries all
        log.handed_on(rows)
        found += rows
    return found


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_budget, "_MAX_BYTES", ROOM_BYTES)
    monkeypatch.setattr(page_budget, "_MIN_PAGE_BYTES", 2 << 10)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(("streams", "rows", "width"), [(8, 1000, 1000), (60, 90, 10_000), (300, 60, 2_000)])
def test_wide_rows_stay_within_the_bytes(streams: int, rows: int, width: int) -> None:
    """However many streams, and whatever a server's page may have."""
    log = Log(streams, rows, lambda *_: width)
    assert len(drained(log)) == streams * rows
    assert log.buffered == 0
    assert log.most <= ROOM_BYTES + SERVERS_PAGE_BYTES


@pytest.mark.usefixtures("_small")
def test_one_page_of_each_stream_is_held_whatever_it_takes() -> None:
    """Rows larger than there is room for are read one at a time, one of each stream."""
    width = ROOM_BYTES // 10
    log = Log(40, 3, lambda *_: width)
    assert len(drained(log)) == 120
    assert log.most <= 41 * (width + 200)
    assert set(log.asked[1:]) == {1}


@pytest.mark.usefixtures("_small")
def test_groups_over_many_pages_stay_within_the_bytes() -> None:
    """Page after page of a stream then ends with the same time."""
    log = Log(60, 90, lambda *_: 40_000, group=45)
    assert len(drained(log)) == 60 * 90
    assert log.buffered == 0
    assert log.most <= ROOM_BYTES + SERVERS_PAGE_BYTES


@pytest.mark.usefixtures("_small")
def test_rows_that_become_wide_are_noticed() -> None:
    """Where narrow rows are followed by wide ones, the next requests ask for fewer."""
    log = Log(64, 200, lambda _, number: 10 if number < 100 else 8_000)
    assert len(drained(log, page_rows=100)) == 64 * 200
    assert log.most <= 2 * ROOM_BYTES


def test_narrow_rows_are_asked_for_as_many_as_ever_and_ahead() -> None:
    """Small rows are bounded by their number alone; each stream's next page is under way before it is needed."""
    log = Log(8, 500, lambda *_: 100)
    next(read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=200, in_flight=64))
    assert log.asked == [200] * 2 * 8


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=8),
    st.integers(1, 40),
    st.integers(200, 20_000),
    st.integers(0, 2**32),
)
def test_rows_come_in_order_whatever_room_there_is(widths: list[int], rows: int, room: int, seed: int) -> None:
    """Every row once, in lane order, also where no page ever finds room."""
    random = Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_budget, "_MAX_BYTES", room)
        patch.setattr(page_budget, "_MIN_PAGE_BYTES", random.choice((1, 100, 1000)))
        log = Log(len(widths), rows, lambda stream, _: widths[stream - 1], page_bytes=1000)
        found = drained(log, page_rows=random.choice((1, 3, 50)))
    assert found == sorted(found, key=lambda row: (sort_key(row[1] or b""), row[0], row[2]))
    assert len({row[:3] for row in found}) == len(found) == rows * len(widths)
    assert log.buffered == 0


@pytest.mark.usefixtures("_small")
def test_what_was_handed_on_makes_room() -> None:
    """Also behind many times the bytes that fit, each stream's next page is under way before it is needed."""
    log = Log(4, 4000, lambda *_: 2_000, page_bytes=1 << 20)
    ahead = []
    for chunk in read_lane(log, log.streams, WINDOW, LAYOUT, page_rows=100, in_flight=8):
        log.handed_on([row for _, row in chunk])  # type: ignore[misc]  # they are rows' entries all
        ahead.append(sum(len(pages) for pages in log._left.values()))
    assert len(ahead) > 4 * ROOM_BYTES / (100 * 2_000)
    # The last pages have none behind them.
    assert min(ahead[: -2 * len(log.streams)]) > len(log.streams)


@pytest.mark.usefixtures("_small")
def test_what_is_under_way_is_reckoned_with() -> None:
    """A page counts as rows of the width that the last ones had, until it has come or failed."""
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
