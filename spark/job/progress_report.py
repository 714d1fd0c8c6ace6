"""Takes the lanes' reports from what Spark reports about a query's micro-batches, and logs the progress."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.streaming.query import StreamingQuery

from bridge.errors import BridgeError
from bridge.model.kept_formats import StreamOffset
from bridge.monitoring.reports import LaneReport
from bridge.monitoring.snapshot import BatchStatistics
from bridge.monitoring.state import JobState
from spark.source.report_metric import observed_reports

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.4
_LOG_EVERY_S: Final = 10.0
_TOTAL: Final = "triggerExecution"


class ProgressReport:
    """Follows the queries of one table, one at a time.

    Spark keeps the reports of the last micro-batches only (`spark.sql.streaming.numRecentProgressUpdates`).

    Attributes:
        count: how many reports there were so far, also those of queries that have nothing to read.
    """

    def __init__(
        self,
        name: str,
        job_state: JobState,
        *,
        changes_came: Callable[[], None],
        dead_letters: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without a query.

        Args:
            name: of the table.
            job_state: receives where the lanes stand, and their counts.
            changes_came: called when a micro-batch has read changes.
            dead_letters: the topic of the table's dead letters; None for none.
            clock: monotonic seconds.
        """
        self.count = 0
        self._name = name
        self._job_state = job_state
        self._changes_came = changes_came
        self._dead_letters = dead_letters
        self._last: tuple[str, str] | None = None
        self._clock = clock
        self._look_at_s = clock() + _LOOK_EVERY_S
        self._since_s = clock()
        self._changes = 0
        self._published = 0
        self._has_changes = False
        self._offset: StreamOffset | None = None

    def look(self, query: StreamingQuery, *, at_once: bool = False) -> None:
        """Take Spark's new reports if a look is due, and log the progress if that is due and something happened.

        Args:
            query: the table's query.
            at_once: whether to look even if no look is due.
        """
        now_s = self._clock()
        if now_s < self._look_at_s and not at_once:
            return
        self._look_at_s = now_s + _LOOK_EVERY_S
        for progress in self._fetch_new(query):
            self.count += 1
            self._take(progress)
        if now_s - self._since_s < _LOG_EVERY_S:
            return
        if self._offset is not None:
            self._changes += self._published
            behind_s = time.time() - self._offset.next.reached_us / 1e6
            if self._has_changes:
                rate = self._published / (now_s - self._since_s)
                _log.info("%s: %d changes, %.0f/s, %.1f s behind", self._name, self._changes, rate, behind_s)
            else:
                # A table without changes is read seldom; "behind" would look like a stall.
                _log.info("%s: nothing new; read to what was written %.1f s ago", self._name, behind_s)
        self._since_s, self._published, self._offset, self._has_changes = now_s, 0, None, False

    def sum_up(self) -> None:
        """Log how much was published in all. Call this after the last look at the last query."""
        _log.info("%s: %d changes in all", self._name, self._changes + self._published)

    def _fetch_new(self, query: StreamingQuery) -> Sequence[Mapping[str, Any]]:
        """Return what Spark has reported since the last look, oldest first."""
        # PySpark's own properties fetch and parse all kept reports each time.
        spark: Any = query._jsq  # noqa: SLF001
        last = spark.lastProgress()
        if last is None or self._mark_of(query, last) == self._last:
            return []
        found: list[Mapping[str, Any]] = []
        recent = spark.recentProgress()
        marks = []
        for at in reversed(range(len(recent))):
            marks.append(self._mark_of(query, recent[at]))
            if marks[-1] == self._last:
                marks.pop()
                break
            found.append(json.loads(recent[at].json()))
        self._last = marks[0] if marks else self._last
        return found[::-1]

    @staticmethod
    def _mark_of(query: StreamingQuery, progress: Any) -> tuple[str, str]:
        # A micro-batch's number does not identify a report: an idle report has the next number, and a query that starts
        # again goes on with the number at which it failed.
        return query.runId, progress.timestamp()

    def _take(self, progress: Mapping[str, Any]) -> None:
        end = progress["sources"][0]["endOffset"]
        if end is None or _TOTAL not in progress["durationMs"]:
            return
        offset = StreamOffset.from_json(json.loads(end) if isinstance(end, str) else end)
        if offset.batch is None:
            return
        self._take_reports(progress)
        self._offset = offset
        batch_id = int(progress["batchId"])
        window, durations_ms = offset.batch.kept_window, dict(progress["durationMs"])

        def note(batches: BatchStatistics) -> None:
            total_s = durations_ms.pop(_TOTAL) / 1000
            batches.last, batches.last_s, batches.window = batch_id, total_s, window
            batches.durations.observe(total_s)
            for phase, millis in durations_ms.items():
                batches.phases_s[phase] = batches.phases_s.get(phase, 0.0) + millis / 1000

        self._job_state.update_batches(self._name, note)

    def _take_reports(self, progress: Mapping[str, Any]) -> None:
        texts = observed_reports(progress)
        try:
            reports = [LaneReport.from_json(text) for text in texts]
        except BridgeError as error:
            # Counts are no reason to stop. Executors may run another release for a while.
            _log.warning("%s: a micro-batch's counts can't be read: %s", self._name, error)
            return
        own = [counters for one in reports for table, _, counters in one.counted if table == self._name]
        self._published += sum(counters.changes for counters in own)
        if any(counters.log_rows or counters.changes for counters in own):
            self._has_changes = True
            self._changes_came()
        for one in reports:
            if one.dead_letter_reason is not None:
                _log.warning(
                    "%s: changes became dead letters in topic %s; the first: %s",
                    *(self._name, self._dead_letters, one.dead_letter_reason),
                )
        self._job_state.add_reports(reports)
