"""Brings one table from its committed progress to the start of its next query.

The cluster, Kafka and the checkpoint come from outside, so that the decisions run without any of them in a test.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID, uuid4

from bridge.config.document import BridgeConfig, SourceConfig, TableSettings
from bridge.engine.ports import TableAccess
from bridge.engine.start_position import cursor_after_gap, edge_us, first_cursor, oldest_us, warn_of_expired_start
from bridge.engine.table.restart_policy import CheckpointTrust
from bridge.engine.table.topic_watch import ChangeTopic
from bridge.errors import BridgeError, DataLossError, RetriableError, TableMissingError
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros
from bridge.planning.data_loss import find_gap
from bridge.planning.retention import LogTtl
from bridge.planning.table_watch import TableState, describe_recreated_table
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.ownership import LaneOwnership
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from bridge.publishing.topic_identity import CurrentTopic
from bridge.reading.table_capture import describe_missing_table
from schemas.cql.table import TableSchema
from schemas.cql.table_changes import changes_between

_log = logging.getLogger(__name__)

_BEGIN_ANEW: Final = (
    "delete the change topic, or set reading.accept_data_loss for the next start if what the change topic holds may be "
    "published again: the table then starts again at reading.start"
)
_PROGRESS_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}


class Topics(Protocol):
    """Kafka's topics; every method raises RetriableError, StartupError or AccessError."""

    def ensure_topic(self, topic: str, partitions: int, config: Mapping[str, str], *, grow: bool = False) -> bool:
        """Create a topic, or add partitions with `grow`; return whether it was missing."""
        ...

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has; 0 when it does not exist."""
        ...

    def topics_now(self, topics: Sequence[str]) -> dict[str, CurrentTopic]:
        """Return the topics that exist, by name."""
        ...

    def has_records(self, topic: str) -> bool:
        """Return whether a topic holds records, or held some."""
        ...


class PlanStore(Protocol):
    """A table's checkpoint; every method raises RetriableError or BridgeError."""

    @property
    def folder(self) -> str:
        """Its path or URL."""
        ...

    @property
    def has_commits(self) -> bool:
        """Whether a micro-batch was completed under it."""
        ...

    def begin_anew(self) -> None:
        """Delete all that it keeps."""
        ...


@dataclass(frozen=True, slots=True)
class TableServices:
    """What a table's start needs from outside.

    Attributes:
        cluster: the table's cluster.
        topics: opens an admin client for Kafka.
        publisher: opens the publisher of a lane (number, fencing token), and closes it.
        checkpoint: the table's checkpoint.
        has_key_schema: whether the schema registry holds the schema of the table's keys for the change topic. Raises
            RetriableError or StartupError.
        report_lanes: receives the layout and the committed progress by lane.
    """

    cluster: TableAccess
    topics: Callable[[], Topics]
    publisher: Callable[[int, str], AbstractContextManager[LanePublisher]]
    checkpoint: PlanStore
    has_key_schema: Callable[[TableSchema], bool]
    report_lanes: Callable[[Layout, Mapping[int, LaneProgress]], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A table that is ready for its next query.

    Attributes:
        start: where the query begins.
        owner: the query's fencing token.
    """

    start: TableStart
    owner: str


class TableStarter:
    """Decides each start of one table. Not thread-safe.

    Attributes:
        name: `keyspace.table`.
    """

    def __init__(
        self, config: BridgeConfig, source: SourceConfig, services: TableServices, change_topic: ChangeTopic
    ) -> None:
        """Prepare; this asks no server.

        Args:
            config: of the whole job.
            source: of the table.
            services: what the start needs from outside.
            change_topic: the table's change topic.
        """
        self.name = f"{source.table.keyspace}.{source.table.table}"
        self._config = config
        self._source = source
        self._services = services
        self._change_topic = change_topic
        self._trust = CheckpointTrust()
        self._is_new = False
        self._had_progress = False
        self._log_warned: UUID | None = None
        self._first_schema: TableSchema | None = None

    def prepare(self, *, recovered: bool) -> Prepared:
        """Create the topics, acquire the lanes, and decide where the table goes on.

        Args:
            recovered: whether a query that was to finish the interrupted micro-batch has just ended.

        Raises:
            NoGenerationError: the table has no streams yet; asking again soon costs little.
            DataLossError: changes or progress are lost, and `reading.accept_data_loss` is not set.
            RetriableError: Kafka, ScyllaDB or the checkpoint fail, or another job is starting.
            BridgeError: a server refuses a request.
        """
        # A table that was dropped and created again may have tablets in place of vnodes, or the reverse.
        self._services.cluster.forget_streams()
        if self._is_new:
            first_cursor(self._source, self._services.cluster)
            self._is_new = False
        # A new token for each start: tasks of the query before may still run.
        owner = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        state = self._read_state()
        topics = self._services.topics()
        created, topic, partitions = self._ensure_topics(topics)
        lanes = LaneOwnership(lambda lane: self._services.publisher(lane, owner), owner)
        progress = lanes.acquire(partitions)
        if not progress:
            self._check_nothing_published(state, topics)
        start = self._decide(progress)
        start = self._learn_facts(start, state, topic, created=created, published=bool(progress))
        if progress:
            self._renew_doubted_checkpoint()
            start = self._go_beyond_gap(state, start)
        else:
            warn_of_expired_start(self._source, self._services.cluster, state)
        self._services.report_lanes(start.layout, progress)
        if start.recover:
            if recovered:
                raise RetriableError(f"{self.name}: its {start.layout.lanes} lanes do not stand level yet")
            _log.info(
                "%s: %d lanes become %d; the interrupted micro-batch is finished first",
                *(self.name, start.layout.lanes, self._source.lanes),
            )
            return Prepared(start, owner)
        self._first_schema = self._first_schema or state.schema
        if start.assign:
            self._assign(lanes, start, progress, partitions)
        _log.info("%s: %d lanes, from %s", self.name, start.layout.lanes, start.cursor)
        return Prepared(start, owner)

    def note_failure(self, *, by_spark: bool, has_query: bool, has_worked: bool) -> None:
        """Take a failure into account at the next start; `CheckpointTrust.note_failure` explains the arguments."""
        self._trust.note_failure(by_spark=by_spark, has_query=has_query, has_worked=has_worked)

    def describe_changes(self) -> str:
        """Return what has changed in the table since the job first read it; empty when nothing has, or on an error."""
        if self._first_schema is None:
            return ""
        try:
            schema = self._read_state().schema
        except BridgeError:
            return ""
        return "" if schema is None else "; ".join(changes_between(self._first_schema, schema))

    @property
    def _table(self) -> TableSettings:
        return self._source.table

    @property
    def _progress_topic(self) -> str:
        return self._config.progress_topic_of(self._table)

    def _read_state(self) -> TableState:
        state = self._services.cluster.state()
        if not state.exists:
            raise TableMissingError(describe_missing_table(self._table.keyspace, self._table.table))
        return state

    def _ensure_topics(self, topics: Topics) -> tuple[bool, CurrentTopic | None, int]:
        """Create the topics that are missing.

        Returns:
            Whether the change topic was missing; the change topic now, None when Kafka does not describe it; and the
            number of the progress topic's partitions.
        """
        change_topic = self._config.topic_of(self._table)
        created = topics.ensure_topic(change_topic, self._config.kafka.partitions, {})
        dead_letters = self._config.dead_letter_topic_of(self._table)
        if dead_letters is not None:
            topics.ensure_topic(dead_letters, 1, {})
        lanes = self._source.lanes
        topics.ensure_topic(self._progress_topic, lanes, _PROGRESS_TOPIC_CONFIG, grow=True)
        # Brokers learn of new partitions one after the other, and any of them answers.
        partitions = max(lanes, topics.partitions(self._progress_topic))
        try:
            return created, topics.topics_now([change_topic]).get(change_topic), partitions
        except BridgeError as error:
            _log.debug("%s: Kafka does not describe the change topic: %s", self.name, error)
            return created, None, partitions

    def _decide(self, progress: Mapping[int, LaneProgress]) -> TableStart:
        lanes = self._source.lanes
        if progress:
            self._had_progress = True
            return decide_start(progress, lanes, None)
        self._is_new = True
        cluster = self._services.cluster
        first = first_cursor(self._source, cluster)
        return decide_start({}, lanes, first, edge_us(self._source, first, oldest_us(self._source, cluster)))

    def _check_nothing_published(self, state: TableState, topics: Topics) -> None:
        """Check that a table without progress was not published before.

        Raises:
            DataLossError: it was. A new beginning would publish changes again, or leave changes out.
        """
        checkpoint = self._services.checkpoint
        # Until the first micro-batch is done, only this job knows that there was progress.
        if self._had_progress or checkpoint.has_commits:
            raise DataLossError(
                f"{self.name}: the progress topic {self._progress_topic} holds no cursor, but the checkpoint "
                f"{checkpoint.folder} shows that changes were published. Was the topic deleted? If so, stop the "
                f"job, delete the checkpoint, too, and {_BEGIN_ANEW}"
            )
        change_topic = self._config.topic_of(self._table)
        # Other tables may publish to the topic. Only the table's own records need the schema of its keys.
        if state.schema is None or not topics.has_records(change_topic):
            return
        if not self._services.has_key_schema(state.schema):
            return
        found = (
            f"{self.name}: the progress topic {self._progress_topic} holds no cursor and the checkpoint "
            f"{checkpoint.folder} no micro-batch, but the change topic {change_topic} has records, and the schema "
            "registry has the schema of the table's keys for it: the table seems to have been published before"
        )
        if not self._config.reading.accept_data_loss:
            raise DataLossError(
                f"{found}. Was the progress topic deleted, or were `name` or publishing.progress_topic changed? Undo "
                f"that; or stop the job and {_BEGIN_ANEW}"
            )
        _log.warning("%s; it starts again at reading.start, because reading.accept_data_loss is set", found)

    def _learn_facts(
        self, start: TableStart, state: TableState, topic: CurrentTopic | None, *, created: bool, published: bool
    ) -> TableStart:
        """Return the start with the facts of this moment, and warn of a change topic or a log that was replaced."""
        before = start.facts or TableFacts()
        known_topic = self._change_topic.begin(topic, before.topic, created=created, published=published)
        if before.log_id not in (None, state.log_id) and state.log_id != self._log_warned:
            self._log_warned = state.log_id
            _log.warning("%s: %s", self.name, describe_recreated_table(state, start.cursor))
        ttl = LogTtl(before.ttls, before.log_id)
        if state.options is not None:
            ttl = ttl.observe(state.options.ttl_s, self._servers_us(), state.log_id)
        elif ttl.log_id != state.log_id:
            ttl = LogTtl()
        return replace(start, facts=TableFacts(state.log_id, ttl.spans, known_topic))

    def _servers_us(self) -> UnixMicros:
        return self._services.cluster.server_time.servers_us()

    def _renew_doubted_checkpoint(self) -> None:
        """Recreate the checkpoint when Spark cannot use it: Spark refuses one with missing or wrong files."""
        if not self._trust.is_lost:
            return
        checkpoint = self._services.checkpoint
        checkpoint.begin_anew()
        self._trust.renew()
        _log.warning(
            "%s: Spark cannot use the checkpoint %s. The job recreates it and goes on from the progress topic",
            *(self.name, checkpoint.folder),
        )

    def _go_beyond_gap(self, state: TableState, start: TableStart) -> TableStart:
        """Return the start itself, or one behind lost changes if the loss is accepted or nothing was published yet.

        Raises:
            DataLossError: changes are lost, and the loss is not accepted.
            RetriableError: the node that answers may only lag behind.
        """
        metadata = self._services.cluster.generations()
        generations = metadata.generations()
        assert start.facts is not None
        expired_us = LogTtl(start.facts.ttls, start.facts.log_id).edge_us(self._servers_us())
        gap = find_gap(start.cursor, generations, expired_us, may_lag=metadata.may_lag, log_made_us=state.log_made_us)
        if gap is None:
            return start
        # `earliest` lies where changes expire: a table that has published nothing has only fallen behind that edge.
        restart_at = cursor_after_gap(gap, self._source, generations, expired_us) if start.first else None
        if restart_at is not None and restart_at > start.cursor:
            assert gap.until_us is not None
            wider = replace(gap, until_us=max(gap.until_us, restart_at.reached_us))
            _log.warning("%s: %s; nothing was published yet, so the table starts again behind them", self.name, wider)
            edge = edge_us(self._source, restart_at, expired_us)
            return replace(start.moved_to(restart_at, self._source.lanes), first=True, edge_us=edge)
        if gap.go_on_at == start.cursor and start.excuses(gap.until_us):
            _log.warning("%s: %s; the table has only just begun there, and goes on", self.name, gap)
            return start
        if gap.go_on_at is None or not self._config.reading.accept_data_loss:
            raise gap.error(self.name)
        _log.warning("%s: %s; going on, because reading.accept_data_loss is set", self.name, gap)
        return start.moved_to(gap.go_on_at, self._source.lanes)

    def _assign(
        self, lanes: LaneOwnership, start: TableStart, progress: Mapping[int, LaneProgress], partitions: int
    ) -> None:
        # Lanes that the layout drops get a record, too, which marks them as retired.
        layout = {
            lane: LaneProgress(
                lane,
                start.layout,
                start.layout.since,
                entered_from_ms=start.entered_from_ms,
                first=start.first,
                edge_us=start.edge_us,
                facts=start.facts,
            )
            for lane in range(partitions)
        }
        lanes.assign(layout, progress)
        self._had_progress = True
