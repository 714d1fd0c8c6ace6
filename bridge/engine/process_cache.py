"""What one Python process keeps from task to task: sessions, codecs, registries and lane publishers.

PySpark reuses worker processes, and functions of an importable module keep its globals: opening a session or a
transactional id for every task would cost more than the work itself. Nothing here outlives an exception that leaves its
state unknown: `drop_*` is called and the next task opens anew.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import SparkFiles, TaskContext

from bridge.adapters.kafka.admin import KafkaAdmin
from bridge.adapters.kafka.consumer import CommittedReader
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.adapters.registry.id_cache import SchemaIdCache
from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession
from bridge.adapters.scylla.stream_metadata import StreamMetadata, Streams, select
from bridge.config.document import BridgeConfig, ScyllaSettings
from bridge.model.key_ranges import KeyRange
from bridge.model.micro_batch import Selection
from bridge.model.streams import StreamId, TokenRange
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.counters import LaneFigures, tally
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import CdcOptions, TableState
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.partition_counts import PartitionCounts
from bridge.publishing.protocol import LaneTask, transactional_id
from bridge.reading.table_capture import CapturedTable, capture
from schemas.options import OutputOptions

if TYPE_CHECKING:
    from bridge.adapters.registry.client import Registry

_PROGRESS_TIMEOUT_S: Final = 60.0
_READER_LIFE_S: Final = 60.0
_TIMES_IN_TIMEOUT: Final = 4
"""Into this many parts a transaction's timeout is cut: it is committed after one, the others are for what is queued."""
_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
_M_MXFAST: Final = 1
"""Of glibc's `mallopt`: the largest piece that is kept in such a list, in bytes."""
_IDS_FOLDER: Final = ".scylla-cdc-bridge-schema-ids"

_logs: dict[str, ChangeLog] = {}
_times: dict[str, ServerTime] = {}
_tables: dict[tuple[str, str, str, OutputOptions], _Known] = {}
_metadata: dict[tuple[str, str, str], StreamMetadata] = {}
_streams: dict[tuple[str, str, str, UnixMillis, TokenRange], Streams] = {}
_key_ranges: dict[tuple[str, str, str, UnixMillis, TokenRange], Mapping[StreamId, KeyRange]] = {}
_publishers: dict[str, tuple[str, LanePublisher]] = {}
_sizes: dict[str, PartitionCounts] = {}
_readers: dict[str, tuple[float, CommittedReader]] = {}
_limits: dict[tuple[str, tuple[str, ...]], int | None] = {}
_registries: dict[str, Registry] = {}

MOST_PUBLISHERS: Final = 32
"""Lanes do not stay in a process, so each would in time hold every lane of every table, of all but one of which another
process is the owner by then: a client of Kafka has some half a dozen threads and as many files."""


@dataclass(slots=True)
class _Known:
    """A captured table, and under which fingerprint of the planner's it was looked at last."""

    table: CapturedTable
    fingerprint: str


@cache
def settle_memory() -> None:
    """Fit this process's memory to its work, once.

    What is loaded leaves the garbage collector's sight: PySpark collects garbage after every task, and with the
    libraries' objects in it that was nearly all of a small micro-batch's CPU time.
    """
    gc.collect()
    gc.freeze()
    # Nothing that is made for each change is part of a cycle: looking for some after each 700 objects is 5 % of all.
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # The Kafka client takes a few small pieces for each record, and lets go of tens of thousands at a commit. glibc
    # keeps those in lists that it walks through piece by piece later on: up to half of all that the client takes.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none, nor such lists
    if mallopt is not None:
        mallopt(_M_MXFAST, 0)


def is_retry() -> bool:
    """Whether Spark has tried the task that runs here before; False where no task does."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def change_log(settings: ScyllaSettings) -> ChangeLog:
    """This process's connection to a cluster."""
    name = settings.model_dump_json()
    if name not in _logs:
        _logs[name] = ChangeLog(CqlSession.connect(settings))
    return _logs[name]


def server_time(settings: ScyllaSettings) -> ServerTime:
    """What time it is for a cluster's nodes; for one thread."""
    name = settings.model_dump_json()
    if name not in _times:
        _times[name] = ServerTime(
            lambda: change_log(settings).node_time_us(),
            lambda: UnixMicros(time.time_ns() // 1000),
            time.monotonic,
        )
    return _times[name]


def captured_table(
    settings: ScyllaSettings, keyspace: str, table: str, output: OutputOptions, fingerprint: str
) -> CapturedTable:
    """A table's reader and codec, compiled once for its present columns.

    Args:
        settings: of the cluster.
        keyspace: the table's.
        table: name of the base table.
        output: what its changes are to look like.
        fingerprint: of the table as the planner saw it last: with another one the table is looked at anew, since not
            every change of it shows in the log's columns (a static column that becomes a regular one, for one).

    Raises:
        TableMissingError, UnsettledSchemaError, BridgeError: see `bridge.reading.table_capture.capture`.
    """
    known = _tables.get((settings.model_dump_json(), keyspace, table, output))
    if known is None or known.fingerprint != fingerprint:
        return recaptured_table(settings, keyspace, table, output, fingerprint)
    return known.table


def recaptured_table(
    settings: ScyllaSettings, keyspace: str, table: str, output: OutputOptions, fingerprint: str
) -> CapturedTable:
    """The same as it is now, whatever is known of it."""
    found = capture(change_log(settings), keyspace, table, output)
    _tables[settings.model_dump_json(), keyspace, table, output] = _Known(found, fingerprint)
    return found


def stream_metadata(settings: ScyllaSettings, keyspace: str, table: str) -> StreamMetadata:
    """What says which streams a table's log has; kept, because some of its answers are only taken once."""
    name = (settings.model_dump_json(), keyspace, table)
    if name not in _metadata:
        _metadata[name] = change_log(settings).stream_metadata(keyspace, table)
    return _metadata[name]


def lane_streams(settings: ScyllaSettings, task: LaneTask, selection: Selection) -> Streams:
    """The streams of a lane that a selection names, with the generations that opened them."""
    place = (task.keyspace, task.table)
    slice_ = task.batch.layout.token_range(task.lane)

    def of(generation_ms: UnixMillis) -> Streams:
        name = (settings.model_dump_json(), *place, generation_ms, slice_)
        if name not in _streams:
            # The lane is in this generation or between two; what came before is over.
            for old in [old for old in _streams if old[:3] == name[:3] and old[4] == slice_][:-1]:
                del _streams[old]
            _streams[name] = stream_metadata(settings, *place).streams(generation_ms, slice_)
        return _streams[name]

    before = {} if selection.before_ms is None else of(selection.before_ms)
    return select(selection, of(selection.generation_ms), before)


def lane_key_ranges(settings: ScyllaSettings, task: LaneTask, selection: Selection) -> Mapping[StreamId, KeyRange]:
    """Whose keys those streams hold; asked for once a generation."""
    place = (task.keyspace, task.table)
    slice_ = task.batch.layout.token_range(task.lane)
    name = (settings.model_dump_json(), *place, selection.newest_generation_ms, slice_)
    if name not in _key_ranges:
        for old in [old for old in _key_ranges if old[:3] == name[:3] and old[4] == slice_][:-1]:
            del _key_ranges[old]
        _key_ranges[name] = stream_metadata(settings, *place).key_ranges(selection.newest_generation_ms, slice_)
    return _key_ranges[name]


def drop_metadata(settings: ScyllaSettings, keyspace: str, table: str) -> None:
    """Forget which streams a table has, and of which kind they are."""
    _metadata.pop((settings.model_dump_json(), keyspace, table), None)


class CachedTable:
    """A `bridge.engine.ports.TableAccess` over this process's connection."""

    def __init__(self, settings: ScyllaSettings, keyspace: str, table: str) -> None:
        """Prepare; this asks the cluster nothing.

        Args:
            settings: of the cluster.
            keyspace: the table's.
            table: name of the base table.
        """
        self._settings = settings
        self._keyspace = keyspace
        self._table = table

    @property
    def address(self) -> str:
        """The cluster's contact points."""
        return change_log(self._settings).session.address

    @property
    def server_time(self) -> ServerTime:
        """The clocks of the cluster's nodes."""
        return server_time(self._settings)

    def state(self) -> TableState:
        """Return the table as it is now."""
        return change_log(self._settings).table_state(self._keyspace, self._table)

    def cdc_options(self) -> CdcOptions | None:
        """Return the table's CDC options as they are now."""
        return change_log(self._settings).cdc_options(self._keyspace, self._table)

    def generations(self) -> StreamMetadata:
        """Return the source of the log's generations."""
        return stream_metadata(self._settings, self._keyspace, self._table)

    def forget_streams(self) -> None:
        """Forget which streams the table has."""
        drop_metadata(self._settings, self._keyspace, self._table)

    def disconnect(self) -> None:
        """Forget the cluster's connection."""
        drop_cluster(self._settings)


def drop_cluster(settings: ScyllaSettings) -> None:
    """Forget a cluster's connection and everything that was learned over it."""
    name = settings.model_dump_json()
    log = _logs.pop(name, None)
    for table in [known for known in _tables if known[0] == name]:
        del _tables[table]
    for place in [known for known in _metadata if known[0] == name]:
        del _metadata[place]
    for generation in [known for known in _streams if known[0] == name]:
        del _streams[generation]
    for generation in [known for known in _key_ranges if known[0] == name]:
        del _key_ranges[generation]
    if log is not None:
        log.session.close()


def publisher(config: BridgeConfig, keyspace: str, table: str, lane: int, owner: str) -> LanePublisher:
    """This process's holder of a lane's transactional id; `owner` as of the lane publisher."""
    name = transactional_id(config.name, keyspace, table, lane)
    if name in _publishers and _publishers[name][0] != owner:
        # The table's query was started anew since.
        drop_publisher(config, keyspace, table, lane)
    if name in _publishers:
        _publishers[name] = _publishers.pop(name)  # used last
    else:
        _make_room()
        topic = config.progress_topic_of(config.table(keyspace, table))

        def read_progress() -> bytes | None:
            with _progress_reader(config) as reader:
                found = reader.last_record(topic, lane, _PROGRESS_TIMEOUT_S)
                return None if found is None else found.value

        def producer() -> TransactionalProducer:
            return TransactionalProducer(
                config.kafka,
                name,
                known_topic=topic,
                topics_limit=_topics_limit(config, keyspace, table),
                throttled=lambda seconds: tally.add(
                    f"{keyspace}.{table}", lane, LaneFigures(throttled_ms=round(seconds * 1000))
                ),
            )

        made = LanePublisher(
            producer,
            read_progress,
            progress_topic=topic,
            owner=owner,
            most_records=config.publishing.max_transaction_records,
            most_bytes=config.publishing.max_transaction_bytes,
            most_s=config.kafka.transaction_timeout_ms / 1000 / _TIMES_IN_TIMEOUT,
            count=partial(tally.add, f"{keyspace}.{table}", lane),
        )
        _publishers[name] = (owner, made)
    return _publishers[name][1]


def _make_room() -> None:
    """Let go of the lanes that were worked here longest ago. The driver opens lanes side by side, and drops them."""
    while TaskContext.get() is not None and len(_publishers) >= MOST_PUBLISHERS:
        _, oldest = _publishers.pop(next(iter(_publishers)))
        oldest.close()


@contextmanager
def _progress_reader(config: BridgeConfig) -> Iterator[CommittedReader]:
    """A reader for the moment; in a task one that is kept for a while, as lanes go from process to process."""
    name = config.kafka.model_dump_json()
    made_s, reader = _readers.pop(name, (float("-inf"), None))
    if reader is not None and time.monotonic() > made_s + _READER_LIFE_S:
        # The longer it lives the staler are the password and the token that it would connect with.
        reader.close()
        reader = None
    if reader is None:
        made_s, reader = time.monotonic(), CommittedReader(config.kafka)
    try:
        yield reader
    except BaseException:
        reader.close()
        raise
    # Elsewhere there are several threads, and a reader is for one.
    if TaskContext.get() is None:
        reader.close()
    else:
        _readers[name] = made_s, reader


def _topics_limit(config: BridgeConfig, keyspace: str, table: str) -> int | None:
    """The largest record that all topics of a table take; None where it is not known. Asked for once."""
    settings = config.table(keyspace, table)
    topics = tuple(filter(None, (config.topic_of(settings), config.dead_letter_topic_of(settings))))
    name = (config.kafka.model_dump_json(), topics)
    if name not in _limits:
        _limits[name] = KafkaAdmin(config.kafka).record_limit(topics)
    return _limits[name]


def drop_publisher(config: BridgeConfig, keyspace: str, table: str, lane: int) -> None:
    """Let go of a lane's transactional id after an error: only Kafka knows how far it got."""
    held = _publishers.pop(transactional_id(config.name, keyspace, table, lane), None)
    if held is not None:
        held[1].close()


def topic_sizes(config: BridgeConfig) -> PartitionCounts:
    """What this process knows of the topics' partitions; a client of its own asks for them."""
    name = config.kafka.model_dump_json()
    if name not in _sizes:
        _sizes[name] = PartitionCounts(KafkaAdmin(config.kafka).partitions)
    return _sizes[name]


def drop_topic_sizes(config: BridgeConfig) -> None:
    """Forget it after an error: a topic that was made anew may have fewer partitions, or take smaller records."""
    name = config.kafka.model_dump_json()
    _sizes.pop(name, None)
    for known in [known for known in _limits if known[0] == name]:
        del _limits[known]


def registry(config: BridgeConfig) -> Registry:
    """This process's registry client; it remembers what is registered, with the other processes of this executor."""
    # Imported here because planners need none, and where they start cold it is a fifth of that.
    from bridge.adapters.connect import make_registry

    settings = config.registry
    name = settings.model_dump_json()
    if name not in _registries:
        _registries[name] = make_registry(settings, _schema_id_cache(str(settings.url)))
    return _registries[name]


def _schema_id_cache(url: str) -> SchemaIdCache | None:
    """The executor's own folder of known ids: a fresh worker need not find the registry up for what others know."""
    if TaskContext.get() is None:
        return None
    return SchemaIdCache(Path(SparkFiles.getRootDirectory()).resolve() / _IDS_FOLDER, url)
