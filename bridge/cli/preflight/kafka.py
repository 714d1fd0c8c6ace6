"""Checks Kafka and the settings of existing topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.adapters.connect import Report, open_kafka
from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.config.document import BridgeConfig, TableSettings
from bridge.errors import RetriableError, StartupError
from schemas.shapes.catalog import shape_of


def check_kafka(config: BridgeConfig, report: Report, patience_s: float) -> KafkaAdmin:
    """Check that Kafka answers, and report topics that would lose records.

    Raises:
        StartupError: Kafka does not answer in time, or refuses.
    """
    admin = open_kafka(config, report=report, patience_s=patience_s)
    report(f"Kafka at {', '.join(config.kafka.bootstrap_servers)} answers")
    topics = {topic for table in config.tables for topic in (config.topic_of(table), config.progress_topic_of(table))}
    try:
        settings = admin.topic_settings(sorted(topics))
    except RetriableError as error:
        raise StartupError(str(error)) from error
    for table in config.tables:
        for line in find_losing_topics(config, table, settings):
            report(line)
    return admin


def find_losing_topics(
    config: BridgeConfig, table: TableSettings, settings: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a line for each topic of a table whose cleanup policy removes records that are needed.

    Args:
        config: the job's configuration.
        table: the table.
        settings: the settings of existing topics, by topic.
    """
    progress, change = config.progress_topic_of(table), config.topic_of(table)
    policy = settings.get(progress, {}).get("cleanup.policy", "compact")
    if "delete" in policy:
        yield (
            f"progress topic {progress}: its cleanup.policy is {policy}, so Kafka deletes the cursors of a table that "
            "does not advance for longer than the retention; set it to compact"
        )
    policy, shape = settings.get(change, {}).get("cleanup.policy", "delete"), config.output_of(table).shape
    if "compact" in policy and not shape_of(shape).by_row:
        yield (
            f"change topic {change}: its cleanup.policy is {policy}, so Kafka keeps only the last change of each key, "
            f"but consumers of the shape {shape} need all of them; set it to delete, or choose another shape"
        )


def has_progress(config: BridgeConfig, admin: KafkaAdmin, table: TableSettings) -> bool:
    """Return whether a table's progress topic holds records."""
    topic = config.progress_topic_of(table)
    with CommittedReader(config.kafka, client_id="scylla-cdc-bridge-preflight") as reader:
        return any(reader.end(topic, lane) > 0 for lane in range(admin.partitions(topic)))
