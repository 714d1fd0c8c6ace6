"""A table with its cluster, its topics, its lanes in a broker in memory, and its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bridge.config.document import BridgeConfig, SourceConfig, validate
from bridge.engine.table.start import TableServices, TableStarter
from bridge.engine.table.topic_watch import ChangeTopic
from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.table_start import TableStart
from bridge.publishing.topic_identity import ChangeTopicMessages, CurrentTopic
from bridge.publishing.transaction_size import TransactionSize
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import parse
from tests.unit.bridge.engine.planner_fakes import Cluster
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

LANES = 3
_TTL_S = 991
_SCHEMA = TableSchema("ks", "t", (Column("id", parse("int"), ColumnKind.PARTITION_KEY, 0),))


def at(time_us: int) -> Cursor:
    return Cursor(UnixMillis(1), UnixMicros(time_us))


FORMER = Layout(2, at(1_000_000))
BATCH = PlannedBatch(at(2_000_000), at(3_000_000), FORMER)
UNEVEN = {0: LaneProgress.completed(0, BATCH), 1: LaneProgress(1, FORMER, BATCH.start)}
LEVEL = {lane: LaneProgress.completed(lane, BATCH) for lane in range(2)}


def config_of() -> BridgeConfig:
    return validate(
        {
            "name": "job",
            "scylla": {"contact_points": "127.0.0.1:9042"},
            "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
            "registry": {"url": "http://127.0.0.1:8081"},
            "tables": [{"name": "ks.t", "lanes": LANES}],
        }
    )


class Topics:
    """Kafka's topics: `missing` ones are created, and `current` ones described unless there is a `refusal`.

    Attributes:
        filled: topics with records.
    """

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.filled: set[str] = set()
        self.current: dict[str, CurrentTopic] = {}
        self.refusal: BridgeError | None = None

    def ensure_topic(self, topic: str, _partitions: int, _config: Mapping[str, str], *, grow: bool = False) -> bool:
        del grow
        return topic in self.missing

    def partitions(self, _topic: str) -> int:
        return LANES

    def has_records(self, topic: str) -> bool:
        return topic in self.filled

    def topics_now(self, topics: Sequence[str]) -> dict[str, CurrentTopic]:
        if self.refusal is not None:
            raise self.refusal
        return {topic: self.current[topic] for topic in topics if topic in self.current}


class Plan:
    """A checkpoint; counts how often it was recreated."""

    def __init__(self) -> None:
        self.folder, self.has_commits, self.begun_anew = "c", False, 0

    def begin_anew(self) -> None:
        self.begun_anew += 1


class Table:
    """Starts `ks.t` as one job after the other does.

    Attributes:
        owners: fencing tokens of the publishers that were opened.
        has_key_schema: whether the registry has the schema of the table's keys.
    """

    def __init__(self) -> None:
        self.cluster = Cluster(starts=[UnixMillis(1)], now_us=10**9, schema=_SCHEMA)
        self.broker, self.topics, self.plan = Broker(), Topics(), Plan()
        self.owners: list[str] = []
        self.has_key_schema = False
        self.config = config_of()
        self.restart_job()

    def restart_job(self, start: str = "earliest", *, accept_data_loss: bool = False) -> None:
        """Another process comes up, with this `reading.start`."""
        reading = self.config.reading.model_copy(update={"accept_data_loss": accept_data_loss})
        self.config = self.config.model_copy(update={"reading": reading})
        table = self.config.tables[0]
        source = SourceConfig.model_validate(
            {"scylla": self.config.scylla, "table": table, "reading": {"start": start}, "lanes": LANES}
        )
        messages = ChangeTopicMessages("ks.t", "ks.t", 12, "job.progress.ks.t", self.plan.folder)
        services = TableServices(
            self.cluster,
            lambda: self.topics,
            self._open_lane,
            self.plan,
            lambda _schema: self.has_key_schema,
            lambda _layout, _progress: None,
        )
        change_topic = ChangeTopic(messages, clock=lambda: UnixMicros(5))
        self.starter = TableStarter(self.config, source, services, change_topic)

    @contextmanager
    def _open_lane(self, lane: int, owner: str) -> Iterator[LanePublisher]:
        self.owners.append(owner)
        publisher = LanePublisher(
            lambda: Client(self.broker, f"id{lane}"),
            lambda: self.broker.markers.get(lane),
            progress_topic=PROGRESS,
            owner=owner,
            most_records=5,
            size=TransactionSize(10**9, 60.0),
        )
        try:
            yield publisher
        finally:
            publisher.close()

    @property
    def progress(self) -> dict[int, LaneProgress]:
        """What the lanes have committed."""
        return {lane: LaneProgress.from_bytes(raw) for lane, raw in self.broker.markers.items()}

    def commit(self, progress: Mapping[int, LaneProgress]) -> None:
        """Have the lanes stand there."""
        self.broker.markers.update({lane: one.to_bytes() for lane, one in progress.items()})

    def stand_at_layout(self, *, first: bool) -> Layout:
        """Have the lanes stand at the start of their layout."""
        layout = Layout(LANES, at(2_000_000))
        self.commit({lane: LaneProgress(lane, layout, layout.since, first=first) for lane in range(LANES)})
        return layout

    def expire_before(self, edge_us: int) -> None:
        """Give the log a TTL that has passed for what was written before the edge."""
        self.cluster.ttl_s, self.cluster.now_us = _TTL_S, edge_us + _TTL_S * 10**6

    def start(self, *, recovered: bool = False) -> TableStart:
        """Start the table."""
        return self.starter.prepare(recovered=recovered).start


def warnings_of(caplog: Any) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
