"""Requests for pages of a log: what answers them, and how many are under way at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Protocol

from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId


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
