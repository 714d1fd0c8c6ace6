"""Finds the stream of a write on the local stack. The state is on the server, so that programs can take turns."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from bridge.model.streams import Token
from bridge.model.times import UnixMicros, UnixMillis
from sandbox.scylla.cluster.older_versions import show_generation
from sandbox.scylla.cluster.simulated_cluster import Placement, SimulatedCluster
from sandbox.scylla.cluster.tablets import SimulatedTablets, merge, split
from sandbox.writing_session import WritingSession

TABLETS: Final = 4
"""How many tablets a table begins with where its keyspace names no number."""

_FRESH_US: Final = 500_000
"""How long what was read counts; changes of streams are made at least `changes.LEAST_LEAD_S` ahead."""
_RESIZE_LEAD_MS: Final = 7_000
"""How far ahead ScyllaDB announces new streams of tablets: twice the ring delay (1 s in test clusters) and 5 s."""
_RESIZE_APART_MS: Final = 187
"""By how much two stream sets that follow at once were apart on a real node."""
_LOG_LEAD_US: Final = 5_000_000
"""How far before its own creation a log's first stream set begins (spec section 5.4)."""
# Not by its name: ScyllaDB before tablets does not have the column `initial_tablets`.
_KEYSPACE: Final = "SELECT * FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"


def initial_tablets(session: WritingSession, keyspace: str) -> int | None:
    """Return the initial number of tablets of a keyspace's tables; None if the keyspace uses vnodes.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    rows = session.rows(_KEYSPACE, (keyspace,))
    found = rows[0].get("initial_tablets") if rows else None
    return None if found is None else found or TABLETS


class LocalStreams:
    """The streams of every table. Not thread-safe. Methods raise RetriableError and BridgeError if the server fails."""

    def __init__(self, session: WritingSession, clock: Callable[[], UnixMicros]) -> None:
        """Take the session; nothing is read yet.

        Args:
            session: to the stack's server.
            clock: us since 1970.
        """
        self._session = session
        self._clock = clock
        self._read_us = 0
        self._cluster: SimulatedCluster | None = None
        self._tablets: dict[tuple[str, str], SimulatedTablets | None] = {}

    def begin(self) -> UnixMillis | None:
        """Create the first generation if there is none; return its start, or None if it exists already."""
        cluster = self._vnodes()
        if cluster.generations:
            return None
        made = cluster.add_generation(UnixMillis(self._clock() // 1000), publish=False)
        cluster.remember(made)
        show_generation(self._session, cluster, made)
        return made.start_ms

    def stream_for(
        self, keyspace: str, table: str, token: Token, write_us: UnixMicros, now_us: UnixMicros
    ) -> Placement:
        """Return the stream of a write to a base table.

        Raises:
            SimulatorRefusal: ScyllaDB would refuse the timestamp.
        """
        if now_us - self._read_us > _FRESH_US:
            self._cluster, self._tablets, self._read_us = None, {}, now_us
        name = (keyspace, table)
        if name not in self._tablets:
            self._tablets[name] = self._tablets_of(keyspace, table)
        return (self._tablets[name] or self._vnodes()).stream_for(token, write_us, now_us)

    def log_made(self, keyspace: str, table: str) -> int | None:
        """Create the first stream set of a new log; return the number of its tablets, or None with vnodes."""
        tablets = initial_tablets(self._session, keyspace)
        if tablets is not None:
            start_ms = UnixMillis((self._clock() - _LOG_LEAD_US) // 1000)
            made = SimulatedTablets(self._session, keyspace, table, seed=secrets.randbits(64))
            made.create(start_ms, tablets)
            self._tablets.pop((keyspace, table), None)
        return tablets

    def tablets_altered(self, keyspace: str, table: str, least: int) -> tuple[int, ...]:
        """Split or merge a table's tablets until there are the fewest that are enough, as ScyllaDB does by itself.

        Each step doubles or halves their number, with a stream set of its own that replaces all streams.

        Args:
            keyspace: the table's.
            table: name of the base table.
            least: the table's option `min_tablet_count`.

        Returns:
            The number of tablets after each step; empty if there is nothing to do.
        """
        tablets = self._tablets_of(keyspace, table)
        if tablets is None or not tablets.sets:
            return ()
        wanted = 1 << max(0, least - 1).bit_length()
        tokens = [stream.token for stream in tablets.sets[-1].streams]
        start_ms = UnixMillis(max(self._clock() // 1000 + _RESIZE_LEAD_MS, tablets.sets[-1].start_ms + 1))
        steps: list[int] = []
        while len(tokens) != wanted:
            tokens = list(split(tokens) if len(tokens) < wanted else merge(tokens))
            tablets.resize(start_ms, tokens)
            start_ms = UnixMillis(start_ms + _RESIZE_APART_MS)
            steps.append(len(tokens))
        self._tablets.pop((keyspace, table), None)
        return tuple(steps)

    def log_dropped(self, keyspace: str, table: str) -> None:
        """Delete the stream sets of a dropped log. Does nothing with vnodes."""
        found = self._tablets_of(keyspace, table)
        if found is not None:
            found.drop()
            self._tablets.pop((keyspace, table), None)

    def _vnodes(self) -> SimulatedCluster:
        if self._cluster is None:
            self._cluster = SimulatedCluster(self._session, seed=secrets.randbits(64))
            self._cluster.resume(self._clock())
        return self._cluster

    def _tablets_of(self, keyspace: str, table: str) -> SimulatedTablets | None:
        if initial_tablets(self._session, keyspace) is None:
            return None
        found = SimulatedTablets(self._session, keyspace, table, seed=secrets.randbits(64))
        found.resume()
        return found
