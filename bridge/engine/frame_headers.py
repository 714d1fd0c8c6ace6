"""What tasks and starts ask the schema registry: the frame headers of a lane's records, and if keys have a schema."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from bridge.adapters.connect import call_registry_while_running
from bridge.adapters.registry import registration
from bridge.adapters.registry.client import Registry
from bridge.config.document import BridgeConfig
from bridge.monitoring.counters import CounterStore
from bridge.publishing.lane_recovery import LaneTask
from schemas.cql.table import TableSchema
from schemas.record_schemas import key_schema, schema_text
from schemas.wire import framing
from schemas.wire.subjects import Part


class FrameHeaders:
    """Registers a lane's schemas, or looks them up, and counts the registry's answers."""

    def __init__(
        self, config: BridgeConfig, task: LaneTask, registry: Callable[[], Registry], counters: CounterStore
    ) -> None:
        """Prepare; this asks the registry nothing.

        Args:
            config: of the job.
            task: the lane's part of the micro-batch.
            registry: gives the client.
            counters: where the registry's answers are counted.
        """
        self._settings = config.registry
        self._task = task
        self._registry = registry
        self._counters = counters

    def header(self, topic: str, part: Part, avro_schema: str) -> bytes:
        """Return the bytes that precede each key or value of a schema.

        Args:
            topic: of the records.
            part: whether the schema is that of their keys or of their values.
            avro_schema: as JSON text.

        Raises:
            StartupError: the registry refuses the schema, or is no registry.
            RetriableError: the registry does not answer, refuses the credentials, or lacks a schema.
        """
        registry = self._registry()
        calls, asked_s, failed = registry.calls, perf_counter(), True
        try:
            schema_id = call_registry_while_running(
                lambda: registration.schema_id(registry, self._settings, topic, part, avro_schema)
            )
            failed = False
        finally:
            if registry.calls > calls:
                task, took_s = self._task, perf_counter() - asked_s
                self._counters.count_registry_call(task.table_name, task.lane, took_s, failed=failed)
        return framing.header(schema_id)


def has_key_schema(config: BridgeConfig, registry: Callable[[], Registry], table: TableSchema) -> bool:
    """Return whether the registry holds the schema of a table's keys in the subject of its change topic.

    Args:
        config: of the job.
        registry: gives the client.
        table: the captured table.

    Raises:
        StartupError: the registry refuses the request, or is no registry.
        RetriableError: the registry does not answer, or refuses the credentials.
    """
    settings = config.table(table.keyspace, table.name)
    text = schema_text(key_schema(table, config.output_of(settings).options(config.name)))
    subject = config.registry.subject_of(config.topic_of(settings), "key", text)
    return call_registry_while_running(lambda: registry().find(subject, text)) is not None
