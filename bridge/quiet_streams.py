"""Which of a lane's streams are worth reading: most have no rows in a window of a table that is seldom written to.

A page costs a request whether or not it has rows, and costs both sides more than its rows do. So where few of a table's
streams had rows of late, several are asked at once whether they have any, and only those that do are read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Final, Protocol

from bridge.errors import RefusedError
from bridge.lane_reader import Entry, TakePage
from bridge.model.changes import Page
from bridge.model.cursors import Window
from bridge.model.streams import StreamId

_log = logging.getLogger(__name__)

TOGETHER: Final = 16
"""Streams that one request asks for: ScyllaDB takes 100, or what `max_partition_key_restrictions_per_query` says."""
_FEWEST: Final = 4
"""A lane of fewer streams is read as it is."""
_MOST_WITH_ROWS: Final = 0.25
"""Up to which share of streams that had rows they are asked first: the server reads those twice."""


class LogStreams(Protocol):
    """What says which streams have rows. The future fails with RetriableError when another try may succeed."""

    def with_rows(self, streams: Sequence[StreamId], window: Window) -> Future[Collection[StreamId]]:
        """Those of at most `TOGETHER` streams that have rows in a window, or may have.

        Raises:
            RefusedError: the server does not take this question, as may the future.
        """
        ...


class QuietStreams:
    """Which streams of one table to read, by how many of them had rows the last time. For one thread."""

    def __init__(self) -> None:
        self._share = 1.0
        self._refused = False

    def to_read(self, log: LogStreams, streams: Sequence[StreamId], window: Window, in_flight: int) -> list[StreamId]:
        """Those of a lane's streams that may have rows in a window.

        Args:
            log: who is asked.
            streams: the lane's.
            window: what is to be read of them.
            in_flight: how many streams' requests may be under way at a time; those that are asked together all count.

        Raises:
            RetriableError: the server failed.
        """
        if self._refused or self._share > _MOST_WITH_ROWS or len(streams) < _FEWEST or window.upper_timeuuid is None:
            return list(streams)
        # Neighbours on the ring, which mostly have the same replicas.
        ordered = sorted(streams, key=lambda one: one.token)
        together = min(TOGETHER, in_flight)
        groups = [ordered[at : at + together] for at in range(0, len(ordered), together)]
        try:
            return _asked(log, groups, window, in_flight // together)
        except RefusedError as error:
            _log.warning("streams are not asked together for rows any more, but one by one: %s", error)
            self._refused = True
            return list(streams)

    def note(self, streams: int, with_rows: int) -> None:
        """Learn that of so many streams of a lane so many had rows."""
        self._share = with_rows / max(1, streams)


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


def _asked(log: LogStreams, groups: Sequence[Sequence[StreamId]], window: Window, in_flight: int) -> list[StreamId]:
    found: list[StreamId] = []
    under_way: deque[Future[Collection[StreamId]]] = deque()
    for group in groups:
        if len(under_way) >= in_flight:
            found += under_way.popleft().result()
        under_way.append(log.with_rows(group, window))
    for answer in under_way:
        found += answer.result()
    return found
