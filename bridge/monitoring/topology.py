"""Reads the cluster's generations and the logs' TTLs for monitoring. The reading of changes does not depend on it."""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.session import CqlSession
from bridge.adapters.scylla.stream_metadata import StreamMetadata
from bridge.config.document import BridgeConfig
from bridge.errors import BridgeError
from bridge.model.streams import Token, lane_range
from bridge.model.times import UnixMicros, UnixMillis
from bridge.monitoring.snapshot import Ring, TableStreams, Topology
from bridge.monitoring.state import JobState
from bridge.planning.server_clock import ServerTime
from bridge.runtime import log_setup

_log = logging.getLogger(__name__)

_INTERVAL_S: Final = 5.0
_OPTIONS_INTERVAL_S: Final = 60.0


class TopologyWatcher:
    """Reads the topology every 5 s, in its own thread and session: a slow cluster must not block the supervisor."""

    def __init__(self, config: BridgeConfig, job_state: JobState) -> None:
        self._job_state = job_state
        self._reader = TopologyReader(config)
        self._config = config
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topology", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread; wait up to 1 s for a request that is under way."""
        self._closed.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        session: CqlSession | None = None
        while not self._closed.is_set():
            try:
                if session is None:
                    with log_setup.silence_library("cassandra"):
                        session = CqlSession.connect(self._config.scylla)
                self._job_state.set_topology(self._reader.read(ChangeLog(session), time.time()))
            except BridgeError as error:
                _log.debug("reading the cluster's generations failed", exc_info=True)
                self._job_state.set_topology_failed(str(error))
            self._closed.wait(_INTERVAL_S)
        if session is not None:
            session.close()


class TopologyReader:
    """Reads generations each time, table options every minute, and the streams of each generation once."""

    def __init__(self, config: BridgeConfig) -> None:
        self._tables = [(table.keyspace, table.table) for table in config.tables]
        self._metadata: dict[tuple[str, str], StreamMetadata] = {}
        self._rings: dict[StreamMetadata, Ring] = {}
        self._ttl_s: dict[str, int] = {}
        self._options_at_s = float("-inf")
        self._server_time: ServerTime | None = None

    def read(self, log: ChangeLog, now_s: float) -> Topology:
        """Read the topology.

        Args:
            log: the cluster's logs, over the same session each time.
            now_s: this machine's time, s since 1970.

        Raises:
            BridgeError: the cluster does not answer.
        """
        if not self._metadata:
            self._metadata = self._read_metadata(log)
        if now_s - self._options_at_s >= _OPTIONS_INTERVAL_S:
            self._ttl_s = self._read_ttl(log)
            self._options_at_s = now_s
        found = {metadata: self._read_streams(metadata, now_s) for metadata in set(self._metadata.values())}
        streams = {f"{keyspace}.{table}": found[self._metadata[keyspace, table]] for keyspace, table in self._tables}
        if self._server_time is None:
            self._server_time = ServerTime(log.node_time, lambda: UnixMicros(time.time_ns() // 1000), time.monotonic)
        return Topology(streams, dict(self._ttl_s), clock_ahead_s=self._server_time.ahead_us() / 1e6)

    def _read_metadata(self, log: ChangeLog) -> dict[tuple[str, str], StreamMetadata]:
        found = {table: log.stream_metadata(*table) for table in self._tables}
        # Tables in vnode keyspaces have the same streams, so one of them is enough.
        shared = next((metadata for metadata in found.values() if metadata.shared), None)
        return {
            table: shared if metadata.shared and shared is not None else metadata for table, metadata in found.items()
        }

    def _read_streams(self, metadata: StreamMetadata, now_s: float) -> TableStreams:
        generations = tuple(generation.start_ms for generation in metadata.generations())
        started = max((start_ms for start_ms in generations if start_ms <= now_s * 1000), default=None)
        ring = self._rings.get(metadata)
        if started is not None and (ring is None or ring.generation_ms != started):
            ring = self._rings[metadata] = _read_ring(metadata, started)
        return TableStreams(generations, ring)

    def _read_ttl(self, log: ChangeLog) -> dict[str, int]:
        found = {f"{keyspace}.{table}": log.cdc_options(keyspace, table) for keyspace, table in self._tables}
        return {name: options.ttl_s for name, options in found.items() if options is not None}


def _read_ring(metadata: StreamMetadata, generation_ms: UnixMillis) -> Ring:
    groups: dict[int, list[Token]] = {}
    for stream in metadata.streams(generation_ms, lane_range(0, 1)):
        # Stream ids name their vnode since version 1; a tablet has one stream.
        names_vnode = metadata.shared and stream.version == 1
        groups.setdefault(stream.index if names_vnode else stream.token, []).append(stream.token)
    return Ring(generation_ms, tuple(sorted((max(tokens), len(tokens)) for tokens in groups.values())))
