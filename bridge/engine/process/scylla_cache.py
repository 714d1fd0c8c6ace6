"""Connections to ScyllaDB, and what was learned over them, kept from task to task of one Python process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession
from bridge.adapters.scylla.stream_metadata import StreamMetadata, select
from bridge.config.document import ScyllaSettings
from bridge.engine.ports import Clocks
from bridge.model.key_ranges import KeyRange
from bridge.model.micro_batch import Selection
from bridge.model.streams import StreamId, Streams, TokenRange
from bridge.model.times import UnixMillis
from bridge.planning.server_clock import ServerTime
from bridge.planning.table_watch import CdcOptions, TableState
from bridge.publishing.lane_recovery import LaneTask
from bridge.reading.table_capture import CapturedTable, capture
from schemas.options import OutputOptions


class Capture(Protocol):
    """Makes a table's reader and codec; `bridge.reading.table_capture.capture` is one."""

    def __call__(self, cluster: ChangeLog, keyspace: str, table: str, output: OutputOptions, /) -> CapturedTable:
        """Return the table as the cluster describes it now."""
        ...


def connect(settings: ScyllaSettings) -> ChangeLog:
    """Open a session with a cluster.

    Raises:
        RetriableError, BridgeError: the cluster fails, or refuses the credentials.
    """
    return ChangeLog(CqlSession.connect(settings))


@dataclass(slots=True)
class _KnownTable:
    """A captured table, and the planner's fingerprint of it at that time."""

    captured: CapturedTable
    fingerprint: str


_LaneKey = tuple[str, str, UnixMillis, TokenRange]
"""Keyspace, table, generation, and the lane's slice of the token ring."""


@dataclass(slots=True)
class _Cluster:
    """The connection to one cluster, and what is known of its tables by keyspace and table."""

    log: ChangeLog
    tables: dict[tuple[str, str, OutputOptions], _KnownTable] = field(default_factory=dict)
    metadata: dict[tuple[str, str], StreamMetadata] = field(default_factory=dict)
    streams: dict[_LaneKey, Streams] = field(default_factory=dict)
    key_ranges: dict[_LaneKey, Mapping[StreamId, KeyRange]] = field(default_factory=dict)


class ScyllaCache:
    """Keeps one connection for each cluster. Every method may raise what connecting raises.

    A task drops a cluster after an error, so that the next attempt asks for everything again.
    """

    def __init__(
        self,
        connect: Callable[[ScyllaSettings], ChangeLog] = connect,
        clocks: Clocks = Clocks(),  # noqa: B008  # immutable
        capture: Capture = capture,
    ) -> None:
        """Prepare; this connects to nothing.

        Args:
            connect: opens a session.
            clocks: of this process.
            capture: makes a table's reader and codec.
        """
        self._connect = connect
        self._clocks = clocks
        self._capture = capture
        self._clusters: dict[str, _Cluster] = {}
        # Kept when a cluster is dropped: the clocks of its nodes stay what they are.
        self._times: dict[str, ServerTime] = {}

    def change_log(self, settings: ScyllaSettings) -> ChangeLog:
        """Return this process's connection to a cluster."""
        return self._cluster(settings).log

    def server_time(self, settings: ScyllaSettings) -> ServerTime:
        """Return the clocks of a cluster's nodes; for one thread."""
        name = settings.model_dump_json()
        if name not in self._times:
            self._times[name] = ServerTime(
                # Over the session of that moment, which may be another one by then.
                lambda: self.change_log(settings).node_time(),
                self._clocks.wall_us,
                self._clocks.monotonic_s,
            )
        return self._times[name]

    def table(self, settings: ScyllaSettings, keyspace: str, table: str) -> CachedTable:
        """Return the access to one table for its planner; asks nothing yet."""
        return CachedTable(self, settings, keyspace, table)

    def captured_table(
        self, settings: ScyllaSettings, keyspace: str, table: str, output: OutputOptions, fingerprint: str
    ) -> CapturedTable:
        """Return a table's reader and codec, compiled once for its present columns.

        Args:
            settings: of the cluster.
            keyspace: the table's.
            table: name of the base table.
            output: what its changes are to look like.
            fingerprint: of the table at the planner's last look. With another one the table is captured again: some
                changes of a table do not show in its log's columns, such as a static column that becomes a regular one.

        Raises:
            TableMissingError: there is no such table, or it has no log.
            UnsettledSchemaError: the cluster's answers contradict each other.
            RetriableError, BridgeError: the cluster fails, or a column's type is not supported.
        """
        cluster = self._clusters.get(settings.model_dump_json())
        known = None if cluster is None else cluster.tables.get((keyspace, table, output))
        if known is None or known.fingerprint != fingerprint:
            return self.recaptured_table(settings, keyspace, table, output, fingerprint)
        return known.captured

    def recaptured_table(
        self, settings: ScyllaSettings, keyspace: str, table: str, output: OutputOptions, fingerprint: str
    ) -> CapturedTable:
        """Capture a table again, whatever is known of it; arguments and errors are those of `captured_table`."""
        cluster = self._cluster(settings)
        captured = self._capture(cluster.log, keyspace, table, output)
        cluster.tables[keyspace, table, output] = _KnownTable(captured, fingerprint)
        return captured

    def stream_metadata(self, settings: ScyllaSettings, keyspace: str, table: str) -> StreamMetadata:
        """Return the source of a table's streams; kept, because it takes some answers of the cluster only once."""
        cluster = self._cluster(settings)
        if (keyspace, table) not in cluster.metadata:
            cluster.metadata[keyspace, table] = cluster.log.stream_metadata(keyspace, table)
        return cluster.metadata[keyspace, table]

    def lane_streams(self, settings: ScyllaSettings, task: LaneTask, selection: Selection) -> Streams:
        """Return the streams of a lane that a selection names, each with the generation that opened it."""
        before = {} if selection.before_ms is None else self._lane_streams(settings, task, selection.before_ms)
        return select(selection, self._lane_streams(settings, task, selection.generation_ms), before)

    def lane_key_ranges(
        self, settings: ScyllaSettings, task: LaneTask, selection: Selection
    ) -> Mapping[StreamId, KeyRange]:
        """Return which partition keys belong to the streams of a lane that a selection names."""
        cluster, key = self._cluster(settings), _lane_key(task, selection.newest_generation_ms)
        if key not in cluster.key_ranges:
            _forget_older(cluster.key_ranges, key)
            metadata = self.stream_metadata(settings, task.keyspace, task.table)
            cluster.key_ranges[key] = metadata.key_ranges(selection.newest_generation_ms, key[-1])
        return cluster.key_ranges[key]

    def drop_metadata(self, settings: ScyllaSettings, keyspace: str, table: str) -> None:
        """Forget which streams a table has, and whether they belong to vnodes or to tablets."""
        cluster = self._clusters.get(settings.model_dump_json())
        if cluster is not None:
            cluster.metadata.pop((keyspace, table), None)

    def drop_cluster(self, settings: ScyllaSettings) -> None:
        """Close the connection to a cluster, and forget everything that was learned over it."""
        cluster = self._clusters.pop(settings.model_dump_json(), None)
        if cluster is not None:
            cluster.log.session.close()

    def _cluster(self, settings: ScyllaSettings) -> _Cluster:
        name = settings.model_dump_json()
        if name not in self._clusters:
            self._clusters[name] = _Cluster(self._connect(settings))
        return self._clusters[name]

    def _lane_streams(self, settings: ScyllaSettings, task: LaneTask, generation_ms: UnixMillis) -> Streams:
        cluster, key = self._cluster(settings), _lane_key(task, generation_ms)
        if key not in cluster.streams:
            _forget_older(cluster.streams, key)
            metadata = self.stream_metadata(settings, task.keyspace, task.table)
            cluster.streams[key] = metadata.streams(generation_ms, key[-1])
        return cluster.streams[key]


def _lane_key(task: LaneTask, generation_ms: UnixMillis) -> _LaneKey:
    return task.keyspace, task.table, generation_ms, task.batch.layout.token_range(task.lane)


def _forget_older(known: dict[_LaneKey, Streams] | dict[_LaneKey, Mapping[StreamId, KeyRange]], key: _LaneKey) -> None:
    """Forget a lane's generations but the last: a lane is inside one generation or between two."""
    keyspace, table, _, slice_ = key
    for old in [old for old in known if (old[0], old[1], old[3]) == (keyspace, table, slice_)][:-1]:
        del known[old]


class CachedTable:
    """One table over a process's connection: a `bridge.engine.ports.TableAccess`."""

    def __init__(self, cache: ScyllaCache, settings: ScyllaSettings, keyspace: str, table: str) -> None:
        """Prepare; this asks the cluster nothing.

        Args:
            cache: of this process.
            settings: of the cluster.
            keyspace: the table's.
            table: name of the base table.
        """
        self._cache = cache
        self._settings = settings
        self._keyspace = keyspace
        self._table = table

    @property
    def address(self) -> str:
        """The cluster's contact points."""
        return self._cache.change_log(self._settings).session.address

    @property
    def server_time(self) -> ServerTime:
        """The clocks of the cluster's nodes."""
        return self._cache.server_time(self._settings)

    def state(self) -> TableState:
        """Return the table as it is now."""
        return self._cache.change_log(self._settings).table_state(self._keyspace, self._table)

    def cdc_options(self) -> CdcOptions | None:
        """Return the table's CDC options as they are now."""
        return self._cache.change_log(self._settings).cdc_options(self._keyspace, self._table)

    def generations(self) -> StreamMetadata:
        """Return the source of the log's generations."""
        return self._cache.stream_metadata(self._settings, self._keyspace, self._table)

    def forget_streams(self) -> None:
        """Forget which streams the table has."""
        self._cache.drop_metadata(self._settings, self._keyspace, self._table)

    def disconnect(self) -> None:
        """Close the connection to the cluster."""
        self._cache.drop_cluster(self._settings)
