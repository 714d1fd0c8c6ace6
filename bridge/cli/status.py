"""How far each lane of each table has got, as Kafka knows it: the committed cursors in the progress topics.

Only Kafka is asked, so the answer is the same whether the job runs, where it runs, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal

from bridge.adapters.kafka.clients import CommittedReader, KafkaAdmin
from bridge.config.document import BridgeConfig, KafkaSettings, TableSettings
from bridge.errors import BridgeError
from bridge.model.cql_names import shown_table
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMicros, UnixMillis, iso_of_micros, iso_of_millis
from bridge.publishing.protocol import transactional_id
from bridge.publishing.start_decision import current_layout

READ_TIMEOUT_S: Final = 10.0
_LANES_AT_ONCE: Final = 8

LaneState = Literal["laid", "retired", "none", "unreadable"]
"""`laid`: of the newest lane layout, whether or not a job works it now; `retired` by that; `none` has no committed
cursor; `unreadable` says why."""


@dataclass(frozen=True, slots=True)
class LaneStatus:
    """One lane, which is one partition of the progress topic.

    Attributes:
        progress: what is committed; None unless the lane is laid or retired.
        committed_ms: when that was committed, ms since 1970.
        reason: why it is unreadable.
    """

    lane: int
    transactional_id: str
    state: LaneState
    progress: LaneProgress | None = None
    committed_ms: int | None = None
    reason: str | None = None

    @property
    def reached_us(self) -> UnixMicros | None:
        """The write time up to which the lane's changes are published (inside a window: the last group's).

        The slowest streams count, when those that a generation opened catch up.
        """
        if self.progress is None:
            return None
        cursor, done, batch = self.progress.cursor, self.progress.done, self.progress.batch
        if done is None or batch is None or len(batch.parts) > 1:
            return cursor.reached_us
        return max(cursor.reached_us, done.group.time_us)


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table; `lanes` is empty while its progress topic does not exist or holds nothing.

    Attributes:
        name: `keyspace.table` as it is.
        shown: the same as CQL takes it.
    """

    name: str
    shown: str
    topic: str
    progress_topic: str
    layout: Layout | None
    lanes: tuple[LaneStatus, ...]


@dataclass(frozen=True, slots=True)
class ProgressSource:
    """Where the progress records come from.

    Attributes:
        partitions: how many partitions a topic has; 0 when there is no such topic.
        last_value: the last committed value of a topic's partition, and when it was written in ms; RetriableError
            when it can't be seen.
    """

    partitions: Callable[[str], int]
    last_value: Callable[[str, int], tuple[bytes, int] | None]

    @classmethod
    def of_kafka(cls, settings: KafkaSettings, admin: KafkaAdmin) -> ProgressSource:
        """The real one."""

        def last_value(topic: str, partition: int) -> tuple[bytes, int] | None:
            # A reader for each: they are read at the same time, and a consumer is one thread's.
            with CommittedReader(settings, client_id="scylla-cdc-bridge-status") as reader:
                found = reader.last_record(topic, partition, READ_TIMEOUT_S)
                return None if found is None or found.value is None else (found.value, found.timestamp_ms)

        return cls(admin.partitions, last_value)


def read(config: BridgeConfig, source: ProgressSource) -> list[TableStatus]:
    """Every table's status, in the order of the configuration.

    Raises:
        RetriableError, StartupError: Kafka does not answer, or refuses us.
    """
    return [_read_table(config, table, source) for table in config.tables]


def document(config: BridgeConfig, tables: list[TableStatus], now_us: UnixMicros) -> dict[str, Any]:
    """The status as a JSON document.

    Lag is `now_us` minus the time reached, in s; it includes the confidence window.
    """
    return {
        "v": 1,
        "job": config.name,
        "at": iso_of_micros(now_us),
        "tables": [
            {
                "table": table.name,
                "topic": table.topic,
                "progress_topic": table.progress_topic,
                "layout": None if table.layout is None else table.layout.to_json(),
                "lanes": [_lane_document(lane, now_us) for lane in table.lanes],
            }
            for table in tables
        ],
    }


COLUMNS: Final = ("table", "lane", "state", "generation", "reached", "lag (s)", "committed", "transactional id")


def rows(tables: list[TableStatus], now_us: UnixMicros) -> list[tuple[str, ...]]:
    """The status as rows under `COLUMNS`; retired lanes are left out."""
    found: list[tuple[str, ...]] = []
    for table in tables:
        lanes = [lane for lane in table.lanes if lane.state != "retired"]
        if not lanes or all(lane.state == "none" for lane in lanes):
            found.append((table.shown, "-", "no progress yet", "-", "-", "-", "-", "-"))
            continue
        for lane in lanes:
            value = _lane_document(lane, now_us)
            of = "?" if table.layout is None else str(table.layout.lanes)
            state = f"unreadable: {lane.reason}" if lane.reason else lane.state
            texts = (value["generation"], value["reached"], value["lag_s"], value["committed"])
            shown = ("-" if text is None else str(text) for text in texts)
            found.append((table.shown, f"{lane.lane} of {of}", state, *shown, lane.transactional_id))
    return found


def plain(cells: list[tuple[str, ...]]) -> str:
    """Rows as aligned lines, their header first."""
    lines = [COLUMNS, *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded) + "\n"


def _read_table(config: BridgeConfig, table: TableSettings, source: ProgressSource) -> TableStatus:
    topic = config.progress_topic_of(table)
    name = f"{table.keyspace}.{table.table}"
    partitions = source.partitions(topic)

    def read_lane(lane: int) -> tuple[LaneProgress, int] | BridgeError | None:
        try:
            last = source.last_value(topic, lane)
            return None if last is None else (LaneProgress.from_bytes(last[0]), last[1])
        except BridgeError as error:  # of this lane alone: the others are still worth knowing
            return error

    with ThreadPoolExecutor(_LANES_AT_ONCE) as threads:
        found = dict(enumerate(threads.map(read_lane, range(partitions))))
    progress = [at[0] for at in found.values() if isinstance(at, tuple)]
    layout = current_layout(progress) if progress else None
    lanes = tuple(
        _lane_status(lane, at, layout, transactional_id(config.name, table.keyspace, table.table, lane))
        for lane, at in found.items()
    )
    shown = shown_table(table.keyspace, table.table)
    return TableStatus(name, shown, config.topic_of(table), topic, layout, lanes)


def _lane_status(
    lane: int, found: tuple[LaneProgress, int] | BridgeError | None, layout: Layout | None, name: str
) -> LaneStatus:
    if isinstance(found, BridgeError):
        return LaneStatus(lane, name, "unreadable", reason=str(found))
    retired = layout is not None and lane >= layout.lanes
    if found is None:
        return LaneStatus(lane, name, "retired" if retired else "none")
    return LaneStatus(lane, name, "retired" if retired else "laid", *found)


def _lane_document(lane: LaneStatus, now_us: UnixMicros) -> dict[str, Any]:
    progress, reached_us = lane.progress, lane.reached_us
    return {
        "lane": lane.lane,
        "state": lane.state,
        "reason": lane.reason,
        "transactional_id": lane.transactional_id,
        "generation_ms": None if progress is None else progress.cursor.generation_ms,
        "generation": None if progress is None else iso_of_millis(progress.cursor.generation_ms),
        "cursor": None if progress is None else iso_of_micros(progress.cursor.time_us),
        "reached": None if reached_us is None else iso_of_micros(reached_us),
        "committed": None if lane.committed_ms is None else iso_of_millis(UnixMillis(lane.committed_ms)),
        "lag_s": None if reached_us is None else round(max(0, now_us - reached_us) / 1e6, 1),
        "layout": None if progress is None else progress.layout.to_json(),
    }
