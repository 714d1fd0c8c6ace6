"""Requests to a log that are counted on their way: how many, how long each took, how many were under way at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock

from bridge.model.log_rows import Cells, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.monitoring.counters import Store
from bridge.reading.ports import Log


class ObservedLog:
    """Passes requests on to a log, and counts them for a lane."""

    def __init__(self, log: Log, store: Store, table: str, lane: int) -> None:
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
            1, lambda: self._log.page(stream, window, page_rows=page_rows, paging_state=paging_state), len
        )

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """As the log behind it; under way it counts as a request for each stream, and its rows are not read yet."""
        return self._counted(
            len(streams), lambda: self._log.streams_of_rows(streams, window, page_rows=page_rows), lambda _: 0
        )

    def _counted(
        self, streams: int, ask: Callable[[], Future[Page]], count: Callable[[Sequence[Cells]], int]
    ) -> Future[Page]:
        with self._lock:
            self._in_flight += streams
            in_flight = self._in_flight
        asked_s = time.perf_counter()

        def done(rows: int, *, failed: bool) -> None:
            seconds = time.perf_counter() - asked_s
            with self._lock:
                self._in_flight -= streams
            self._store.page(*self._of, seconds, rows, in_flight, failed=failed)

        try:
            request = ask()
        except BaseException:
            done(0, failed=True)
            raise

        def arrived(answer: Future[Page]) -> None:
            failed = answer.exception() is not None
            done(0 if failed else count(answer.result().rows), failed=failed)

        request.add_done_callback(arrived)
        return request
