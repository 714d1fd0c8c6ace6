"""Publishes generations in the format of ScyllaDB before 4.4 (V1), and upgrades them (spec section 5.7)."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.simulated_cluster import SimulatedCluster, publish_streams
from sandbox.writing_session import WritingSession

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_INSERT: Final = "INSERT INTO system_distributed.cdc_streams_descriptions (time, streams) VALUES (?, ?)"
_REWRITTEN: Final = b"rewritten"


def forget_upgrade(session: WritingSession) -> None:
    """Mark the cluster as one that has not copied its generations to today's tables.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    session.write_raw(session.prepare("DELETE FROM system.cdc_local WHERE key = ?"), (_REWRITTEN,)).result()


def is_old(session: WritingSession) -> bool:
    """Whether the cluster has not copied its generations to today's tables, so that readers use the old table.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    return not session.rows("SELECT key FROM system.cdc_local WHERE key = 'rewritten'")


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


def upgrade(session: WritingSession, generations: Iterable[Generation]) -> None:
    """Copy generations to today's tables, then mark the copy as done.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    last = None
    for generation in generations:
        streams = {group.range_end: group.streams for group in generation.stream_groups}
        publish_streams(session, generation.start_ms, streams)
        last = _LONG.pack(generation.start_ms)
    mark = session.prepare("INSERT INTO system.cdc_local (key, streams_timestamp) VALUES (?, ?)")
    session.write_raw(mark, (_REWRITTEN, last)).result()
