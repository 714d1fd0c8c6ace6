"""The publishing half of a task: a lane's changes go to Kafka from the very process that has read them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.config.document import BridgeConfig
from bridge.engine import process_cache
from bridge.engine.read_lane import LaneChanges
from bridge.errors import BridgeError, FencedError
from bridge.monitoring.counters import LaneCounters, process_counters
from bridge.monitoring.reports import LaneReport
from bridge.publishing.protocol import Remainder

if TYPE_CHECKING:
    from bridge.engine.write_lane import LaneOutput

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Publishing:
    """What a task must know to publish.

    Attributes:
        config: of the whole job.
        owner: who has taken the table's lanes over, see `bridge.publishing.lane_publisher`.
    """

    config: BridgeConfig
    owner: str


def publish_lane(publishing: Publishing, lane: LaneChanges) -> LaneReport:
    """Publish a lane's part of a micro-batch in Kafka transactions of its own; when this returns, it is committed.

    Nothing is left for Spark to commit: the lane's cursor in Kafka, not Spark's verdict on the task, says what was
    published.

    Raises:
        BridgeError: what `LaneChanges.runs`, `LaneOutput` and `bridge.publishing.lane_publisher.LanePublisher` raise.
    """
    # Imported here because planners, which know this module, need no registry: where they start cold it is a quarter of
    # that.
    from bridge.engine.write_lane import LaneOutput

    config, task = publishing.config, lane.task
    table = f"{task.keyspace}.{task.table}"
    place = (config, task.keyspace, task.table, task.lane)
    publisher = process_cache.publisher(*place, publishing.owner)
    output = LaneOutput(config, task, publisher)
    work = (table, task.batch)
    process_counters.begin_task(work, publishing.owner)
    try:
        again = process_cache.is_retry()
        left = publisher.start(task, fresh=again)
        if again:
            # The producer would wait half a minute for a topic that is no more.
            process_cache.drop_topic_sizes(config)
            process_cache.topic_sizes(config).of(config.topic_of(config.table(task.keyspace, task.table)))
        if not left.finished:
            _publish(lane, left, output)
        publisher.finish()
    except BaseException as error:
        if isinstance(error, BridgeError):
            # Spark tries again, for minutes where each try takes long, and only then says why.
            _log.warning("%s: %s", task, str(error).removeprefix(f"{task}: "))
        if isinstance(error, FencedError):
            process_counters.add(table, task.lane, LaneCounters(fencings=1))
        # Also for a killed task: whatever happened, only Kafka knows how far the transaction got.
        process_cache.drop_publisher(*place)
        process_cache.drop_topic_sizes(config)
        raise
    return LaneReport(
        table, task.lane, task.batch.next, process_counters.take_for_report(work, publishing.owner), output.poison
    )


def _publish(lane: LaneChanges, left: Remainder, output: LaneOutput) -> None:
    for part, schemas, changes in lane.runs(left.parts):
        output.turn_to(part, schemas)
        output.take(changes)
