"""Publishes generations in the format of ScyllaDB before 4.4 (V1), and upgrades them (spec section 5.7)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.known_streams import KnownStreams
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster, publish_streams
from sandbox.scylla.shown_version import shown_version
from sandbox.writing_session import WritingSession

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_INSERT: Final = "INSERT INTO system_distributed.cdc_streams_descriptions (time, streams) VALUES (?, ?)"
_REWRITTEN: Final = b"rewritten"


_OLD_FORMAT: Final = "old format"
"""Owner of an entry that exists while the nodes publish in the old table alone."""


def forget_upgrade(session: WritingSession) -> None:
    """Have the nodes publish in the old table alone from now on, without a mark that generations are copied.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    KnownStreams(session, _OLD_FORMAT).add(UnixMillis(0), {})
    session.write_raw(session.prepare("DELETE FROM system.cdc_local WHERE key = ?"), (_REWRITTEN,)).result()


def is_old(session: WritingSession) -> bool:
    """Whether the nodes publish in the old table alone.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    return bool(KnownStreams(session, _OLD_FORMAT).starts())


def show_generation(session: WritingSession, cluster: SimulatedCluster, generation: Generation) -> None:
    """Write a generation to the table that readers use.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    if is_old(session):
        publish_old(session, generation)
    else:
        cluster.publish(generation)


def publish_old(session: WritingSession, generation: Generation) -> None:
    """Write a generation to the old table: one row with all of its streams.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    ids = [stream.raw for stream in generation.streams()]
    blob = _INT.pack(len(ids)) + b"".join(_INT.pack(len(raw)) + raw for raw in sorted(ids))
    session.write_raw(session.prepare(_INSERT), (_LONG.pack(generation.start_ms), blob)).result()


def upgrade(session: WritingSession, generations: Iterable[Generation]) -> bool:
    """Copy generations to today's tables, then mark the copy as done, as versions before 2026.2 do.

    Returns:
        Whether the copy is marked.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    last = None
    for generation in generations:
        streams = {group.range_end: group.streams for group in generation.stream_groups}
        publish_streams(session, generation.start_ms, streams)
        last = _LONG.pack(generation.start_ms)
    KnownStreams(session, _OLD_FORMAT).forget()
    if not shown_version(session).marks_copies:
        return False
    mark = session.prepare("INSERT INTO system.cdc_local (key, streams_timestamp) VALUES (?, ?)")
    session.write_raw(mark, (_REWRITTEN, last)).result()
    return True
