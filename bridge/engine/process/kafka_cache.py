"""Lane publishers and clients of Kafka and of the schema registry, kept from task to task of one Python process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.adapters.registry.id_cache import SchemaIdCache
from bridge.config.document import BridgeConfig, KafkaSettings, RegistrySettings
from bridge.engine.ports import Clocks, RunningTask
from bridge.model.counters import LaneCounters
from bridge.monitoring.counters import CounterStore, process_counters
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import transactional_id
from bridge.publishing.partition_counts import PartitionCounts
from bridge.publishing.transaction_size import TransactionSize

if TYPE_CHECKING:
    from bridge.adapters.registry.client import Registry

MOST_PUBLISHERS: Final = 32
"""Lanes move from process to process, so a process would in time hold every lane of every table, and another process
would own all of them but one. A Kafka client has about six threads and as many files."""

_PROGRESS_TIMEOUT_S: Final = 60.0
_READER_LIFE_S: Final = 60.0
_TRANSACTION_PARTS: Final = 4
"""A transaction is committed after one part of its timeout; the other parts are for records that are still queued."""
_IDS_FOLDER: Final = ".scylla-cdc-bridge-schema-ids"


def connect_registry(settings: RegistrySettings, known: SchemaIdCache | None) -> Registry:
    """Return a client of the schema registry.

    Raises:
        StartupError: a secret can't be read.
        RegistryError: the address, the credentials or the TLS files are unusable.
    """
    # Planners need no registry, and this import is a fifth of the time that they take to start.
    from bridge.adapters.connect import make_registry

    return make_registry(settings, known)


@dataclass(frozen=True, slots=True)
class KafkaConnections:
    """How to connect to Kafka and to the schema registry.

    Attributes:
        producer: opens a transactional producer; takes the arguments of `TransactionalProducer`.
        progress_reader: opens a reader of committed records.
        admin: opens a client for topics.
        registry: opens a client of the schema registry, with the ids that other processes know.
    """

    producer: Callable[..., Any] = TransactionalProducer
    progress_reader: Callable[[KafkaSettings], CommittedReader] = CommittedReader
    admin: Callable[[KafkaSettings], KafkaAdmin] = KafkaAdmin
    registry: Callable[[RegistrySettings, SchemaIdCache | None], Registry] = connect_registry


class KafkaCache:
    """Keeps the lane publishers and clients of one process.

    A task drops a lane's publisher and the partition counts after an error: only Kafka knows how far it got.
    """

    def __init__(
        self,
        running_task: Callable[[], RunningTask | None],
        connections: KafkaConnections = KafkaConnections(),  # immutable
        clocks: Clocks = Clocks(),  # noqa: B008  # immutable
        counters: CounterStore = process_counters,
    ) -> None:
        """Prepare; this connects to nothing.

        Args:
            running_task: the task that this process runs at the moment; None outside tasks.
            connections: how to connect.
            clocks: of this process.
            counters: where publishers count.
        """
        self._running_task = running_task
        self._connections = connections
        self._clocks = clocks
        self._counters = counters
        # By transactional id, the least recently used one first; each with its owner.
        self._publishers: dict[str, tuple[str, LanePublisher]] = {}
        # By Kafka settings; each reader with the time at which it was opened.
        self._progress_readers: dict[str, tuple[float, CommittedReader]] = {}
        self._partition_counts: dict[str, PartitionCounts] = {}
        # What a failed attempt shows about the brokers outlives its publisher.
        self._transaction_sizes: dict[tuple[str, int], TransactionSize] = {}
        self._record_limits: dict[tuple[str, tuple[str, ...]], int | None] = {}
        self._registries: dict[str, Registry] = {}

    def publisher(self, config: BridgeConfig, keyspace: str, table: str, lane: int, owner: str) -> LanePublisher:
        """Return this process's publisher of a lane.

        Args:
            config: of the job.
            keyspace: the table's.
            table: name of the base table.
            lane: number of the lane.
            owner: who owns the table's lanes; a publisher of another owner is closed first.
        """
        name = transactional_id(config.name, keyspace, table, lane)
        if name in self._publishers and self._publishers[name][0] != owner:
            # The table's query has started again since.
            self.drop_publisher(config, keyspace, table, lane)
        if name in self._publishers:
            self._publishers[name] = self._publishers.pop(name)  # now the most recently used one
        else:
            self._evict_publishers()
            self._publishers[name] = owner, self._open_publisher(config, keyspace, table, lane, owner)
        return self._publishers[name][1]

    def drop_publisher(self, config: BridgeConfig, keyspace: str, table: str, lane: int) -> None:
        """Close a lane's publisher, if there is one; an open transaction is aborted."""
        held = self._publishers.pop(transactional_id(config.name, keyspace, table, lane), None)
        if held is not None:
            held[1].close()

    def partition_counts(self, config: BridgeConfig) -> PartitionCounts:
        """Return how many partitions the topics have, as far as this process has asked."""
        name = config.kafka.model_dump_json()
        if name not in self._partition_counts:
            self._partition_counts[name] = PartitionCounts(self._connections.admin(config.kafka).partitions)
        return self._partition_counts[name]

    def drop_partition_counts(self, config: BridgeConfig) -> None:
        """Forget what is known of the topics: a topic may have been deleted and created again."""
        name = config.kafka.model_dump_json()
        self._partition_counts.pop(name, None)
        for known in [known for known in self._record_limits if known[0] == name]:
            del self._record_limits[known]

    def registry(self, config: BridgeConfig) -> Registry:
        """Return the registry client of this process; it knows the schema ids that the executor's processes know."""
        settings = config.registry
        name = settings.model_dump_json()
        if name not in self._registries:
            self._registries[name] = self._connections.registry(settings, self._schema_id_cache(str(settings.url)))
        return self._registries[name]

    def _open_publisher(self, config: BridgeConfig, keyspace: str, table: str, lane: int, owner: str) -> LanePublisher:
        name = transactional_id(config.name, keyspace, table, lane)
        topic = config.progress_topic_of(config.table(keyspace, table))
        count = partial(self._counters.add, f"{keyspace}.{table}", lane)

        def read_progress() -> bytes | None:
            with self._progress_reader(config) as reader:
                found = reader.last_record(topic, lane, _PROGRESS_TIMEOUT_S)
                return None if found is None else found.value

        def open_producer() -> Any:
            return self._connections.producer(
                config.kafka,
                name,
                known_topic=topic,
                topics_limit=self._record_limit(config, keyspace, table),
                throttled=lambda seconds: count(LaneCounters(throttled_ms=round(seconds * 1000))),
            )

        return LanePublisher(
            open_producer,
            read_progress,
            progress_topic=topic,
            owner=owner,
            most_records=config.publishing.max_transaction_records,
            size=self._transaction_size(config),
            most_s=config.kafka.transaction_timeout_ms / 1000 / _TRANSACTION_PARTS,
            count=count,
        )

    def _transaction_size(self, config: BridgeConfig) -> TransactionSize:
        most_bytes = config.publishing.max_transaction_bytes
        name = (config.kafka.model_dump_json(), most_bytes)
        if name not in self._transaction_sizes:
            timeout_s = config.kafka.transaction_timeout_ms / 1000
            self._transaction_sizes[name] = TransactionSize(most_bytes, timeout_s)
        return self._transaction_sizes[name]

    def _evict_publishers(self) -> None:
        """Close the least recently used publishers. The driver closes those that it opens itself."""
        while self._running_task() is not None and len(self._publishers) >= MOST_PUBLISHERS:
            _, oldest = self._publishers.pop(next(iter(self._publishers)))
            oldest.close()

    @contextmanager
    def _progress_reader(self, config: BridgeConfig) -> Iterator[CommittedReader]:
        """Give a reader. A task keeps it for a while, because lanes move from process to process."""
        name = config.kafka.model_dump_json()
        opened_s, reader = self._progress_readers.pop(name, (float("-inf"), None))
        if reader is not None and self._clocks.monotonic_s() > opened_s + _READER_LIFE_S:
            # Its password or token may be outdated by the next time that it connects.
            reader.close()
            reader = None
        if reader is None:
            opened_s, reader = self._clocks.monotonic_s(), self._connections.progress_reader(config.kafka)
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        # Outside tasks several threads read progress, and a reader is for one thread.
        if self._running_task() is None:
            reader.close()
        else:
            self._progress_readers[name] = opened_s, reader

    def _record_limit(self, config: BridgeConfig, keyspace: str, table: str) -> int | None:
        """Return the largest record in bytes that all topics of a table take; None when Kafka does not tell."""
        settings = config.table(keyspace, table)
        topics = tuple(filter(None, (config.topic_of(settings), config.dead_letter_topic_of(settings))))
        name = (config.kafka.model_dump_json(), topics)
        if name not in self._record_limits:
            self._record_limits[name] = self._connections.admin(config.kafka).record_limit(topics)
        return self._record_limits[name]

    def _schema_id_cache(self, url: str) -> SchemaIdCache | None:
        """Return the executor's folder of schema ids, so that a new worker can start while the registry is down."""
        task = self._running_task()
        return None if task is None else SchemaIdCache(task.executor_folder.resolve() / _IDS_FOLDER, url)
