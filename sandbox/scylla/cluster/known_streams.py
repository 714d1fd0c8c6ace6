"""The generations and stream sets that the simulated nodes know, published or not.

ScyllaDB's nodes keep generations and stream sets in internal tables, which writes use, and publish them early or late
in tables for clients. Here, one table on the local CQL server replaces the internal tables, so that several programs
can take turns. Entries that are newer than all published ones are unpublished: ScyllaDB publishes in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMillis
from sandbox.writing_session import WritingSession

VNODES: Final = "vnodes"
"""The owner of the cluster's generations. The owner of a table's stream sets is its full name."""

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_TABLE: Final = "scylla_system_tables.known_streams"
_TIMES: Final = f"SELECT time FROM {_TABLE} WHERE owner = ?"  # noqa: S608  # a name of ours
_STREAMS: Final = f"SELECT range_ends, streams FROM {_TABLE} WHERE owner = ? AND time = ?"  # noqa: S608
_INSERT: Final = f"INSERT INTO {_TABLE} (owner, time, range_ends, streams) VALUES (?, ?, ?, ?)"  # noqa: S608
_FORGET: Final = f"DELETE FROM {_TABLE} WHERE owner = ?"  # noqa: S608

Known = dict[Token, tuple[StreamId, ...]]
"""Streams by the last token of their range; those of a vnode in shard order."""


class KnownStreams:
    """Generations or stream sets of one owner. Every method raises as `CqlSession.rows` or `CqlSession.write_raw`."""

    def __init__(self, session: WritingSession, owner: str) -> None:
        """Take the owner: `VNODES`, or `keyspace.table`."""
        self._session = session
        self._owner = owner

    def starts(self) -> list[UnixMillis]:
        """The starts of all entries, ascending."""
        return sorted(UnixMillis(row["time"]) for row in self._session.rows(_TIMES, (self._owner,)))

    def streams(self, start_ms: UnixMillis) -> Known:
        """The streams of one entry."""
        (row,) = self._session.rows(_STREAMS, (self._owner, start_ms))
        ends = [Token(end) for end in row["range_ends"]]
        ids = [StreamId(bytes(raw)) for raw in row["streams"]]
        each = len(ids) // len(ends)
        return {end: tuple(ids[place * each : (place + 1) * each]) for place, end in enumerate(ends)}

    def add(self, start_ms: UnixMillis, streams: Known) -> None:
        """Add an entry. Every range must have the same number of streams."""
        ids = [stream.raw for found in streams.values() for stream in found]
        cells = (self._owner.encode(), _LONG.pack(start_ms), _list([_LONG.pack(end) for end in streams]), _list(ids))
        self._session.write_raw(self._session.prepare(_INSERT), cells).result()

    def forget(self) -> None:
        """Delete all entries."""
        self._session.write_raw(self._session.prepare(_FORGET), (self._owner.encode(),)).result()


def _list(elements: Sequence[bytes]) -> bytes:
    return _INT.pack(len(elements)) + b"".join(_INT.pack(len(one)) + one for one in elements)
