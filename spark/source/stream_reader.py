"""Translates between Spark and the bridge: planning (in the query's planner process) and reading lanes (in tasks)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from bridge.adapters.task_processes import TaskProcesses
from bridge.config.document import SourceConfig
from bridge.engine.lane_task import Publishing, publish_lane
from bridge.engine.planner import Planner
from bridge.engine.process.memory_tuning import tune_memory
from bridge.engine.process.process_cache import ProcessCache
from bridge.engine.read_lane import LaneChanges
from bridge.model.kept_formats import StreamOffset, canonical_json
from bridge.model.table_facts import TableFacts
from bridge.publishing.lane_recovery import LaneTask
from bridge.runtime import log_setup
from spark.source import rows
from spark.source.process import CACHE


@dataclass(frozen=True, slots=True)
class LanePartition(InputPartition):
    """One lane's part of a planned micro-batch, as it travels to a task.

    Attributes:
        keyspace: of the table.
        table: its name.
        lane: number of the lane.
        offset: the micro-batch's `StreamOffset`, as canonical JSON.
        fingerprint: of the table at the planner's last look. It is no part of the plan: a replay may have another.
        facts: what the planner knows about the table (`TableFacts`), as canonical JSON; empty where the task does not
            publish. They are no part of the plan either.
    """

    keyspace: str
    table: str
    lane: int
    offset: str
    fingerprint: str = ""
    facts: str = ""

    @property
    def task(self) -> LaneTask:
        """The task in the bridge's own terms."""
        batch = StreamOffset.from_json(json.loads(self.offset)).batch
        assert batch is not None
        facts = TableFacts.from_json(json.loads(self.facts)) if self.facts else None
        return LaneTask(self.keyspace, self.table, self.lane, batch, facts)


class ScyllaCdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of one query: Spark calls it in the planner process, and `read` in the tasks.

    Args:
        config: of the source.
        planner: plans the micro-batches; tasks get the reader without it.
        publishing: what tasks need to publish; None when Spark is to get the changes themselves.
    """

    def __init__(self, config: SourceConfig, planner: Planner, publishing: Publishing | None = None) -> None:
        self._config = config
        self._planner = planner
        self._publishing = publishing

    def __getstate__(self) -> dict[str, Any]:
        """The planner stays in its process."""
        return {name: value for name, value in self.__dict__.items() if name != "_planner"}

    def initialOffset(self) -> dict[str, Any]:
        """Return the first offset of a query without a checkpoint; waits while the table has no streams yet."""
        log_setup.setup_from_environment()
        return _to_spark(self._planner.first_offset())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next micro-batch's offset, or `start` itself when nothing may be read yet."""
        log_setup.setup_from_environment()
        planned = self._planner.next_offset(StreamOffset.from_json(start))
        return start if planned is None else _to_spark(planned)

    def prepareForTriggerAvailableNow(self) -> None:
        """Plan up to this moment only."""
        self._planner.end_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[LanePartition]:
        """Return one partition for each lane of the micro-batch that ends at `end`.

        The list is empty when the micro-batch is a checkpoint's and does not agree with Kafka's progress records.
        """
        offset = StreamOffset.from_json(end)
        batch = None if start == end else self._planner.begin(offset)
        if batch is None:
            return []
        table, text = self._config.table, canonical_json(offset.to_json())
        facts = "" if self._publishing is None else canonical_json(self._planner.facts.to_json())
        return [
            LanePartition(table.keyspace, table.table, lane, text, self._planner.fingerprint, facts)
            for lane in range(batch.layout.lanes)
        ]

    def stop(self) -> None:
        """Close the planner; mostly Spark ends its process with SIGTERM instead."""
        self._planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one lane's changes in lane order; or, where the task publishes them, one row with its report."""
        assert isinstance(partition, LanePartition)
        log_setup.setup_from_environment()
        tune_memory()
        return read_partition(partition, self._config, self._publishing, CACHE)


def read_partition(
    partition: LanePartition, config: SourceConfig, publishing: Publishing | None, cache: ProcessCache
) -> Iterator[pa.RecordBatch]:
    """Read one lane's part of a micro-batch, and publish it if that is wanted.

    Args:
        partition: the lane's part.
        config: of the source.
        publishing: what the task needs to publish; None to yield the changes.
        cache: of this process.

    Yields:
        The changes in lane order (`spark.source.rows`), or one batch with the lane's report.
    """
    lane = LaneChanges(config, partition.task, partition.fingerprint, cache.scylla, is_retry=cache.is_retry)
    if publishing is not None:
        with TaskProcesses(publishing.signals).announce(partition.lane):
            report = publish_lane(publishing, lane, cache.kafka, is_retry=cache.is_retry)
        yield rows.report_batch(report)
        return
    for _, _, changes in lane.runs():
        yield from rows.change_batches(changes)


def _to_spark(offset: StreamOffset) -> dict[str, Any]:
    # Spark writes the dict as JSON in the dict's own order, and compares the text.
    plain: dict[str, Any] = json.loads(canonical_json(offset.to_json()))
    return plain
