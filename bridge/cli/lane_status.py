"""Reads how far each lane of each table has got: the cursors that the progress topics hold.

Only Kafka is read, so the answer does not depend on whether or where the job runs.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import BridgeConfig, KafkaSettings, TableSettings
from bridge.errors import BridgeError
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMicros
from bridge.publishing.lane_recovery import transactional_id
from bridge.publishing.start_decision import current_layout
from schemas.cql.names import shown_table

READ_TIMEOUT_S: Final = 10.0
_LANES_AT_ONCE: Final = 8

LaneState = Literal["assigned", "retired", "none", "unreadable"]
"""What is known of a lane.

- `assigned`: it is in the newest lane layout, whether or not a job runs.
- `retired`: it is not in the newest lane layout.
- `none`: it has no committed cursor.
- `unreadable`: its progress could not be read; the lane's `reason` says why.
"""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane, which is one partition of the progress topic.

    Attributes:
        progress: what is committed; None unless the lane is assigned or retired.
        committed_ms: when `progress` was committed, ms since 1970.
        reason: why the lane is unreadable.
    """

    lane: int
    transactional_id: str
    state: LaneState
    progress: LaneProgress | None = None
    committed_ms: int | None = None
    reason: str | None = None

    @property
    def reached_us(self) -> UnixMicros | None:
        """Write time up to which the lane's changes are published; inside a window, that of the last group.

        While streams that a new generation opened catch up, it is the time that the slowest of them has reached.
        """
        if self.progress is None:
            return None
        cursor, done, batch = self.progress.cursor, self.progress.done, self.progress.batch
        if done is None or batch is None or len(batch.parts) > 1:
            return cursor.reached_us
        return max(cursor.reached_us, done.group.time_us)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table.

    Attributes:
        name: `keyspace.table` without quotes.
        cql_name: `keyspace.table`, quoted where CQL needs it.
        layout: the newest lane layout; None while there is no progress.
        lanes: one for each partition of the progress topic; empty while that topic does not exist.
    """

    name: str
    cql_name: str
    topic: str
    progress_topic: str
    layout: Layout | None
    lanes: tuple[LaneStatus, ...]


@dataclass(frozen=True, slots=True)
class ProgressSource:
    """Reads progress records.

    Attributes:
        partitions: returns how many partitions a topic has; 0 if there is no such topic.
        last_value: returns the last committed value of a topic's partition and its timestamp in ms; raises
            RetriableError when Kafka does not answer.
    """

    partitions: Callable[[str], int]
    last_value: Callable[[str, int], tuple[bytes, int] | None]

    @classmethod
    def of_kafka(cls, settings: KafkaSettings, admin: KafkaAdmin) -> ProgressSource:
        """Return a source that reads from Kafka."""

        def last_value(topic: str, partition: int) -> tuple[bytes, int] | None:
            # Several threads read at the same time, and a consumer serves only one.
            with CommittedReader(settings, client_id="scylla-cdc-bridge-status") as reader:
                found = reader.last_record(topic, partition, READ_TIMEOUT_S)
                return None if found is None or found.value is None else (found.value, found.timestamp_ms)

        return cls(admin.partitions, last_value)


def read_tables(config: BridgeConfig, source: ProgressSource) -> list[TableStatus]:
    """Return the status of every table, in the order of the configuration.

    Raises:
        RetriableError: Kafka does not answer.
        StartupError: Kafka refuses to let us read.
    """
    return [_read_table(config, table, source) for table in config.tables]


def _read_table(config: BridgeConfig, table: TableSettings, source: ProgressSource) -> TableStatus:
    topic = config.progress_topic_of(table)
    partitions = source.partitions(topic)

    def read_lane(lane: int) -> tuple[LaneProgress, int] | BridgeError | None:
        try:
            last = source.last_value(topic, lane)
            return None if last is None else (LaneProgress.from_bytes(last[0]), last[1])
        except BridgeError as error:  # concerns this lane alone: the status of the others is still useful
            return error

    with ThreadPoolExecutor(_LANES_AT_ONCE) as threads:
        found = dict(enumerate(threads.map(read_lane, range(partitions))))
    progress = [read[0] for read in found.values() if isinstance(read, tuple)]
    layout = current_layout(progress) if progress else None
    lanes = tuple(
        _lane_status(lane, read, layout, transactional_id(config.name, table.keyspace, table.table, lane))
        for lane, read in found.items()
    )
    return TableStatus(
        name=f"{table.keyspace}.{table.table}",
        cql_name=shown_table(table.keyspace, table.table),
        topic=config.topic_of(table),
        progress_topic=topic,
        layout=layout,
        lanes=lanes,
    )


def _lane_status(
    lane: int, read: tuple[LaneProgress, int] | BridgeError | None, layout: Layout | None, transactional_id: str
) -> LaneStatus:
    if isinstance(read, BridgeError):
        return LaneStatus(lane, transactional_id, "unreadable", reason=str(read))
    is_retired = layout is not None and lane >= layout.lanes
    if read is None:
        return LaneStatus(lane, transactional_id, "retired" if is_retired else "none")
    return LaneStatus(lane, transactional_id, "retired" if is_retired else "assigned", *read)
