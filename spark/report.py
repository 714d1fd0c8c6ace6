"""What Spark tells about a query's micro-batches: for the figures, and as a plain progress line now and then."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from bridge.model.cursors import StreamOffset
from bridge.monitoring.board import Board
from bridge.monitoring.view import Batches

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 2.0
_SAY_EVERY_S: Final = 10.0
_TOTAL: Final = "triggerExecution"


class ProgressReport:
    """Follows one table's query: asks for its micro-batches every few seconds, since asking often would cost.

    `spark.sql.streaming.numRecentProgressUpdates` (see `spark.session`) is how many Spark keeps for us.
    """

    def __init__(self, name: str, board: Board) -> None:
        self._name = name
        self._board = board
        self._last: tuple[object, int] | None = None
        self._look_at_s = time.monotonic() + _LOOK_EVERY_S
        self._since_s = time.monotonic()
        self._changes = 0
        self._read = 0
        self._offset: StreamOffset | None = None

    def look(self, query: StreamingQuery) -> None:
        """Call often; asks the query when it is time, and writes a line when one is due and something happened."""
        now_s = time.monotonic()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        for progress in query.recentProgress:
            self._take(progress)
        if now_s - self._since_s < _SAY_EVERY_S:
            return
        if self._offset is not None:
            self._changes += self._read
            behind_s = time.time() - self._offset.next.reached_us / 1e6
            rate = self._read / (now_s - self._since_s)
            _log.info("%s: %d changes, %.0f/s, %.1f s behind", self._name, self._changes, rate, behind_s)
        self._since_s, self._read, self._offset = now_s, 0, None

    def _take(self, progress: Mapping[str, Any]) -> None:
        run, batch_id = progress["runId"], int(progress["batchId"])
        # A query that is started again goes on with the number at which it failed.
        if self._last is not None and self._last[0] == run and batch_id <= self._last[1]:
            return
        end = progress["sources"][0]["endOffset"]
        if end is None or _TOTAL not in progress["durationMs"]:
            return
        offset = StreamOffset.from_json(json.loads(end) if isinstance(end, str) else end)
        if offset.batch is None:
            return
        self._last = (run, batch_id)
        self._offset = offset
        # Each lane has a begin and an end row, and one before each further part.
        control_rows = (1 + len(offset.batch.parts)) * offset.batch.layout.lanes
        self._read += max(0, int(progress["numInputRows"]) - control_rows)
        window, durations_ms = offset.batch.going_on, dict(progress["durationMs"])

        def note(batches: Batches) -> None:
            total_s = durations_ms.pop(_TOTAL) / 1000
            batches.last, batches.last_s, batches.window = batch_id, total_s, window
            batches.durations.observe(total_s)
            for phase, millis in durations_ms.items():
                batches.phases_s[phase] = batches.phases_s.get(phase, 0.0) + millis / 1000

        self._board.batch(self._name, note)
