"""Observes one captured table for its planner: its log and options, the log's TTLs, and its generations of streams."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from bridge.config.document import SourceConfig
from bridge.engine.ports import Clocks, TableAccess
from bridge.model.cursor import Cursor
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, millis_to_micros
from bridge.planning.micro_batches import GenerationStart
from bridge.planning.retention import LogTtl
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import LOOK_EVERY_S, TableState, TableWatch
from schemas.shapes.catalog import shape_of

_log = logging.getLogger(__name__)

_GENERATIONS_EVERY_S: Final = 2.0
_IDLE_PART_OF_TTL: Final = 0.25
"""The longest pause of a table without changes, as a part of its log's TTL less the confidence window."""


@dataclass(frozen=True, slots=True)
class ObservationIntervals:
    """How often the cluster is asked, in s.

    Attributes:
        state_s: from one look at the table's log, columns and options to the next.
        generations_s: from one look at the generations to the next.
    """

    state_s: float = LOOK_EVERY_S
    generations_s: float = _GENERATIONS_EVERY_S


class TableObserver:
    """Keeps what the planner knows about one table's log, and logs each change of it once.

    Attributes:
        state: the table at the last look; it does not exist before the first one.
        log_changes: how often the log became another one; the streams of the former log count for nothing then.
    """

    def __init__(
        self,
        config: SourceConfig,
        table: TableAccess,
        clocks: Clocks,
        intervals: ObservationIntervals,
        facts: TableFacts,
    ) -> None:
        """Prepare; this asks the cluster nothing.

        Args:
            config: of the source.
            table: the table's cluster.
            clocks: of this process.
            intervals: how often to ask the cluster.
            facts: what earlier jobs have learned about the table.
        """
        self._config = config
        self._table = table
        self._clocks = clocks
        self._intervals = intervals
        self._facts = facts
        self._ttl = LogTtl(facts.ttls, facts.log_id)
        self._saw_ttl_us: UnixMicros | None = None
        self._longest_pause_s = float("inf")
        self._watch = TableWatch(config.table.keyspace, config.table.table, shape_of(config.table_output.shape))
        self._looked_s = float("-inf")
        self._generations: list[GenerationStart] = []
        self._generations_read_s = float("-inf")
        self._streams: tuple[UnixMillis, int] | None = None
        self.state = TableState(None, None, None)
        self.log_changes = 0

    @property
    def server_time(self) -> ServerTime:
        """The clocks of the cluster's nodes."""
        return self._table.server_time

    @property
    def may_lag(self) -> bool:
        """Whether the node that answers may not know the latest generation yet."""
        return self._table.generations().may_lag

    @property
    def longest_pause_s(self) -> float:
        """How long a table without changes may stay unread, in s; changes that expire in a longer pause count as lost.

        Infinite where changes do not expire.
        """
        return self._longest_pause_s

    @property
    def facts(self) -> TableFacts:
        """What is known about the table so far, for the lanes' progress records."""
        log_id = self.state.log_id or self._facts.log_id
        return TableFacts(log_id, self._ttl.spans if self._ttl.log_id == log_id else (), self._facts.topic)

    def expired_us(self) -> UnixMicros | None:
        """Return the write time before which changes may have expired; None when they do not expire."""
        return self._ttl.edge_us(self.server_time.servers_us())

    def observe(self, reached: Cursor, *, at_once: bool = False) -> None:
        """Look at the table if a look is due, and log what has become of it.

        Args:
            reached: every change before it was read.
            at_once: whether to look even if no look is due yet.
        """
        now_s = self._clocks.monotonic_s()
        if now_s - self._looked_s < self._intervals.state_s and not at_once:
            return
        former, self.state = self.state, self._table.state()
        self._looked_s = now_s
        if former.log_id != self.state.log_id:
            self._forget_streams()
        if self.state.options is not None:
            self._observe_ttl(self.state.options.ttl_s)
        for notice in self._watch.compare(self.state, self._clocks.wall_us(), reached):
            _log.log(notice.level, "%s", notice.text)

    def known_generations(self) -> list[GenerationStart]:
        """Return the published generations, ascending; asks for them again if that is due."""
        now_s = self._clocks.monotonic_s()
        if now_s - self._generations_read_s >= self._intervals.generations_s:
            known, self._generations = (
                {one.start_ms for one in self._generations},
                self._table.generations().generations(),
            )
            self._generations_read_s = now_s
            for one in self._generations if known else ():
                if one.start_ms not in known:
                    _log.info(
                        "%s: generation %d is published; it begins at %s",
                        *(self._config.table.name, one.start_ms, iso_of_micros(millis_to_micros(one.start_ms))),
                    )
        return self._generations

    def stream_count(self, generation_ms: UnixMillis) -> int:
        """Return how many streams a generation has; 0 while the cluster does not know."""
        if self._streams is None or self._streams[0] != generation_ms:
            count = self._table.generations().count(generation_ms)
            if not count:
                return 0
            self._streams = generation_ms, count
        return self._streams[1]

    def _observe_ttl(self, ttl_s: int) -> None:
        now_us = self.server_time.servers_us()
        self._ttl = self._ttl.observe(ttl_s, now_us, self.state.log_id, last_look_us=self._saw_ttl_us)
        self._saw_ttl_us = now_us
        left_s = max(0.0, ttl_s - self._config.reading.confidence_ms / 1000)
        self._longest_pause_s = left_s * _IDLE_PART_OF_TTL if ttl_s else float("inf")

    def _forget_streams(self) -> None:
        # A table that was dropped and created again may have tablets in place of vnodes, or the reverse.
        self._table.forget_streams()
        self._generations_read_s = float("-inf")
        self._streams = None
        self.log_changes += 1
