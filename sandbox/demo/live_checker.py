"""Checks every published record against the written changes while the demo runs, and keeps the measurements."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bridge.adapters.kafka.records import Record
from bridge.adapters.registry.client import Registry
from bridge.model.times import UnixMicros
from sandbox.demo.report.observations import GenerationMark, Observations
from sandbox.demo.scenario import Scenario
from sandbox.demo.tail import LineTail
from sandbox.demo.topic_readers import TopicReaders
from sandbox.demo.writer import written_file
from sandbox.scylla.oracle import ExpectedChange
from sandbox.verify.checker import Checker, written_us

_PORTION_BYTES: Final = 256 * 1024


class LiveChecker:
    """Feeds the checker with written changes and arrived records. Not thread-safe.

    Attributes:
        observations: measurements of the writer's changes, without those that existed before.
        checker: checks all changes.
    """

    def __init__(
        self,
        scenario: Scenario,
        registry: Registry,
        readers: TopicReaders,
        *,
        live_topics: Iterable[str],
        folder: Path,
        events: Path,
    ) -> None:
        """Expect the changes that exist already. `step` adds the writer's changes.

        Args:
            scenario: tables and changes that exist already.
            registry: registry with the records' schemas.
            readers: readers of the topics of all tables.
            live_topics: topics of the tables that the writer writes.
            folder: folder with the writer's files of acknowledged changes.
            events: the writer's file of events.
        """
        self.observations = Observations()
        self.checker = Checker(scenario.tables, registry)
        self.checker.expect(scenario.recorded_changes)
        self.checker.expect(scenario.backlog)
        self._readers = readers
        self._live_topics = frozenset(live_topics)
        self._written = [LineTail(written_file(folder, table)) for table in scenario.simulated]
        self._events = LineTail(events)
        self._news_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """Seconds since the last write or arrival."""
        return time.monotonic() - self._news_s

    def step(self, timeout_s: float = 0.05) -> None:
        """Process new events, written changes and records; wait up to `timeout_s` for records.

        Raises:
            BridgeError: a consumer has failed.
            RegistryError: the registry does not answer.
        """
        # Written changes first, because a record should not be checked before its change is known.
        news = self._read_events() | self._read_written()
        for arrived in self._readers.take(0.0 if news else timeout_s):
            news = True
            for record in arrived.records:
                self._check_record(record, arrived.at_us)
        if news:
            self._news_s = time.monotonic()

    def _check_record(self, record: Record, at_us: UnixMicros) -> None:
        self.checker.see(record)
        instant_us = written_us(record)
        if instant_us is None or record.topic not in self._live_topics:
            return
        begin_us = self.observations.begin_us
        # Older changes existed before the bridge started.
        if begin_us is not None and instant_us >= begin_us:
            self.observations.arrive(at_us, instant_us)

    def _read_written(self) -> bool:
        news = False
        for tail in self._written:
            changes = [ExpectedChange.from_json(line) for line in tail.lines(_PORTION_BYTES)]
            self.checker.expect(changes)
            self.observations.written_us.extend(change.timestamp_us for change in changes)
            news = news or bool(changes)
        return news

    def _read_events(self) -> bool:
        seen, lines = self.observations, self._events.lines()
        for line in lines:
            match json.loads(line):
                case {"event": "begin", "at_us": at_us}:
                    seen.begin_us = UnixMicros(at_us)
                case {"event": "generation", "start_ms": start_ms}:
                    seen.generations[start_ms] = GenerationMark(start_ms)
                case {"event": "published", "start_ms": start_ms, "at_us": at_us}:
                    seen.generations[start_ms].published_us = UnixMicros(at_us)
                case {"event": "end", "at_us": at_us}:
                    seen.end_us = UnixMicros(at_us)
        return bool(lines)
