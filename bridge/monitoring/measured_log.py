"""Measures the requests to a log: their number, their durations, and how many are under way at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from bridge.model.log_rows import Cells, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.monitoring.counters import CounterStore
from bridge.reading.ports import Log


class MeasuredLog:
    """Passes a lane's requests on to a log, and counts them."""

    def __init__(self, log: Log, store: CounterStore, table: str, lane: int) -> None:
        self._log = log
        self._store = store
        self._table = table
        self._lane = lane
        self._lock = Lock()
        self._in_flight = 0

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Request a page of a stream from the log."""
        return self._measure(
            1, lambda: self._log.page(stream, window, page_rows=page_rows, paging_state=paging_state), len
        )

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """Request from the log which of some streams have rows.

        While it is under way, it counts as one request for each stream. Its rows do not count as read.
        """
        return self._measure(
            len(streams), lambda: self._log.streams_of_rows(streams, window, page_rows=page_rows), lambda _: 0
        )

    def _measure(
        self, weight: int, send: Callable[[], Future[Page]], count_rows: Callable[[Sequence[Cells]], int]
    ) -> Future[Page]:
        """Send a request and count it.

        Args:
            weight: as how many requests it counts while it is under way.
            send: sends it.
            count_rows: returns how many rows of its page count as read.
        """
        with self._lock:
            self._in_flight += weight
            in_flight = self._in_flight
        sent_s = time.perf_counter()

        def count_request(rows: int, *, failed: bool) -> None:
            seconds = time.perf_counter() - sent_s
            with self._lock:
                self._in_flight -= weight
            self._store.count_page(self._table, self._lane, seconds, rows, in_flight, failed=failed)

        try:
            request = send()
        except BaseException:
            count_request(0, failed=True)
            raise

        def count_answer(answer: Future[Page]) -> None:
            failed = answer.exception() is not None
            count_request(0 if failed else count_rows(answer.result().rows), failed=failed)

        request.add_done_callback(count_answer)
        return request
