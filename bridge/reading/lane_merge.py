"""Reads the streams of one lane and merges their rows in `cdc$time` order, with bounded memory and bounded load.

At most two pages of each stream are held: the page being consumed and the next one, which is requested ahead if there
is room (`bridge.reading.page_budget`). The merge proceeds in rounds. A round takes all rows up to the earliest end of a
page that has a successor: no later page can contain a row before that end. There are about as many rounds as pages, so
a round touches only the streams that have such rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final, TypeAlias

from bridge.errors import RetriableError
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import sort_key
from bridge.reading.page_budget import PageBudget, page_bytes
from bridge.reading.ports import LogPages
from bridge.reading.request_limit import RequestLimiter
from schemas.compiled.page_loop import PlainChange
from schemas.cql.table_changes import describe
from schemas.cql.types import CqlType
from schemas.log.columns import META_PREFIX

_WAIT_S: Final = 0.25
"""A transaction's timeout is a second or more, and its publisher commits it after a quarter of that."""


class ColumnsChangedError(RetriableError):
    """A page has other columns, or other column types, than those that the encoder was compiled for."""


Entry: TypeAlias = tuple[bytes, Cells] | PlainChange
"""The sort key of a row's `cdc$time`, with the row's cells or with the record that was encoded from them."""

PageToEntries: TypeAlias = Callable[[StreamId, Page], list[Entry]]
"""Makes one entry of each row of a page, in the order of the rows."""


def keep_rows(layout: LogLayout) -> PageToEntries:
    """A `PageToEntries` that keeps the cells of every row."""
    time_at = layout.time

    def make_entries(_stream: StreamId, page: Page) -> list[Entry]:
        # `cdc$time` is a key column of the log, so it is never null.
        return [(sort_key(row[time_at] or b""), row) for row in page.rows]

    return make_entries


class _Stream:
    """One stream's buffered entries, and the request for the next page.

    Attributes:
        number: the stream's index among the lane's streams, which are ordered by id.
        entries: the entries of the present page.
        taken: how many of the entries were taken.
        size: bytes of the present page.
        pending: the request for the next page; None if it was not sent.
        next_state: the next page's paging state; None if the page was requested or does not exist.
    """

    __slots__ = ("entries", "next_state", "number", "pending", "size", "stream", "taken")

    def __init__(self, number: int, stream: StreamId) -> None:
        self.number, self.stream = number, stream
        self.entries: list[Entry] = []
        self.taken = self.size = 0
        self.pending: Future[Page] | None = None
        self.next_state: bytes | None = None

    @property
    def has_more(self) -> bool:
        """Whether more pages follow."""
        return self.pending is not None or self.next_state is not None

    @property
    def first(self) -> _Place:
        """The place of the first remaining entry."""
        return self.entries[self.taken][0], self.number, self

    @property
    def end(self) -> _Place:
        """The place of the last entry."""
        return self.entries[-1][0], self.number, self

    def take(self, bound: _Place | None) -> list[Entry]:
        """Take the remaining entries up to a place, or all of them if `bound` is None."""
        began, self.taken = self.taken, len(self.entries)
        if bound is not None:
            bisect = bisect_right if self.number <= bound[1] else bisect_left
            self.taken = bisect(self.entries, bound[0], lo=began, key=_first)
        return self.entries[began : self.taken]


_Place: TypeAlias = tuple[bytes, int, _Stream]
"""A sort key, a stream's number, and the stream; in lane order. Numbers are unique, so streams are never compared."""


def read_lane(
    pages: LogPages,
    streams: Sequence[StreamId],
    window: Window,
    layout: LogLayout,
    *,
    page_rows: int,
    in_flight: int,
    page_to_entries: PageToEntries | None = None,
    while_waiting: Callable[[], None] = lambda: None,
) -> Iterator[list[Entry]]:
    """The rows of several streams in a window, in lane order.

    Lane order is `cdc$time` as the server orders it, then stream id, then `cdc$batch_seq_no`.

    Args:
        pages: where pages are requested.
        streams: the lane's streams.
        window: the range of `cdc$time`.
        layout: the expected columns; every page is compared with it, even a page without rows.
        page_rows: the most rows per request; fewer if many streams share the memory, or rows are wide.
        in_flight: the most requests under way at a time.
        page_to_entries: makes entries of a page's rows before the merge; None keeps the rows.
        while_waiting: called every quarter of a second while the merge waits for a page. All chunks yielded before
            were consumed by then.

    Yields:
        Non-empty chunks of entries; they follow each other in lane order.

    Raises:
        ColumnsChangedError: a page has other columns or types than `layout`. Chunks yielded before it stay valid.
        RetriableError: the server failed.
    """
    budget = PageBudget(pages, len(streams), page_rows)
    # The limiter wraps the budget: the number of rows that fit is known best when a request is sent.
    limiter = RequestLimiter(budget, in_flight)
    try:
        lane = _Lane(limiter, window, layout, budget, page_to_entries or keep_rows(layout), while_waiting)
        yield from lane.merge(streams)
    finally:
        limiter.close()


_first: Final = itemgetter(0)


class _Lane:
    """The streams of one lane that are read together."""

    def __init__(
        self,
        pages: LogPages,
        window: Window,
        layout: LogLayout,
        budget: PageBudget,
        page_to_entries: PageToEntries,
        while_waiting: Callable[[], None],
    ) -> None:
        self._pages = pages
        self._window = window
        self._layout = layout
        self._budget = budget
        self._page_to_entries = page_to_entries
        self._while_waiting = while_waiting
        self._deferred: list[_Place] = []
        """A heap of streams whose next page found no room; the stream whose page ends first needs its next first."""
        self._firsts: list[_Place] = []
        """A heap of the streams with remaining entries, by their first entry."""
        self._ends: list[_Place] = []
        """A heap of the pages that have a successor, by their last entry."""

    def merge(self, streams: Sequence[StreamId]) -> Iterator[list[Entry]]:
        self._request_first_pages(sorted(streams))
        while self._firsts:
            chunk, exhausted = self._take_complete_rows()
            yield chunk
            # Release the chunk before more pages arrive.
            del chunk
            for one in exhausted:
                self._release_page(one)
            self._request_ahead()
            for one in exhausted:
                self._await_rows(one)
                if one.entries:
                    heappush(self._firsts, one.first)
                    if one.has_more:
                        heappush(self._ends, one.end)
            self._request_ahead()

    def _request_first_pages(self, streams: Sequence[StreamId]) -> None:
        reading = [_Stream(number, stream) for number, stream in enumerate(streams)]
        for one in reading:
            self._request(one, None)
        for one in reading:
            self._await_rows(one)
        self._request_ahead()
        self._firsts = [one.first for one in reading if one.entries]
        self._ends = [one.end for one in reading if one.entries and one.has_more]
        heapify(self._firsts)
        heapify(self._ends)

    def _take_complete_rows(self) -> tuple[list[Entry], list[_Stream]]:
        """Take the rows that no later page can precede.

        Returns:
            The rows in lane order, and the streams that have no rows left.
        """
        firsts = self._firsts
        sections: list[tuple[int, list[Entry]]] = []
        exhausted: list[_Stream] = []
        if self._ends:
            # No other page with a successor ends at or before this place.
            bound = heappop(self._ends)
            while firsts and firsts[0] <= bound:
                *_, one = firsts[0]
                sections.append((one.number, one.take(bound)))
                if one.taken < len(one.entries):
                    heapreplace(firsts, one.first)
                else:
                    heappop(firsts)
                    exhausted.append(one)
        else:
            exhausted = [one for *_, one in firsts]
            sections = [(one.number, one.take(None)) for one in exhausted]
            firsts.clear()
        # Concatenate by stream: the stable sort below then keeps rows of equal time in the order of the streams.
        sections.sort(key=_first)
        chunk: list[Entry] = []
        for _, section in sections:
            chunk += section
        # Rows of one group have equal times; a stable sort keeps them in the order of `cdc$batch_seq_no`.
        chunk.sort(key=_first)
        return chunk, exhausted

    def _request(self, one: _Stream, paging_state: bytes | None) -> None:
        one.next_state = None
        self._budget.reserve()
        one.pending = self._pages.page(
            one.stream, self._window, page_rows=self._budget.max_rows, paging_state=paging_state
        )

    def _request_ahead(self) -> None:
        while self._deferred and self._budget.has_room():
            *_, one = heappop(self._deferred)
            # The page may have been requested since it was deferred.
            if one.next_state is not None:
                self._request(one, one.next_state)

    def _release_page(self, one: _Stream) -> None:
        self._budget.release(one.size)
        one.entries, one.taken, one.size = [], 0, 0

    def _await_rows(self, one: _Stream) -> None:
        """Wait until a stream has entries or no more pages; a page may be empty and still have a successor."""
        while not one.entries and one.has_more:
            if one.next_state is not None:
                # The merge can't go on without this page, so it is requested even without room.
                self._request(one, one.next_state)
            assert one.pending is not None
            try:
                page = one.pending.result(_WAIT_S)
            except TimeoutError:
                page = self._await_late_page(one.pending)
            self._accept_page(one, page)

    def _await_late_page(self, request: Future[Page]) -> Page:
        while not request.done():
            self._while_waiting()
            # This returns as soon as the request ends.
            wait((request,), _WAIT_S)
        return request.result()

    def _accept_page(self, one: _Stream, page: Page) -> None:
        layout = self._layout
        # Pages share these tuples (the adapter caches them), so this mostly compares identities.
        if page.columns != layout.columns or page.types != layout.types:
            raise ColumnsChangedError(
                f"stream {one.stream}: the log's columns changed from "
                f"{describe_columns(layout.columns, layout.types)} to {describe_columns(page.columns, page.types)}"
            )
        one.pending, one.next_state, one.size = None, page.paging_state, page_bytes(page)
        # Request the next page first, so that it is under way while this page is converted.
        if one.next_state is not None and not self._deferred and self._budget.has_room():
            self._request(one, one.next_state)
        one.entries = self._page_to_entries(one.stream, page)
        if one.next_state is not None and one.entries:
            heappush(self._deferred, one.end)


def describe_columns(columns: Sequence[str], types: Sequence[CqlType]) -> str:
    """The base table's columns in a result of the log, for messages.

    Args:
        columns: the result's columns, those of CDC included.
        types: their types; another number of types means that they are unknown, and they are left out.
    """
    if len(types) != len(columns):
        return ", ".join(columns)
    pairs = zip(columns, types, strict=True)
    return ", ".join(f"{name} {describe(kind)}" for name, kind in pairs if not name.startswith(META_PREFIX))
