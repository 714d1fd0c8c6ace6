"""Reads the streams of one lane and merges them in `cdc$time` order, with bounded memory and bounded load.

Every stream has at most two pages here: the one being consumed and the next, asked for ahead. Rows leave in rounds: all
that lie at or before the earliest end of a page which has a successor are complete and can be sorted and handed on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from operator import itemgetter
from threading import Lock
from typing import Final, Protocol

from bridge.errors import RetriableError
from bridge.model.changes import Cells, LogLayout, Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId
from bridge.model.times import sort_key
from schemas.cql_types import CqlType
from schemas.log_columns import META_PREFIX
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


class _Stream:
    """One stream's buffered rows, each with its place in the lane's order."""

    __slots__ = ("keys", "pending", "rows", "stream", "taken")

    def __init__(self, stream: StreamId) -> None:
        self.stream = stream
        self.keys: list[bytes] = []
        self.rows: list[Cells] = []
        self.taken = 0
        self.pending: Future[Page] | None = None


def read_lane(
    pages: LogPages,
    streams: Sequence[StreamId],
    window: Window,
    layout: LogLayout,
    *,
    page_rows: int,
    in_flight: int,
) -> Iterator[list[Cells]]:
    """The rows of a window of several streams, in chunks that follow each other in lane order.

    Lane order is `cdc$time` as the server orders it, then stream id, then `cdc$batch_seq_no`.

    Args:
        pages: where pages come from.
        streams: the lane's streams.
        window: what to read.
        layout: the columns that are expected; every page is held against it, also one without rows.
        page_rows: most rows asked for at once; fewer when many streams share the memory.
        in_flight: most requests under way at a time.

    Raises:
        ColumnsChangedError: a page has other columns or types than `layout`. What was yielded before stands.
        RetriableError: the server failed.
    """
    rows_each = max(_FEWEST_PAGE_ROWS, min(page_rows, _BUFFERED_ROWS // (2 * max(1, len(streams)))))
    gate = BoundedPages(pages, in_flight)
    try:
        yield from _merged(gate, streams, window, layout, rows_each)
    finally:
        gate.close()


def _merged(
    gate: BoundedPages, streams: Sequence[StreamId], window: Window, layout: LogLayout, rows_each: int
) -> Iterator[list[Cells]]:
    reading = _first_pages(gate, streams, window, layout, rows_each)
    while reading:
        unfinished = [one for one in reading if one.pending is not None]
        bound = min((one.keys[-1] for one in unfinished), default=None)
        chunk: list[tuple[bytes, Cells]] = []
        for one in reading:
            upto = len(one.keys) if bound is None else bisect_right(one.keys, bound, lo=one.taken)
            chunk.extend(zip(one.keys[one.taken : upto], one.rows[one.taken : upto], strict=True))
            one.taken = upto
        # Stable, so rows of one group stay in batch_seq_no order.
        chunk.sort(key=_first)
        yield [row for _, row in chunk]
        for one in unfinished:
            _advance(one, gate, window, layout, rows_each)
        reading = [one for one in reading if one.taken < len(one.keys) or one.pending is not None]


_first: Final = itemgetter(0)


def _first_pages(
    pages: LogPages, streams: Sequence[StreamId], window: Window, layout: LogLayout, rows_each: int
) -> list[_Stream]:
    asked = [(_Stream(stream), pages.page(stream, window, page_rows=rows_each)) for stream in streams]
    reading: list[_Stream] = []
    for one, future in asked:
        one.pending = future
        _advance(one, pages, window, layout, rows_each)
        if one.keys:
            reading.append(one)
    return reading


def _advance(one: _Stream, pages: LogPages, window: Window, layout: LogLayout, rows_each: int) -> None:
    # A page may come back empty and still have a successor.
    while one.pending is not None and one.taken == len(one.keys):
        _take(one, one.pending.result(), pages, window, layout, rows_each)


def _take(one: _Stream, page: Page, pages: LogPages, window: Window, layout: LogLayout, rows_each: int) -> None:
    # Pages share these tuples (the adapter keeps what it parsed), so that this is a comparison of identities mostly.
    if page.columns != layout.columns or page.types != layout.types:
        raise ColumnsChangedError(
            f"stream {one.stream}: the log's columns changed from "
            f"{columns_in_words(layout.columns, layout.types)} to {columns_in_words(page.columns, page.types)}"
        )
    time_at = layout.time
    suffix = one.stream.raw
    one.keys = [sort_key(row[time_at] or b"") + suffix for row in page.rows]
    one.rows = list(page.rows)
    one.taken = 0
    one.pending = None
    if page.paging_state is not None:
        one.pending = pages.page(one.stream, window, page_rows=rows_each, paging_state=page.paging_state)


def columns_in_words(columns: Sequence[str], types: Sequence[CqlType]) -> str:
    """The base table's columns in a result of the log, with their types where these are known."""
    if len(types) != len(columns):
        return ", ".join(columns)
    pairs = zip(columns, types, strict=True)
    return ", ".join(f"{name} {describe(kind)}" for name, kind in pairs if not name.startswith(META_PREFIX))
