"""Requests to a log that are counted on their way: how many, how long each took, how many were under way at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import TypeVar

from bridge.captured import LogStatements
from bridge.model.changes import Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId
from bridge.monitoring.figures import Store

_Answer = TypeVar("_Answer")


class ObservedPages:
    """Passes requests on to a log, and counts them for a lane."""

    def __init__(self, log: LogStatements, store: Store, table: str, lane: int) -> None:
        self._log = log
        self._store = store
        self._of = (table, lane)
        self._lock = Lock()
        self._in_flight = 0

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """As the log behind it."""
        return self._counted(
            lambda: self._log.page(stream, window, page_rows=page_rows, paging_state=paging_state),
            lambda page: len(page.rows),
        )

    def with_rows(self, streams: Sequence[StreamId], window: Window) -> Future[Collection[StreamId]]:
        """As the log behind it."""
        return self._counted(lambda: self._log.with_rows(streams, window), lambda _: 0)

    def _counted(self, ask: Callable[[], Future[_Answer]], rows_of: Callable[[_Answer], int]) -> Future[_Answer]:
        with self._lock:
            self._in_flight += 1
            in_flight = self._in_flight
        asked_s = time.perf_counter()
        request = ask()

        def arrived(done: Future[_Answer]) -> None:
            seconds = time.perf_counter() - asked_s
            with self._lock:
                self._in_flight -= 1
            failed = done.exception() is not None
            rows = 0 if failed else rows_of(done.result())
            self._store.page(*self._of, seconds, rows, in_flight, failed=failed)

        request.add_done_callback(arrived)
        return request
