"""One captured table's part of a job: its topics, its lane layout, and its streaming query."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bridge.adapters.kafka import KafkaAdmin
from bridge.config import BridgeConfig, SourceConfig, TableSettings
from bridge.errors import RetriableError
from bridge.model.cursors import Cursor, LaneProgress, Layout, canonical_json
from bridge.publishing import LayoutDecision, decide_layout
from spark import worker
from spark.session import cores_of
from spark.source import CONFIG_OPTION, CURSOR_OPTION, LAYOUT_OPTION, UNTIL_OPTION
from spark.stream_reader import wait_for_first_cursor

_log = logging.getLogger(__name__)

_PROGRESS_TOPIC_CONFIG: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}
_LANES_AT_ONCE: Final = 16
_LOOK_EVERY_S: Final = 1


class TableQuery:
    """Brings one table from its committed progress to a running query."""

    def __init__(
        self, session: SparkSession, config: BridgeConfig, table: TableSettings, stopping: Callable[[], bool]
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            session: with source and sink registered.
            config: of the whole job.
            table: the captured table.
            stopping: whether the job was asked to stop; ends what waits here.
        """
        self._stopping = stopping
        self._session = session
        self._config = config
        self._table = table
        self.name = f"{table.keyspace}.{table.table}"
        self.lanes = table.lanes or config.spark.lanes or cores_of(config.spark)
        self._source = SourceConfig(scylla=config.scylla, table=table, reading=config.reading, lanes=self.lanes)

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps this table's plan."""
        root = str(self._config.spark.checkpoint)
        return f"{root}/{self._config.name}/{self.name}"

    def start(self, *, once: bool) -> StreamingQuery:
        """Make the topics, settle the lane layout, and start reading.

        Raises:
            BridgeError: Kafka or ScyllaDB fail, or the progress does not hold together.
        """
        self._make_topics()
        decision = self._decide(settled=False)
        if decision.settle_until is not None:
            _log.info(
                "%s: %d lanes become %d; what was planned for the old ones is finished first",
                self.name,
                decision.layout.lanes,
                self.lanes,
            )
            self._settle(self._query(decision.layout, decision.start, decision.settle_until, once=True))
            decision = self._decide(settled=True)
        if decision.initialise:
            self._write_layout(decision.layout)
        _log.info("%s: %d lanes, from %s", self.name, decision.layout.lanes, decision.start)
        return self._query(decision.layout, decision.start, None, once=once)

    def _settle(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(_LOOK_EVERY_S):
            if self._stopping():
                query.stop()
                raise RetriableError(f"{self.name}: stopped while its old lanes were being settled")

    def _make_topics(self) -> None:
        admin = KafkaAdmin(self._config.kafka)
        admin.ensure_topic(self._config.topic_of(self._table), self._config.kafka.partitions, {})
        admin.ensure_topic(self._progress_topic, self.lanes, _PROGRESS_TOPIC_CONFIG, grow=True)
        self._progress_partitions = admin.partitions(self._progress_topic)

    @property
    def _progress_topic(self) -> str:
        return self._config.progress_topic_of(self._table)

    def _decide(self, *, settled: bool) -> LayoutDecision:
        # Opening every lane fences whoever held it: from here on the progress is final.
        with ThreadPoolExecutor(_LANES_AT_ONCE) as threads:
            found = dict(threads.map(self._open_lane, range(self._progress_partitions)))
        progress = {lane: at for lane, at in found.items() if at is not None}
        first = None if progress else wait_for_first_cursor(self._source, self._stopping)
        return decide_layout(progress, self.lanes, first, settled=settled)

    def _open_lane(self, lane: int) -> tuple[int, LaneProgress | None]:
        place = (self._config, self._table.keyspace, self._table.table, lane)
        try:
            return lane, worker.publisher(*place).open()
        finally:
            worker.drop_publisher(*place)

    def _write_layout(self, layout: Layout) -> None:
        # Also to lanes that the layout drops: their records say that they are retired.
        with ThreadPoolExecutor(_LANES_AT_ONCE) as threads:
            list(threads.map(lambda lane: self._write_lane(lane, layout), range(self._progress_partitions)))

    def _write_lane(self, lane: int, layout: Layout) -> None:
        place = (self._config, self._table.keyspace, self._table.table, lane)
        try:
            worker.publisher(*place).write_progress(LaneProgress(lane, layout, layout.since))
        finally:
            worker.drop_publisher(*place)

    def _query(self, layout: Layout, start: Cursor, until: Cursor | None, *, once: bool) -> StreamingQuery:
        reader = (
            self._session.readStream.format("scylla-cdc")
            .option(CONFIG_OPTION, self._source.model_dump_json())
            .option(LAYOUT_OPTION, canonical_json(layout.to_json()))
            .option(CURSOR_OPTION, json.dumps(start.to_json()))
            .option("control", "true")
        )
        if until is not None:
            reader = reader.option(UNTIL_OPTION, json.dumps(until.to_json()))
        writer = (
            reader.load()
            .writeStream.format("scylla-cdc-kafka")
            .option(CONFIG_OPTION, self._config.model_dump_json())
            .option("checkpointLocation", self.checkpoint)
            .outputMode("append")
            .queryName(self.name if until is None else f"{self.name} (settling)")
        )
        if once:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self._config.spark.trigger_interval_ms} milliseconds")
        return writer.start()
