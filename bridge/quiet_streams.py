"""Which of a lane's streams are worth reading: most have no rows in a window of a table that is seldom written to.

A page costs a request whether or not it has rows, and costs both sides more than its rows do. So where few of a table's
streams had rows of late, several are asked at once whether they have any, and only those that do are read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from bridge.errors import BridgeError
from bridge.lane_reader import Entry, TakePage
from bridge.model.changes import Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId

_log = logging.getLogger(__name__)

TOGETHER: Final = 16
"""Streams that one request asks for: ScyllaDB takes 100, or what `max_partition_key_restrictions_per_query` says."""
ROWS_TOGETHER: Final = 200
"""Most rows of an answer. Streams that have more than that between them are read without further questions."""
_FEWEST: Final = 4
"""A lane of fewer streams is read as it is."""
_MOST_WITH_ROWS: Final = 0.25
"""Up to which share of streams that had rows they are asked first: the server reads those twice."""
_NOT_ASKED_FOR: Final = 100
"""So many readings ask nothing after an answer failed."""


class LogRows(Protocol):
    """What says which streams have rows."""

    def rows_of(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """The first page of the rows of at most `TOGETHER` streams in a window that has an end.

        Its only column is the stream's id; the order of streams is the server's. The future, or this itself, fails
        with BridgeError.
        """
        ...


class QuietStreams:
    """Which streams of one table to read, by how many of them had rows the last time. For one thread."""

    def __init__(self, table: str) -> None:
        """Take what the table is called in messages."""
        self._table = table
        self._share = 1.0
        self._not_asked_for = 0
        self._failed: BridgeError | None = None

    def to_read(self, log: LogRows, streams: Sequence[StreamId], window: Window, in_flight: int) -> list[StreamId]:
        """Those of a lane's streams that may have rows in a window.

        An answer that fails is no reason to fail: all streams are read then, and so are they for a while.

        Args:
            log: who is asked.
            streams: the lane's.
            window: what is to be read of them.
            in_flight: how many streams' requests may be under way at a time; those that are asked together all count.
        """
        if self._share > _MOST_WITH_ROWS or len(streams) < _FEWEST or window.end_us is None:
            return list(streams)
        if self._not_asked_for:
            self._not_asked_for -= 1
            return list(streams)
        try:
            return [one for answer in _asked(log, streams, window, in_flight) for one in answer]
        except BridgeError as error:
            self._failed, self._not_asked_for = error, _NOT_ASKED_FOR
            return list(streams)

    def note(self, streams: int, with_rows: int) -> None:
        """Learn that a lane was read, and that of so many streams so many had rows."""
        if streams:
            self._share = with_rows / streams
        if self._failed is not None:
            # Not where reading fails as well: that error says it all.
            _log.warning(
                "%s: %d streams can't be asked together whether they have rows, so each is read the next %d times: %s",
                *(self._table, TOGETHER, _NOT_ASKED_FOR, self._failed),
            )
            self._failed = None


class CountedStreams:
    """Passes pages on to what makes entries of them, and counts the streams that have rows."""

    def __init__(self, take: TakePage) -> None:
        self._take = take
        self._seen: set[StreamId] = set()

    def __call__(self, stream: StreamId, page: Page) -> list[Entry]:
        """As what is behind it."""
        if page.rows:
            self._seen.add(stream)
        return self._take(stream, page)

    @property
    def count(self) -> int:
        """How many have had rows."""
        return len(self._seen)


def _asked(log: LogRows, streams: Sequence[StreamId], window: Window, in_flight: int) -> Iterator[Sequence[StreamId]]:
    together = min(TOGETHER, in_flight)
    under_way: deque[tuple[Sequence[StreamId], Future[Page]]] = deque()
    # Neighbours on the ring: in vnodes they mostly have the same replicas.
    ordered = sorted(streams, key=lambda one: one.token)
    for at in range(0, len(ordered), together):
        if len(under_way) >= in_flight // together:
            yield _with_rows(*under_way.popleft())
        group = ordered[at : at + together]
        under_way.append((group, log.rows_of(group, window, page_rows=ROWS_TOGETHER)))
    while under_way:
        yield _with_rows(*under_way.popleft())


def _with_rows(group: Sequence[StreamId], answer: Future[Page]) -> Sequence[StreamId]:
    page = answer.result()
    if page.paging_state is not None:
        # Who else has rows is not known yet, and whether these are many or the server had its reasons.
        return group
    found = {raw for (raw,) in page.rows}
    return [one for one in group if one.raw in found]
