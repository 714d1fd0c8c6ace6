"""Reads the streams of one lane and merges them in `cdc$time` order, with bounded memory and bounded load.

Every stream has at most two pages here: the one being consumed and the next, asked for ahead. Rows leave in rounds: all
that lie at or before the earliest end of a page which has a successor are complete and can be sorted and handed on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from operator import itemgetter
from threading import Lock
from typing import Final, Protocol, TypeAlias

from bridge.errors import RetriableError
from bridge.model.changes import Cells, LogLayout, Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId
from bridge.model.times import sort_key
from schemas.cql_types import CqlType
from schemas.log_columns import META_PREFIX
from schemas.run_code import PlainChange
from schemas.table_changes import describe

_BUFFERED_ROWS: Final = 200_000
"""About how many rows a lane holds at most, up to 2,000 streams a lane."""
_FEWEST_PAGE_ROWS: Final = 50


class LogPages(Protocol):
    """Where pages come from. The future fails with RetriableError when another try may succeed."""

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """One page of a stream's rows in a window, in the server's order."""
        ...


class BoundedPages:
    """Passes requests on while fewer than `in_flight` of them are under way; the others wait their turn."""

    def __init__(self, pages: LogPages, in_flight: int) -> None:
        self._pages = pages
        self._free = in_flight
        self._sending = False
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """As the pages behind it, later."""
        result: Future[Page] = Future()

        def send() -> None:
            try:
                request = self._pages.page(stream, window, page_rows=page_rows, paging_state=paging_state)
            except Exception as error:  # noqa: BLE001  # it reaches whoever waits for the page
                result.set_exception(error)
                self._freed()
                return
            request.add_done_callback(arrived)

        def arrived(request: Future[Page]) -> None:
            error = request.exception()
            if error is None:
                result.set_result(request.result())
            else:
                result.set_exception(error)
            self._freed()

        with self._lock:
            self._waiting.append(send)
        self._send()
        return result

    def _freed(self) -> None:
        with self._lock:
            self._free += 1
        self._send()

    def _send(self) -> None:
        """Send what waits, as far as places are free; one thread at a time.

        A request that fails at once comes back here from within: it only frees its place then, and the loop goes on. As
        a recursion that would go as deep as there are requests.
        """
        with self._lock:
            if self._sending:
                return
            self._sending = True
        while True:
            with self._lock:
                if not self._free or not self._waiting:
                    self._sending = False
                    return
                self._free -= 1
                send = self._waiting.popleft()
            send()

    def close(self) -> None:
        """Forget the requests that were not sent yet: nobody waits for them any more."""
        with self._lock:
            self._waiting.clear()


class ColumnsChangedError(RetriableError):
    """A page has other columns, or of other types, than those that the encoder was compiled for."""


Entry: TypeAlias = tuple[bytes, Cells] | PlainChange
"""The sort key of a row's `cdc$time` with its cells, or with the record that was made of them already."""

TakePage: TypeAlias = Callable[[StreamId, Page], list[Entry]]
"""Makes entries of a page, one of each row, in the order of the rows."""


def as_rows(layout: LogLayout) -> TakePage:
    """Leaves a page's rows as they are."""
    time_at = layout.time

    def take(_stream: StreamId, page: Page) -> list[Entry]:
        # A key column of the log: the server has no row without it.
        return [(sort_key(row[time_at] or b""), row) for row in page.rows]

    return take


class _Stream:
    """One stream's buffered entries."""

    __slots__ = ("entries", "pending", "stream", "taken")

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.entries: list[Entry] = []
        self.taken = 0
        self.pending: Future[Page] | None = None

    def upto(self, key: bytes, stream: StreamId) -> int:
        """How many entries do not lie behind the place that a sort key and a stream make."""
        bisect = bisect_right if self.stream <= stream else bisect_left
        return bisect(self.entries, key, lo=self.taken, key=_first)


def read_lane(
    pages: LogPages,
    streams: Sequence[StreamId],
    window: Window,
    layout: LogLayout,
    *,
    page_rows: int,
    in_flight: int,
    take: TakePage | None = None,
) -> Iterator[list[Entry]]:
    """The rows of a window of several streams, in chunks that follow each other in lane order; none is empty.

    Lane order is `cdc$time` as the server orders it, then stream id, then `cdc$batch_seq_no`.

    Args:
        pages: where pages come from.
        streams: the lane's streams.
        window: what to read.
        layout: the columns that are expected; every page is held against it, also one without rows.
        page_rows: most rows asked for at once; fewer when many streams share the memory.
        in_flight: most requests under way at a time.
        take: what becomes of a page's rows before they are merged; by default nothing (`as_rows`).

    Raises:
        ColumnsChangedError: a page has other columns or types than `layout`. What was yielded before stands.
        RetriableError: the server failed.
    """
    rows_each = max(_FEWEST_PAGE_ROWS, min(page_rows, _BUFFERED_ROWS // (2 * max(1, len(streams)))))
    gate = BoundedPages(pages, in_flight)
    try:
        yield from _Lane(gate, window, layout, rows_each, take or as_rows(layout)).merged(streams)
    finally:
        gate.close()


_first: Final = itemgetter(0)


class _Lane:
    """The streams of one lane that are read together."""

    def __init__(self, pages: LogPages, window: Window, layout: LogLayout, rows_each: int, take: TakePage) -> None:
        self._pages = pages
        self._window = window
        self._layout = layout
        self._rows_each = rows_each
        self._take_page = take

    def merged(self, streams: Sequence[StreamId]) -> Iterator[list[Entry]]:
        # By their ids, so that a stable sort leaves what has the same time in the order of the streams.
        reading = self._begin(sorted(streams))
        while reading:
            unfinished = [one for one in reading if one.pending is not None]
            bound = min(((one.entries[-1][0], one.stream) for one in unfinished), default=None)
            chunk: list[Entry] = []
            for one in reading:
                upto = len(one.entries) if bound is None else one.upto(*bound)
                chunk += one.entries[one.taken : upto]
                one.taken = upto
            # Stable, so rows of one group stay in batch_seq_no order, too.
            chunk.sort(key=_first)
            yield chunk
            for one in unfinished:
                self._advance(one)
            reading = [one for one in reading if one.taken < len(one.entries) or one.pending is not None]

    def _begin(self, streams: Sequence[StreamId]) -> list[_Stream]:
        reading = [_Stream(stream) for stream in streams]
        for one in reading:
            one.pending = self._ask(one, None)
        for one in reading:
            self._advance(one)
        return [one for one in reading if one.entries]

    def _ask(self, one: _Stream, paging_state: bytes | None) -> Future[Page]:
        return self._pages.page(one.stream, self._window, page_rows=self._rows_each, paging_state=paging_state)

    def _advance(self, one: _Stream) -> None:
        # A page may come back empty and still have a successor.
        while one.pending is not None and one.taken == len(one.entries):
            self._take(one, one.pending.result())

    def _take(self, one: _Stream, page: Page) -> None:
        layout = self._layout
        # Pages share these tuples (the adapter keeps what it parsed): mostly a comparison of identities.
        if page.columns != layout.columns or page.types != layout.types:
            raise ColumnsChangedError(
                f"stream {one.stream}: the log's columns changed from "
                f"{columns_in_words(layout.columns, layout.types)} to {columns_in_words(page.columns, page.types)}"
            )
        # Asked for first, so that it is under way meanwhile.
        one.pending = None if page.paging_state is None else self._ask(one, page.paging_state)
        one.entries = self._take_page(one.stream, page)
        one.taken = 0


def columns_in_words(columns: Sequence[str], types: Sequence[CqlType]) -> str:
    """The base table's columns in a result of the log, with their types where these are known."""
    if len(types) != len(columns):
        return ", ".join(columns)
    pairs = zip(columns, types, strict=True)
    return ", ".join(f"{name} {describe(kind)}" for name, kind in pairs if not name.startswith(META_PREFIX))
