"""Plain progress lines of a running query, from what Spark reports about its micro-batches."""

from __future__ import annotations

import json
import logging
import time
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from bridge.model.cursors import StreamOffset

_log = logging.getLogger(__name__)

_EVERY_S: Final = 10.0


class ProgressReport:
    """Says every few seconds how many changes a table's query read and how far behind it is."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._next_s = time.monotonic() + _EVERY_S
        self._last_batch = -1
        self._since_s = time.monotonic()
        self._changes = 0

    def look(self, query: StreamingQuery) -> None:
        """Call often; writes a line when one is due and something happened."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + _EVERY_S
        read, offset = 0, None
        for progress in query.recentProgress:
            if progress["batchId"] <= self._last_batch:
                continue
            self._last_batch = progress["batchId"]
            end = progress["sources"][0]["endOffset"]
            if end is None:
                continue
            offset = StreamOffset.from_json(json.loads(end) if isinstance(end, str) else end)
            control = 0 if offset.batch is None else 2 * offset.batch.layout.lanes
            read += max(0, int(progress["numInputRows"]) - control)
        if offset is not None:
            self._changes += read
            _log.info(
                "%s: %d changes, %.0f/s, %.1f s behind",
                self._name, self._changes, read / (now_s - self._since_s), time.time() - offset.next.time_us / 1e6,
            )  # fmt: skip
        self._since_s = now_s
