"""Limits how many page requests are under way at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock

from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.reading.ports import LogPages


class RequestLimiter:
    """Sends requests while fewer than `in_flight` of them are under way, and queues the others.

    Args:
        pages: where the requests are sent.
        in_flight: the most requests under way at a time.
    """

    def __init__(self, pages: LogPages, in_flight: int) -> None:
        self._pages = pages
        self._free = in_flight
        self._sending = False
        self._lock = Lock()
        self._waiting: deque[Callable[[], None]] = deque()

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Request one page of a stream's rows in a window, now or when the limit allows it.

        The future fails with RetriableError if another try may succeed.

        Args:
            stream: whose rows to read.
            window: the range of `cdc$time`.
            page_rows: the most rows in the page.
            paging_state: the preceding page's; None for the first page.
        """
        result: Future[Page] = Future()

        def send() -> None:
            try:
                request = self._pages.page(stream, window, page_rows=page_rows, paging_state=paging_state)
            except Exception as error:  # noqa: BLE001  # the thread that waits for the page raises it
                result.set_exception(error)
                self._finish_request()
                return
            request.add_done_callback(forward)

        def forward(request: Future[Page]) -> None:
            error = request.exception()
            if error is None:
                result.set_result(request.result())
            else:
                result.set_exception(error)
            self._finish_request()

        with self._lock:
            self._waiting.append(send)
        self._send_waiting()
        return result

    def close(self) -> None:
        """Drop the queued requests; their futures are never completed."""
        with self._lock:
            self._waiting.clear()

    def _finish_request(self) -> None:
        with self._lock:
            self._free += 1
        self._send_waiting()

    def _send_waiting(self) -> None:
        """Send queued requests up to the limit; only one thread does so at a time.

        A request that fails at once calls this method again, from inside the loop. That call returns immediately, and
        the loop goes on. With recursion instead, the stack would grow with the number of requests.
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
