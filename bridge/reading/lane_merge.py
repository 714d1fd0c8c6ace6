"""Reads the streams of one lane and merges them in `cdc$time` order, with bounded memory and bounded load.

Every stream has at most two pages here: the one being consumed and the next, asked for ahead where there is room
(`bridge.reading.page_budget`). Rows leave in rounds: all that lie at or before the earliest end of a page which has a
successor
are complete and can be sorted and handed on. There are about as many rounds as pages, so a round looks only at the
streams that have such rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from heapq import heapify, heappop, heappush, heapreplace
from operator import itemgetter
from typing import Final, TypeAlias

from bridge.errors import RetriableError
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.model.times import sort_key
from bridge.reading.page_budget import LaneMemory, size_of
from bridge.reading.request_limit import BoundedPages, LogPages
from schemas.compiled.page_loop import PlainChange
from schemas.cql.table_changes import describe
from schemas.cql.types import CqlType
from schemas.log.columns import META_PREFIX


class ColumnsChangedError(RetriableError):
    """A page has other columns, or of other types, than those that the encoder was compiled for."""


Entry: TypeAlias = tuple[bytes, Cells] | PlainChange
"""The sort key of a row's `cdc$time` with its cells, or with the record that was made of them already."""

TakePage: TypeAlias = Callable[[StreamId, Page], list[Entry]]
"""Makes entries of a page, one of each row, in the order of the rows."""


def as_rows(layout: LogLayout) -> TakePage:
    """Leaves a page's rows as they are."""
    time_at = layout.time

    def take(_stream: StreamId, page: Page) -> list[Entry]:
        # A key column of the log: the server has no row without it.
        return [(sort_key(row[time_at] or b""), row) for row in page.rows]

    return take


class _Stream:
    """One stream's buffered entries, and what follows them.

    Attributes:
        number: its place among the lane's streams, which are ordered by id.
        pending: the next page, asked for.
        unasked: its paging state, while it is not.
        size: bytes of the page that the entries are from.
    """

    __slots__ = ("entries", "number", "pending", "size", "stream", "taken", "unasked")

    def __init__(self, number: int, stream: StreamId) -> None:
        self.number, self.stream = number, stream
        self.entries: list[Entry] = []
        self.taken = self.size = 0
        self.pending: Future[Page] | None = None
        self.unasked: bytes | None = None

    @property
    def has_more(self) -> bool:
        """Whether pages follow."""
        return self.pending is not None or self.unasked is not None

    @property
    def first(self) -> _Place:
        """Where the entries that are left begin."""
        return self.entries[self.taken][0], self.number, self

    @property
    def end(self) -> _Place:
        """Where they end."""
        return self.entries[-1][0], self.number, self

    def take(self, bound: _Place | None) -> list[Entry]:
        """What is left of the entries up to a place; without one, all."""
        began, self.taken = self.taken, len(self.entries)
        if bound is not None:
            bisect = bisect_right if self.number <= bound[1] else bisect_left
            self.taken = bisect(self.entries, bound[0], lo=began, key=_first)
        return self.entries[began : self.taken]


_Place: TypeAlias = tuple[bytes, int, _Stream]
"""In lane order: a sort key, and a stream by its number. No two streams share one, so streams are never compared."""


def read_lane(
    pages: LogPages,
    streams: Sequence[StreamId],
    window: Window,
    layout: LogLayout,
    *,
    page_rows: int,
    in_flight: int,
    take: TakePage | None = None,
) -> Iterator[list[Entry]]:
    """The rows of a window of several streams, in chunks that follow each other in lane order; none is empty.

    Lane order is `cdc$time` as the server orders it, then stream id, then `cdc$batch_seq_no`.

    Args:
        pages: where pages come from.
        streams: the lane's streams.
        window: what to read.
        layout: the columns that are expected; every page is held against it, also one without rows.
        page_rows: most rows asked for at once; fewer when many streams share the memory, or rows are wide.
        in_flight: most requests under way at a time.
        take: what becomes of a page's rows before they are merged; by default nothing (`as_rows`).

    Raises:
        ColumnsChangedError: a page has other columns or types than `layout`. What was yielded before stands.
        RetriableError: the server failed.
    """
    memory = LaneMemory(pages, len(streams), page_rows)
    # In this order: how many rows fit is known best when a request's turn has come.
    gate = BoundedPages(memory, in_flight)
    try:
        yield from _Lane(gate, window, layout, memory, take or as_rows(layout)).merged(streams)
    finally:
        gate.close()


_first: Final = itemgetter(0)


class _Lane:
    """The streams of one lane that are read together."""

    def __init__(self, pages: LogPages, window: Window, layout: LogLayout, memory: LaneMemory, take: TakePage) -> None:
        self._pages = pages
        self._window = window
        self._layout = layout
        self._memory = memory
        self._take_page = take
        self._unasked: list[_Place] = []
        """A heap of streams whose next page found no room; the one whose page ends first will need it first."""
        self._firsts: list[_Place] = []
        """A heap of what is buffered, by its first entries."""
        self._ends: list[_Place] = []
        """A heap of the pages that have a successor, by their ends."""

    def merged(self, streams: Sequence[StreamId]) -> Iterator[list[Entry]]:
        self._begin(sorted(streams))
        while self._firsts:
            chunk, exhausted = self._complete()
            yield chunk
            # What was handed on is not to be kept while pages come.
            del chunk
            for one in exhausted:
                self._let_go(one)
            self._ask_ahead()
            for one in exhausted:
                self._advance(one)
                if one.entries:
                    heappush(self._firsts, one.first)
                    if one.has_more:
                        heappush(self._ends, one.end)
            self._ask_ahead()

    def _begin(self, streams: Sequence[StreamId]) -> None:
        reading = [_Stream(number, stream) for number, stream in enumerate(streams)]
        for one in reading:
            self._ask(one, None)
        for one in reading:
            self._advance(one)
        self._ask_ahead()
        self._firsts = [one.first for one in reading if one.entries]
        self._ends = [one.end for one in reading if one.entries and one.has_more]
        heapify(self._firsts)
        heapify(self._ends)

    def _complete(self) -> tuple[list[Entry], list[_Stream]]:
        """What no page to come can precede, in lane order, and the streams of which nothing is left."""
        firsts = self._firsts
        sections: list[tuple[int, list[Entry]]] = []
        exhausted: list[_Stream] = []
        if self._ends:
            # Of the pages that have a successor only this one ends here.
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
        # By stream, so that a stable sort leaves what has the same time in the order of the streams.
        sections.sort(key=_first)
        chunk: list[Entry] = []
        for _, section in sections:
            chunk += section
        # Stable, so rows of one group stay in batch_seq_no order, too.
        chunk.sort(key=_first)
        return chunk, exhausted

    def _ask(self, one: _Stream, paging_state: bytes | None) -> None:
        one.unasked = None
        self._memory.will_ask()
        one.pending = self._pages.page(
            one.stream, self._window, page_rows=self._memory.most_rows, paging_state=paging_state
        )

    def _ask_ahead(self) -> None:
        while self._unasked and self._memory.has_room():
            *_, one = heappop(self._unasked)
            # It may have been needed meanwhile.
            if one.unasked is not None:
                self._ask(one, one.unasked)

    def _let_go(self, one: _Stream) -> None:
        self._memory.let_go(one.size)
        one.entries, one.taken, one.size = [], 0, 0

    def _advance(self, one: _Stream) -> None:
        # A page may come back empty and still have a successor.
        while not one.entries and one.has_more:
            if one.unasked is not None:
                # Without it nothing goes on, room or not.
                self._ask(one, one.unasked)
            assert one.pending is not None
            self._take(one, one.pending.result())

    def _take(self, one: _Stream, page: Page) -> None:
        layout = self._layout
        # Pages share these tuples (the adapter keeps what it parsed): mostly a comparison of identities.
        if page.columns != layout.columns or page.types != layout.types:
            raise ColumnsChangedError(
                f"stream {one.stream}: the log's columns changed from "
                f"{columns_in_words(layout.columns, layout.types)} to {columns_in_words(page.columns, page.types)}"
            )
        one.pending, one.unasked, one.size = None, page.paging_state, size_of(page)
        # Asked for first, so that it is under way meanwhile.
        if one.unasked is not None and not self._unasked and self._memory.has_room():
            self._ask(one, one.unasked)
        one.entries = self._take_page(one.stream, page)
        if one.unasked is not None and one.entries:
            heappush(self._unasked, one.end)


def columns_in_words(columns: Sequence[str], types: Sequence[CqlType]) -> str:
    """The base table's columns in a result of the log, with their types where these are known."""
    if len(types) != len(columns):
        return ", ".join(columns)
    pairs = zip(columns, types, strict=True)
    return ", ".join(f"{name} {describe(kind)}" for name, kind in pairs if not name.startswith(META_PREFIX))
