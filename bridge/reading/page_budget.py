"""What a lane may hold of its log: how many rows a request asks for, and whether a page is asked for ahead.

Merging needs one page of each stream, so that much is there whatever it takes; all further ones wait for room. A page's
bytes are known when it has come. What is under way is reckoned as rows of the width that the last pages had; before the
first has come, the server's own limit bounds it (ScyllaDB ends a page at about 1 MiB, however many rows are asked for).
"""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import Final

from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.raw_rows import RawRows
from bridge.model.streams import StreamId
from bridge.reading.request_limit import LogPages

_ROWS: Final = 200_000
"""About how many rows a lane holds at most, up to 2,000 streams a lane: small ones weigh more than their bytes."""
_FEWEST_PAGE_ROWS: Final = 50
"""Down to which this makes pages shorter."""
_BYTES: Final = 64 << 20
"""About how many bytes of rows it holds at most, up to 2,000 streams a lane and as far as rows are no larger than a
page."""
_FEWEST_PAGE_BYTES: Final = 32 << 10
"""The same for pages in bytes: a request costs the time of some ten rows."""
_FIRST_PAGES_SHARE: Final = 0.75
"""Of the bytes, for one page of each stream; the rest is for those that are asked for ahead."""
_KEPT: Final = 7 / 8
"""How much the pages so far count when another comes."""


class LaneMemory:
    """The pages of one lane's streams, as many rows each as there is room for.

    Threads: `page` and what it calls back are for any, the rest for the one that reads the lane.
    """

    def __init__(self, pages: LogPages, streams: int, page_rows: int) -> None:
        """Share the memory out.

        Args:
            pages: where pages come from.
            streams: how many the lane has.
            page_rows: most rows asked for at once.
        """
        self._pages = pages
        streams = max(1, streams)
        self.most_rows: Final = most_rows(streams, page_rows)
        self._page_bytes = max(_FEWEST_PAGE_BYTES, _BYTES * _FIRST_PAGES_SHARE / streams)
        self._lock = Lock()
        self._under_way = 0
        self._held = 0
        self._recent_rows = 0.0
        self._recent_bytes = 0.0

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """As the pages behind it, but no more rows than fit."""
        request = self._pages.page(stream, window, page_rows=min(page_rows, self._rows()), paging_state=paging_state)
        request.add_done_callback(self._arrived)
        return request

    def will_ask(self) -> None:
        """Reckon with one more page."""
        with self._lock:
            self._under_way += 1

    def has_room(self) -> bool:
        """Whether one more page fits beside what is here and under way."""
        with self._lock:
            return self._held + (self._under_way + 1) * self._rows() * self._row_bytes() <= _BYTES

    def let_go(self, size: int) -> None:
        """Count a page no more, given its `size_of`."""
        with self._lock:
            self._held -= size

    def _arrived(self, request: Future[Page]) -> None:
        failed = request.exception() is not None
        size, rows = (0, 0) if failed else (size_of(request.result()), len(request.result().rows))
        with self._lock:
            self._under_way -= 1
            self._held += size
            if rows:
                self._recent_rows = self._recent_rows * _KEPT + rows
                self._recent_bytes = self._recent_bytes * _KEPT + size

    def _row_bytes(self) -> float:
        return self._recent_bytes / self._recent_rows if self._recent_rows else 0.0

    def _rows(self) -> int:
        row_bytes = self._row_bytes()
        return max(1, min(self.most_rows, int(self._page_bytes / row_bytes))) if row_bytes else self.most_rows


def most_rows(streams: int, page_rows: int) -> int:
    """Rows to ask for at once in a lane of so many streams, and `page_rows` at most; fewer where they are wide."""
    return max(_FEWEST_PAGE_ROWS, min(page_rows, _ROWS // (2 * streams)))


def size_of(page: Page) -> int:
    """The bytes of a page's rows as the wire has them; 0 for rows that are from elsewhere."""
    rows = page.rows
    return len(rows.body) - rows.at if isinstance(rows, RawRows) else 0
