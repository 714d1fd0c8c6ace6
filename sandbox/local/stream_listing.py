"""Lists the local stack's streams as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bridge.model.streams import StreamId
from bridge.model.times import UnixMicros, UnixMillis, iso_of_millis
from sandbox.cql.catalog import TableName
from sandbox.local.stream_changes import cluster_of, tablets_of
from sandbox.scylla.cluster.older_versions import is_old
from sandbox.scylla.local_streams import initial_tablets
from sandbox.writing_session import WritingSession
from schemas.cql.names import shown_table

_TABLES: Final = "SELECT DISTINCT keyspace_name, table_name FROM system.cdc_timestamps"


class StreamsSince(NamedTuple):
    """A generation or a stream set.

    Attributes:
        start_ms: from this time on, writes use its streams (Unix ms).
        streams: all its streams.
        is_published: whether readers see it.
    """

    start_ms: UnixMillis
    streams: frozenset[StreamId]
    is_published: bool


def shown(session: WritingSession, table: TableName | None, now_us: UnixMicros) -> Iterator[str]:
    """List the streams of one table, or of the cluster and all tables.

    Raises:
        RetriableError, BridgeError: as `CqlSession.rows`.
    """
    if table is None:
        yield f"vnodes: the generations of all tables in keyspaces without tablets{_format(session)}"
        yield from lines(_generations(session), now_us)
        names = sorted(TableName(row["keyspace_name"], row["table_name"]) for row in session.rows(_TABLES))
        for name in names:
            yield f"{shown_table(*name)}: tablets"
            yield from lines(_sets(session, name), now_us)
        return
    if initial_tablets(session, table.keyspace) is None:
        yield f"{shown_table(*table)}: vnodes, so its streams are the cluster's{_format(session)}"
        yield from lines(_generations(session), now_us, with_ids=True)
    else:
        yield f"{shown_table(*table)}: tablets"
        yield from lines(_sets(session, table), now_us, with_ids=True)


def lines(found: Sequence[StreamsSince], now_us: UnixMicros, *, with_ids: bool = False) -> Iterator[str]:
    """Return a line for each generation or stream set, in order, and a line for each stream in use."""
    if not found:
        yield "  none yet: the first `local cql` makes one"
    now = max((one.start_ms for one in found if one.start_ms * 1000 <= now_us), default=None)
    before: frozenset[StreamId] = frozenset()
    for one in found:
        parts = [f"{len(one.streams)} streams"]
        if before:
            parts.append(f"{len(before - one.streams)} closed, {len(one.streams - before)} opened")
        if one.start_ms == now:
            parts.append("used now")
        elif one.start_ms * 1000 > now_us:
            parts.append(f"in {one.start_ms / 1000 - now_us / 1_000_000:.1f} s")
        if not one.is_published:
            parts.append("not published")
        yield f"  {iso_of_millis(one.start_ms)} ({one.start_ms})  {', '.join(parts)}"
        before = one.streams
    for one in found:
        if with_ids and one.start_ms == now:
            yield from (f"    {stream}  token {stream.token}" for stream in sorted(one.streams, key=_by_token))


def _generations(session: WritingSession) -> list[StreamsSince]:
    cluster, unpublished = cluster_of(session)
    return [
        StreamsSince(one.start_ms, frozenset(one.streams()), one.start_ms not in unpublished)
        for one in cluster.generations
    ]


def _sets(session: WritingSession, table: TableName) -> list[StreamsSince]:
    tablets, waiting = tablets_of(session, table)
    return [StreamsSince(one.start_ms, frozenset(one.streams), one not in waiting) for one in tablets.sets]


def _format(session: WritingSession) -> str:
    return ", in the format of before ScyllaDB 4.4" if is_old(session) else ""


def _by_token(stream: StreamId) -> int:
    return stream.token
