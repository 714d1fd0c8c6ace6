"""Log pages that are counted on their way: how many, how long each took, how many were under way at once."""

from __future__ import annotations

import time
from concurrent.futures import Future
from threading import Lock

from bridge.model.changes import Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId
from bridge.monitoring.figures import Store
from bridge.page_requests import LogPages


class ObservedPages:
    """Passes requests on to other pages, and counts them for a lane."""

    def __init__(self, pages: LogPages, store: Store, table: str, lane: int) -> None:
        self._pages = pages
        self._store = store
        self._of = (table, lane)
        self._lock = Lock()
        self._in_flight = 0

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """As the pages behind it."""
        with self._lock:
            self._in_flight += 1
            in_flight = self._in_flight
        asked_s = time.perf_counter()
        request = self._pages.page(stream, window, page_rows=page_rows, paging_state=paging_state)

        def arrived(done: Future[Page]) -> None:
            seconds = time.perf_counter() - asked_s
            with self._lock:
                self._in_flight -= 1
            failed = done.exception() is not None
            rows = 0 if failed else len(done.result().rows)
            self._store.page(*self._of, seconds, rows, in_flight, failed=failed)

        request.add_done_callback(arrived)
        return request
