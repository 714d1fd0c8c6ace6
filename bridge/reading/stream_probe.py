"""Finds out which streams of a lane are empty, so that these are not read.

In a window of a rarely written table most streams have no rows. A page costs a request whether or not it has rows, and
the request costs more than the rows. So if few of a table's streams had rows in the last window, one request asks for
the ids of several streams that have rows, and only those streams are read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, wait
from typing import Final

from bridge.errors import BridgeError
from bridge.model.log_rows import Page
from bridge.model.micro_batch import Window
from bridge.model.streams import StreamId
from bridge.reading.lane_merge import Entry, PageToEntries
from bridge.reading.ports import LogStreams

_log = logging.getLogger(__name__)

STREAMS_PER_PROBE: Final = 16
"""Streams per request. ScyllaDB allows 100, or `max_partition_key_restrictions_per_query`."""
ROWS_PER_PROBE: Final = 200
"""The most rows in an answer. If several streams have more rows together, all of them are read."""
_MIN_STREAMS: Final = 4
"""A request for fewer streams does not pay."""
_MAX_SHARE_WITH_ROWS: Final = 0.25
"""Streams are probed while at most this share of them has rows: the server reads those streams twice."""
_LONGEST_REST: Final = 100
"""After at most this many readings without a probe, another probe is tried."""


class EmptyStreamProbe:
    """Chooses the streams of one table to read, from how many had rows the last time. For one thread.

    A failed probe is no error: all streams are read. After a probe that failed or excluded too few streams, the next
    reading is done without a probe; each further such probe doubles that number of readings.
    """

    def __init__(self) -> None:
        self._share_with_rows = 1.0
        self._rest = self._rests_left = 0
        self._found: int | None = None
        self._failure: BridgeError | None = None
        self._warned = False

    def streams_to_read(
        self, log: LogStreams, streams: Sequence[StreamId], window: Window, in_flight: int
    ) -> list[StreamId]:
        """The streams that may have rows in a window.

        Args:
            log: answers the probes.
            streams: the lane's streams.
            window: the window to read.
            in_flight: the most requests under way at a time; a probe counts as one request per stream.
        """
        self._found = self._failure = None
        together = min(STREAMS_PER_PROBE, in_flight)
        if (
            self._share_with_rows > _MAX_SHARE_WITH_ROWS
            or min(len(streams), together) < _MIN_STREAMS
            or window.end_us is None
        ):
            return list(streams)
        if self._rests_left:
            self._rests_left -= 1
            return list(streams)
        try:
            found = _probe(log, streams, window, together, in_flight // together)
        except BridgeError as error:
            self._failure = error
            return list(streams)
        self._found = len(found)
        return found

    def record_result(self, table: str, streams: int, with_rows: int) -> None:
        """Learn from the reading that followed `streams_to_read`.

        Args:
            table: the table's name, for log messages.
            streams: how many streams the lane has.
            with_rows: how many of them had rows.
        """
        if not streams:
            return
        self._share_with_rows = with_rows / streams
        if self._failure is not None:
            # This point is reached only if reading succeeded; if it fails as well, its error is enough.
            if not self._warned:
                _log.warning(
                    "%s: the probe for streams with rows failed; all streams are read until a probe succeeds: %s",
                    *(table, self._failure),
                )
            self._warned = True
            self._back_off()
        elif self._found is not None:
            self._warned = False
            if self._found > _MAX_SHARE_WITH_ROWS * streams:
                self._back_off()
            else:
                self._rest = 0

    def _back_off(self) -> None:
        self._rest = self._rests_left = min(_LONGEST_REST, max(1, 2 * self._rest))


class StreamCounter:
    """Counts the streams that have rows, while it passes their pages on.

    Args:
        page_to_entries: makes entries of the pages.
    """

    def __init__(self, page_to_entries: PageToEntries) -> None:
        self._page_to_entries = page_to_entries
        self._seen: set[StreamId] = set()

    def __call__(self, stream: StreamId, page: Page) -> list[Entry]:
        """Make entries of a page."""
        if page.rows:
            self._seen.add(stream)
        return self._page_to_entries(stream, page)

    @property
    def count(self) -> int:
        """How many streams have had rows."""
        return len(self._seen)


def _probe(
    log: LogStreams, streams: Sequence[StreamId], window: Window, together: int, in_flight: int
) -> list[StreamId]:
    # Neighbours on the ring are probed together: the streams of one vnode have the same replicas.
    ordered = sorted(streams, key=lambda one: one.token)
    found: list[StreamId] = []
    under_way: deque[tuple[Sequence[StreamId], Future[Page]]] = deque()
    try:
        for at in range(0, len(ordered), together):
            if len(under_way) >= in_flight:
                found += _streams_in_answer(*under_way.popleft())
            probed = ordered[at : at + together]
            under_way.append((probed, log.streams_of_rows(probed, window, page_rows=ROWS_PER_PROBE)))
        while under_way:
            found += _streams_in_answer(*under_way.popleft())
    finally:
        # After a failed probe pages are requested next; the limit on requests must hold for both together.
        wait([answer for _, answer in under_way])
    return found


def _streams_in_answer(probed: Sequence[StreamId], answer: Future[Page]) -> Sequence[StreamId]:
    page = answer.result()
    if page.paging_state is not None:
        # The answer is incomplete: the other streams may have rows, too.
        return probed
    found = {raw for (raw,) in page.rows}
    return [one for one in probed if one.raw in found]
