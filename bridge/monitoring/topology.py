"""Watches the cluster's generations and the logs' TTLs for the figures; the reading itself does not depend on it."""

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
from bridge.monitoring.state import Board
from bridge.planning.server_clock import ServerTime
from bridge.runtime import log_setup

_log = logging.getLogger(__name__)

_EVERY_S: Final = 5.0
_OPTIONS_EVERY_S: Final = 60.0


class TopologyWatcher:
    """Reads in a thread of its own, over a session of its own: a cluster that hangs must not hold up the supervisor."""

    def __init__(self, config: BridgeConfig, board: Board) -> None:
        self._board = board
        self._look = TopologyLook(config)
        self._config = config
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topology", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop; a request that is under way is not waited for long."""
        self._closed.set()
        self._thread.join(1.0)

    def _run(self) -> None:
        session: CqlSession | None = None
        while not self._closed.is_set():
            try:
                if session is None:
                    with log_setup.silence_library("cassandra"):
                        session = CqlSession.connect(self._config.scylla)
                self._board.topology(self._look.read(ChangeLog(session), time.time()))
            except BridgeError as error:
                _log.debug("reading the cluster's generations failed", exc_info=True)
                self._board.topology_failed(str(error))
            self._closed.wait(_EVERY_S)
        if session is not None:
            session.close()


class TopologyLook:
    """What is to be read when: generations each time, options now and then, a generation's streams once."""

    def __init__(self, config: BridgeConfig) -> None:
        self._tables = [(table.keyspace, table.table) for table in config.tables]
        self._metadata: dict[tuple[str, str], StreamMetadata] = {}
        self._rings: dict[StreamMetadata, Ring] = {}
        self._ttl_s: dict[str, int] = {}
        self._options_at_s = float("-inf")
        self._time: ServerTime | None = None

    def read(self, log: ChangeLog, now_s: float) -> Topology:
        """Ask the cluster.

        Args:
            log: of the cluster; over the same session each time.
            now_s: the clock's reading, s since 1970.

        Raises:
            BridgeError: it does not answer.
        """
        if not self._metadata:
            self._metadata = self._read_metadata(log)
        if now_s - self._options_at_s >= _OPTIONS_EVERY_S:
            self._ttl_s = self._read_ttl(log)
            self._options_at_s = now_s
        found = {metadata: self._read_streams(metadata, now_s) for metadata in set(self._metadata.values())}
        streams = {f"{keyspace}.{table}": found[self._metadata[keyspace, table]] for keyspace, table in self._tables}
        if self._time is None:
            self._time = ServerTime(log.node_time_us, lambda: UnixMicros(time.time_ns() // 1000), time.monotonic)
        return Topology(streams, dict(self._ttl_s), clock_ahead_s=self._time.ahead_us() / 1e6)

    def _read_metadata(self, log: ChangeLog) -> dict[tuple[str, str], StreamMetadata]:
        found = {place: log.stream_metadata(*place) for place in self._tables}
        shared = next((one for one in found.values() if one.shared), None)
        return {place: shared if one.shared and shared is not None else one for place, one in found.items()}

    def _read_streams(self, metadata: StreamMetadata, now_s: float) -> TableStreams:
        generations = tuple(one.start_ms for one in metadata.generations())
        begun = max((one for one in generations if one <= now_s * 1000), default=None)
        ring = self._rings.get(metadata)
        if begun is not None and (ring is None or ring.generation_ms != begun):
            ring = self._rings[metadata] = _ring(metadata, begun)
        return TableStreams(generations, ring)

    def _read_ttl(self, log: ChangeLog) -> dict[str, int]:
        found = {f"{keyspace}.{table}": log.cdc_options(keyspace, table) for keyspace, table in self._tables}
        return {name: options.ttl_s for name, options in found.items() if options is not None}


def _ring(metadata: StreamMetadata, generation_ms: UnixMillis) -> Ring:
    sets: dict[int, list[Token]] = {}
    for stream in metadata.streams(generation_ms, lane_range(0, 1)):
        # Ids of before version 1 say nothing of a vnode, and tablets have one stream each.
        of_vnode = metadata.shared and stream.version == 1
        sets.setdefault(stream.index if of_vnode else stream.token, []).append(stream.token)
    return Ring(generation_ms, tuple(sorted((max(tokens), len(tokens)) for tokens in sets.values())))
