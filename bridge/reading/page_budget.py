"""Bounds the memory of a lane: how many rows a request asks for, and whether a page is requested ahead.

The merge needs one page of each stream, so these pages are always requested. All further pages wait for room. The size
of a page is known when it arrives. Until then it is estimated from the row width of recent pages. Before the first page
arrives, the server's own limit bounds it: ScyllaDB ends a page at about 1 MiB, however many rows are requested.
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import Final

from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.raw_rows import RawRows
from bridge.model.streams import StreamId
from bridge.reading.ports import LogPages

_MAX_ROWS: Final = 200_000
"""About how many rows a lane holds at most, with up to 2,000 streams. Small rows need more memory than their bytes."""
_MIN_PAGE_ROWS: Final = 50
"""The row limit makes no page shorter than this."""
_MAX_BYTES: Final = 64 << 20
"""About how many bytes of rows a lane holds at most, with up to 2,000 streams and rows no larger than a page."""
_MIN_PAGE_BYTES: Final = 32 << 10
"""The byte limit makes no page shorter than this: a request takes as long as some ten rows."""
_FIRST_PAGES_SHARE: Final = 0.75
"""The share of `_MAX_BYTES` for one page of each stream; the rest is for pages that are requested ahead."""
_DECAY: Final = 7 / 8
"""The weight of all earlier pages, relative to a new page, in the estimate of the row width."""


class PageBudget:
    """Requests pages with as many rows as fit into a lane's memory.

    Any thread may call `page` and complete its future. Everything else is for the thread that reads the lane.
    """

    def __init__(self, pages: LogPages, streams: int, page_rows: int) -> None:
        """Share the memory between the streams.

        Args:
            pages: where pages are requested.
            streams: the lane's number of streams.
            page_rows: the most rows per request.
        """
        self._pages = pages
        streams = max(1, streams)
        self.max_rows: Final = max_page_rows(streams, page_rows)
        self._page_bytes = max(_MIN_PAGE_BYTES, _MAX_BYTES * _FIRST_PAGES_SHARE / streams)
        self._lock = Lock()
        self._reserved = 0
        self._held_bytes = 0
        self._recent_rows = 0.0
        self._recent_bytes = 0.0

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Request one page of a stream's rows in a window, with no more rows than fit.

        The future fails with RetriableError if another try may succeed.

        Args:
            stream: whose rows to read.
            window: the range of `cdc$time`.
            page_rows: the most rows in the page.
            paging_state: the preceding page's; None for the first page.
        """
        request = self._pages.page(
            stream, window, page_rows=min(page_rows, self._rows_that_fit()), paging_state=paging_state
        )
        request.add_done_callback(self._count_page)
        return request

    def reserve(self) -> None:
        """Reserve room for one more page; call it before `page`."""
        with self._lock:
            self._reserved += 1

    def has_room(self) -> bool:
        """Whether one more page fits beside the pages that are held and reserved."""
        with self._lock:
            return self._held_bytes + (self._reserved + 1) * self._rows_that_fit() * self._row_bytes() <= _MAX_BYTES

    def release(self, size: int) -> None:
        """Stop counting a page; `size` is its `page_bytes`."""
        with self._lock:
            self._held_bytes -= size

    def _count_page(self, request: Future[Page]) -> None:
        failed = request.exception() is not None
        size, rows = (0, 0) if failed else (page_bytes(request.result()), len(request.result().rows))
        with self._lock:
            self._reserved -= 1
            self._held_bytes += size
            if rows:
                self._recent_rows = self._recent_rows * _DECAY + rows
                self._recent_bytes = self._recent_bytes * _DECAY + size

    def _row_bytes(self) -> float:
        return self._recent_bytes / self._recent_rows if self._recent_rows else 0.0

    def _rows_that_fit(self) -> int:
        row_bytes = self._row_bytes()
        return max(1, min(self.max_rows, int(self._page_bytes / row_bytes))) if row_bytes else self.max_rows


def max_page_rows(streams: int, page_rows: int) -> int:
    """The most rows per request, before row widths are known.

    Args:
        streams: the lane's number of streams; they share the memory.
        page_rows: the configured limit.
    """
    return max(_MIN_PAGE_ROWS, min(page_rows, _MAX_ROWS // (2 * streams)))


def page_bytes(page: Page) -> int:
    """The bytes of a page's rows on the wire; 0 for rows that do not come from the wire."""
    rows = page.rows
    return len(rows.body) - rows.at if isinstance(rows, RawRows) else 0
