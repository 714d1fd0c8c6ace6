"""Counters of tasks: plain values that travel from the workers' processes to the driver.

Each process counts into its own store, `process_counters`. The next task that succeeds in the process sends the counts
with its report (`bridge.monitoring.reports`), so the counts of a failed attempt are sent later. Reports arrive when the
whole micro-batch is done. If the micro-batch fails, the process's next task of it sends the counts again. The counts of
a process that dies are lost. Processes count pages, groups and transactions, never single changes.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Final

from bridge.model.counters import CountersByLane, LaneCounters, LaneKey

BatchKey = tuple[str, Hashable]
"""A table, and one of its micro-batches."""


@dataclass(slots=True)
class _Sent:
    batch: BatchKey
    attempt: str
    counted: CountersByLane


class CounterStore:
    """Counts of this process that no report has sent yet. Thread-safe, because threads of the driver count too."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._pending: dict[LaneKey, LaneCounters] = {}
        self._sent: dict[str, _Sent] = {}

    def add(self, table: str, lane: int, counters: LaneCounters) -> None:
        """Add the counts of one lane."""
        with self._lock:
            self._counters_of(table, lane).add(counters)

    def add_all(self, counted: CountersByLane) -> None:
        """Add the counts of several lanes."""
        for table, lane, counters in counted:
            self.add(table, lane, counters)

    def begin_task(self, batch: BatchKey, attempt: str) -> None:
        """Take back the counts that an earlier attempt at the same micro-batch reported, because they did not arrive.

        Args:
            batch: the micro-batch of the task that begins.
            attempt: the attempt of the query; all tasks of a micro-batch that succeeds have the same.
        """
        with self._lock:
            sent = self._sent.get(batch[0])
            if sent is None or (sent.batch, sent.attempt) == (batch, attempt):
                return
            del self._sent[batch[0]]
        if sent.batch == batch:
            self.add_all(sent.counted)

    def take_for_report(self, batch: BatchKey, attempt: str) -> CountersByLane:
        """Remove and return the counts, for the report of a task that succeeds.

        The store keeps a copy until the next micro-batch, in case this one fails.

        Args:
            batch: the micro-batch of the task.
            attempt: the attempt of the query.
        """
        counted = self.take()
        with self._lock:
            self._sent.setdefault(batch[0], _Sent(batch, attempt, [])).counted.extend(counted)
        return counted

    def take(self) -> CountersByLane:
        """Remove and return the counts."""
        with self._lock:
            taken, self._pending = self._pending, {}
        return [(table, lane, counters) for (table, lane), counters in taken.items()]

    def count_page(self, table: str, lane: int, seconds: float, rows: int, in_flight: int, *, failed: bool) -> None:
        """Count a request to the log.

        Args:
            table: `keyspace.table`.
            lane: the lane that sent the request.
            seconds: how long the request took.
            rows: number of rows that it returned.
            in_flight: number of the lane's requests under way when it was sent, including this one.
            failed: whether it failed.
        """
        with self._lock:
            counters = self._counters_of(table, lane)
            counters.pages.observe(seconds)
            counters.log_rows += rows
            counters.page_errors += failed
            counters.most_in_flight = max(counters.most_in_flight, in_flight)

    def count_registry_call(self, table: str, lane: int, seconds: float, *, failed: bool) -> None:
        """Count a call of the schema registry that took so many seconds."""
        with self._lock:
            counters = self._counters_of(table, lane)
            counters.registry.observe(seconds)
            counters.registry_errors += failed

    def _counters_of(self, table: str, lane: int) -> LaneCounters:
        found = self._pending.get((table, lane))
        if found is None:
            found = self._pending[table, lane] = LaneCounters()
        return found


process_counters: Final = CounterStore()
"""The store of this process."""
