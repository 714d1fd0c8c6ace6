"""Checks every record against what was written while both go on, and keeps what the figures are made from."""

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
    """Holds together what the writer says, what the consumers get and what the checker thinks of it. One thread.

    Attributes:
        observations: of the changes that the writer makes; what was there before is left out.
        checker: of all changes.
    """

    def __init__(
        self,
        stage: Scenario,
        registry: Registry,
        arrivals: TopicReaders,
        *,
        live_topics: Iterable[str],
        folder: Path,
        events: Path,
    ) -> None:
        """Expect the changes that are there already; the writer's follow as it acknowledges them.

        Args:
            stage: tables and recorded changes.
            registry: where the records' schemas are.
            arrivals: consumers of all tables' topics.
            live_topics: the topics of the tables that the writer writes.
            folder: where the writer says what was acknowledged.
            events: where it says what happened.
        """
        self.observations = Observations()
        self.checker = Checker(stage.tables, registry)
        self.checker.expect(stage.recorded_changes)
        self.checker.expect(stage.backlog)
        self._arrivals = arrivals
        self._live = frozenset(live_topics)
        self._written = [LineTail(written_file(folder, table)) for table in stage.simulated]
        self._events = LineTail(events)
        self._news_s = time.monotonic()

    @property
    def silent_s(self) -> float:
        """For how long nothing has been written and nothing has arrived."""
        return time.monotonic() - self._news_s

    def step(self, timeout_s: float = 0.05) -> None:
        """Take in what is new; waits up to `timeout_s` for records.

        Raises:
            BridgeError: a consumer has failed.
            RegistryError: the registry does not answer.
        """
        # First what was written: then hardly a record comes before its change is known.
        news = self._hear() | self._read_written()
        for arrived in self._arrivals.take(0.0 if news else timeout_s):
            news = True
            for record in arrived.records:
                self._take(record, arrived.at_us)
        if news:
            self._news_s = time.monotonic()

    def _take(self, record: Record, at_us: UnixMicros) -> None:
        self.checker.see(record)
        instant_us = written_us(record)
        if instant_us is None or record.topic not in self._live:
            return
        begin_us = self.observations.begin_us
        # What is older was there before anybody read.
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

    def _hear(self) -> bool:
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
