"""What the simulated nodes know of their streams before readers may see it, for programs that take turns.

ScyllaDB's nodes keep generations and stream sets in internal tables and publish them to those that clients read, ahead
or late; what writes go by is the internal ones. Here one table on the local CQL server stands for them. What counts as
not published yet is what is newer than everything that readers see: ScyllaDB publishes in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMillis
from sandbox.cql.writing_session import WritingSession

VNODES: Final = "vnodes"
"""The owner of the cluster's generations; a table's stream sets have its full name."""

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_TABLE: Final = "scylla_system_tables.known_streams"
_TIMES: Final = f"SELECT time FROM {_TABLE} WHERE owner = ?"  # noqa: S608  # a name of ours
_STREAMS: Final = f"SELECT range_ends, streams FROM {_TABLE} WHERE owner = ? AND time = ?"  # noqa: S608
_INSERT: Final = f"INSERT INTO {_TABLE} (owner, time, range_ends, streams) VALUES (?, ?, ?, ?)"  # noqa: S608
_FORGET: Final = f"DELETE FROM {_TABLE} WHERE owner = ?"  # noqa: S608

Known = dict[Token, tuple[StreamId, ...]]
"""Streams by the last token of their range, those of a vnode in shard order."""


class KnownStreams:
    """Generations or stream sets of one owner. Every method raises as `CqlSession.rows` or `CqlSession.write_raw`."""

    def __init__(self, session: WritingSession, owner: str) -> None:
        """Take the owner: `VNODES`, or `keyspace.table`."""
        self._session = session
        self._owner = owner

    def starts(self) -> list[UnixMillis]:
        """What there is, ascending."""
        return sorted(UnixMillis(row["time"]) for row in self._session.rows(_TIMES, (self._owner,)))

    def streams(self, start_ms: UnixMillis) -> Known:
        """The streams of one of them."""
        (row,) = self._session.rows(_STREAMS, (self._owner, start_ms))
        ends = [Token(end) for end in row["range_ends"]]
        ids = [StreamId(bytes(raw)) for raw in row["streams"]]
        each = len(ids) // len(ends)
        return {end: tuple(ids[place * each : (place + 1) * each]) for place, end in enumerate(ends)}

    def add(self, start_ms: UnixMillis, streams: Known) -> None:
        """Remember one; every range has equally many streams."""
        ids = [stream.raw for found in streams.values() for stream in found]
        cells = (self._owner.encode(), _LONG.pack(start_ms), _list([_LONG.pack(end) for end in streams]), _list(ids))
        self._session.write_raw(self._session.prepare(_INSERT), cells).result()

    def forget(self) -> None:
        """Forget all of them."""
        self._session.write_raw(self._session.prepare(_FORGET), (self._owner.encode(),)).result()


def _list(elements: Sequence[bytes]) -> bytes:
    return _INT.pack(len(elements)) + b"".join(_INT.pack(len(one)) + one for one in elements)
