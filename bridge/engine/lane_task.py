"""The publishing half of a task: the process that reads a lane's changes publishes them to Kafka itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.config.document import BridgeConfig
from bridge.engine.process.kafka_cache import KafkaCache
from bridge.engine.read_lane import LaneChanges
from bridge.errors import BridgeError, FencedError
from bridge.model.counters import LaneCounters
from bridge.monitoring.counters import CounterStore, process_counters
from bridge.monitoring.reports import LaneReport
from bridge.publishing.lane_recovery import LaneTask, Remainder

if TYPE_CHECKING:
    from bridge.engine.write_lane import FrameHeader, LaneOutput
    from bridge.publishing.lane_publisher import LanePublisher

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publishing:
    """What a task needs to publish.

    Attributes:
        config: of the whole job.
        owner: the owner of the table's lanes that planned the task; a lane of another owner is not written
            (`bridge.publishing.ownership`).
        signals: path of the file for signals (`bridge.adapters.planner_signals`), beside which a task announces its
            process to the job; None when there is no job.
    """

    config: BridgeConfig
    owner: str
    signals: str | None = None


def publish_lane(
    publishing: Publishing,
    lane: LaneChanges,
    cache: KafkaCache,
    *,
    is_retry: bool,
    frame_header: FrameHeader | None = None,
    counters: CounterStore = process_counters,
) -> LaneReport:
    """Publish a lane's part of a micro-batch in Kafka transactions of its own; on return, all of it is committed.

    Spark has nothing to commit: the lane's cursor in Kafka records what was published, not Spark's state of the task.

    Args:
        publishing: how to publish.
        lane: the lane's part of the micro-batch.
        cache: of this process.
        is_retry: whether Spark has tried the task before.
        frame_header: gives a schema's frame header; None to ask the schema registry.
        counters: where to count.

    Raises:
        BridgeError: what `LaneChanges.runs`, `LaneOutput` and `bridge.publishing.lane_publisher.LanePublisher` raise.
    """
    # Planners import this module but need no registry; its import is a quarter of the time that they take to start.
    from bridge.engine.write_lane import LaneOutput

    config, task = publishing.config, lane.task
    key = (config, task.keyspace, task.table, task.lane)
    publisher = cache.publisher(*key, publishing.owner)
    header = frame_header or _registered_header(config, task, cache, counters)
    output = LaneOutput(config, task, publisher, header, lambda topic: cache.partition_counts(config).of(topic))
    work = (task.table_name, task.batch)
    counters.begin_task(work, publishing.owner)
    try:
        left = publisher.start(task, fresh=is_retry)
        if is_retry:
            _check_change_topic(config, task, cache)
        if not left.finished:
            _publish_remainder(lane, left, output, publisher)
        publisher.finish()
    except BaseException as error:
        if isinstance(error, BridgeError):
            _report_failure(task, error, counters)
        # For a killed task as well: only Kafka knows how far the transaction got.
        cache.drop_publisher(*key)
        cache.drop_partition_counts(config)
        raise
    counted = counters.take_for_report(work, publishing.owner)
    return LaneReport(task.table_name, task.lane, task.batch.next, counted, output.dead_letter_reason)


def _report_failure(task: LaneTask, error: BridgeError, counters: CounterStore) -> None:
    """Log and count a failed attempt: Spark retries, perhaps for minutes, and reports only the last error."""
    _log.warning("%s: %s", task, str(error).removeprefix(f"{task}: "))
    if isinstance(error, FencedError):
        counters.add(task.table_name, task.lane, LaneCounters(fencings=1))


def _check_change_topic(config: BridgeConfig, task: LaneTask, cache: KafkaCache) -> None:
    """Ask Kafka for the change topic: the producer would wait half a minute for a topic that was deleted."""
    cache.drop_partition_counts(config)
    cache.partition_counts(config).of(config.topic_of(config.table(task.keyspace, task.table)))


def _publish_remainder(lane: LaneChanges, left: Remainder, output: LaneOutput, publisher: LanePublisher) -> None:
    for part, schemas, changes in lane.runs(left.parts, while_waiting=publisher.commit_if_full):
        output.switch_to(part, schemas)
        output.publish(changes)


def _registered_header(config: BridgeConfig, task: LaneTask, cache: KafkaCache, counters: CounterStore) -> FrameHeader:
    from bridge.engine.frame_headers import FrameHeaders

    return FrameHeaders(config, task, lambda: cache.registry(config), counters).header
