"""Which of a lane's streams are worth reading: most have no rows in a window of a table that is seldom written to.

A page costs a request whether or not it has rows, and costs both sides more than its rows do. So where few of a table's
streams had rows of late, several are asked at once whether they have any, and only those that do are read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Final, Protocol

from bridge.errors import BridgeError
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.reading.lane_merge import Entry, TakePage
from bridge.reading.request_limit import LogPages

_log = logging.getLogger(__name__)

TOGETHER: Final = 16
"""Streams that one request asks for: ScyllaDB takes 100, or what `max_partition_key_restrictions_per_query` says."""
ROWS_TOGETHER: Final = 200
"""Most rows of an answer. Streams that have as many between them are read without further questions."""
_FEWEST: Final = 4
"""Fewer streams are not worth a question."""
_MOST_WITH_ROWS: Final = 0.25
"""Up to which share of streams that had rows they are asked first: the server reads those twice."""
_LONGEST_REST: Final = 100
"""After so many readings at most, streams are asked again that it did not pay to ask."""


class LogStreams(Protocol):
    """What says which streams have rows."""

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        """The first page of the rows of at most `TOGETHER` streams in a window that has an end.

        Its only column is the stream's id; the order of streams is the server's. The future, or this itself, fails
        with BridgeError.
        """
        ...


class Log(LogPages, LogStreams, Protocol):
    """What a lane asks of a log."""


class QuietStreams:
    """Which streams of one table to read, by how many of them had rows the last time. For one thread.

    Asking fails nothing: where it did, or did not spare enough, the streams are read without it, for one reading at
    first and twice as many each time again.
    """

    def __init__(self) -> None:
        self._share = 1.0
        self._rest = self._rests_for = 0
        self._found: int | None = None
        self._failed: BridgeError | None = None
        self._said = False

    def to_read(self, log: LogStreams, streams: Sequence[StreamId], window: Window, in_flight: int) -> list[StreamId]:
        """Those of a lane's streams that may have rows in a window.

        Args:
            log: who is asked.
            streams: the lane's.
            window: what is to be read of them.
            in_flight: how many streams' requests may be under way at a time; those that are asked together all count.
        """
        self._found = self._failed = None
        together = min(TOGETHER, in_flight)
        if self._share > _MOST_WITH_ROWS or min(len(streams), together) < _FEWEST or window.end_us is None:
            return list(streams)
        if self._rests_for:
            self._rests_for -= 1
            return list(streams)
        try:
            found = _asked(log, streams, window, together, in_flight // together)
        except BridgeError as error:
            self._failed = error
            return list(streams)
        self._found = len(found)
        return found

    def note(self, table: str, streams: int, with_rows: int) -> None:
        """Learn from the reading that followed.

        Args:
            table: its name, for messages.
            streams: how many the lane has.
            with_rows: how many of them had rows.
        """
        if not streams:
            return
        self._share = with_rows / streams
        if self._failed is not None:
            # Not where reading fails as well: that error says it all.
            if not self._said:
                _log.warning(
                    "%s: asking several streams at once whether they have rows failed, so that all are read until it "
                    "succeeds again: %s",
                    *(table, self._failed),
                )
            self._said = True
            self._back_off()
        elif self._found is not None:
            self._said = False
            if self._found > _MOST_WITH_ROWS * streams:
                self._back_off()
            else:
                self._rest = 0

    def _back_off(self) -> None:
        self._rest = self._rests_for = min(_LONGEST_REST, max(1, 2 * self._rest))


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


def _asked(
    log: LogStreams, streams: Sequence[StreamId], window: Window, together: int, in_flight: int
) -> list[StreamId]:
    # Neighbours on the ring: those of one vnode have the same replicas.
    ordered = sorted(streams, key=lambda one: one.token)
    found: list[StreamId] = []
    under_way: deque[tuple[Sequence[StreamId], Future[Page]]] = deque()
    try:
        for at in range(0, len(ordered), together):
            if len(under_way) >= in_flight:
                found += _with_rows(*under_way.popleft())
            group = ordered[at : at + together]
            under_way.append((group, log.streams_of_rows(group, window, page_rows=ROWS_TOGETHER)))
        while under_way:
            found += _with_rows(*under_way.popleft())
    finally:
        # Where one failed, pages are asked for next, and are to be no more with these than without.
        wait([answer for _, answer in under_way])
    return found


def _with_rows(group: Sequence[StreamId], answer: Future[Page]) -> Sequence[StreamId]:
    page = answer.result()
    if page.paging_state is not None:
        # Who else has rows is not known yet, and whether these are many or the server had its reasons.
        return group
    found = {raw for (raw,) in page.rows}
    return [one for one in group if one.raw in found]
