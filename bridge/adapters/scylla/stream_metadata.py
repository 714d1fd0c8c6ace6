"""The streams of a table's log, and since when it has them: ScyllaDB's metadata tables behind one small interface.

| class | tables | scope |
|---|---|---|
| `VnodeStreams` | `system_distributed.cdc_generation_timestamps`, `.cdc_streams_descriptions_v2`; | the cluster |
| | before the cluster's own upgrade `system_distributed.cdc_streams_descriptions` | |
| `TabletStreams` | `system.cdc_timestamps`, `system.cdc_streams` | one table |

Releases differ in their tables and columns. `system_schema.columns` lists those of the contacted server, so that no
request is refused.

Every method raises RetriableError if the cluster does not answer, or not with all of its metadata yet, and BridgeError
if it refuses the request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Protocol

from bridge.adapters.scylla.session import CqlSession
from bridge.errors import RetriableError
from bridge.model.key_ranges import KeyRange, ranges_of_tablets, ranges_of_vnodes
from bridge.model.micro_batch import Role, Selection
from bridge.model.streams import MAX_TOKEN, StreamId, TokenRange
from bridge.model.times import UnixMillis, iso_of_millis
from bridge.planning.micro_batches import GenerationStart

_log = logging.getLogger(__name__)

_COLUMNS: Final = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{}' AND table_name = '{}'"
_TABLETS: Final = "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"

_TIMES: Final = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
_STREAMS: Final = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
_OLD_TIMES: Final = "SELECT time FROM system_distributed.cdc_streams_descriptions"
_OLD_STREAMS: Final = "SELECT streams FROM system_distributed.cdc_streams_descriptions WHERE time = ?"
_REWRITTEN: Final = "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"

_TABLET_TIMES: Final = "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?"
_TABLET_STREAMS: Final = (
    "SELECT stream_state, stream_id FROM system.cdc_streams "
    "WHERE keyspace_name = ? AND table_name = ? AND timestamp = ?"
)
_TABLET_HISTORY: Final = (
    "SELECT timestamp, stream_state, stream_id FROM system.cdc_streams "
    "WHERE keyspace_name = ? AND table_name = ? AND timestamp <= ?"
)
_COUNT_BYTES: Final = 4
"""The cell of a CQL set begins with the number of its elements, in this many bytes."""
_CURRENT: Final = 0
_OPENED: Final = 2

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_raw: Final = attrgetter("raw")
ONE_REPLICA: Final = frozenset({"ONE", "LOCAL_ONE"})
Streams = Mapping[StreamId, UnixMillis]
"""Streams, each with the start of the generation that opened it."""


class StreamMetadata(Protocol):
    """The streams of a table. As thread-safe as its session; each process has its own.

    Attributes:
        may_lag: whether one node may not know yet what another node has answered already.
        shared: whether all tables of this kind have the same streams.
    """

    may_lag: bool
    shared: bool

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; empty if there is none yet.

        More may be published later, even with an earlier start.
        """
        ...

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        """The streams of a generation whose token lies in a slice of the ring.

        Only the stream's own token counts, so a stream is in the same slice for every table.

        Args:
            generation_ms: the start of a generation that `generations` returned.
            within: the slice.
        """
        ...

    def key_ranges(self, generation_ms: UnixMillis, within: TokenRange) -> Mapping[StreamId, KeyRange]:
        """The ranges of the keys whose changes go to a stream, for the streams that `streams` returns.

        A stream is left out if the cluster does not publish its range.

        Args:
            generation_ms: the start of a generation that `generations` returned.
            within: the slice of the ring.
        """
        ...

    def count(self, generation_ms: UnixMillis) -> int:
        """How many streams a generation has; 0 if the contacted node does not know the generation yet."""
        ...


def stream_metadata(session: CqlSession, keyspace: str, table: str) -> StreamMetadata:
    """The stream metadata of a base table's log; a keyspace uses either vnodes or tablets.

    Args:
        session: connected to the cluster.
        keyspace: the table's.
        table: name of the base table.
    """
    if _uses_tablets(session, keyspace):
        return TabletStreams(session, keyspace, table)
    return VnodeStreams(session)


def _uses_tablets(session: CqlSession, keyspace: str) -> bool:
    # Servers from before tablets, such as 5.2, have the table without the column, or no such table.
    if "initial_tablets" not in _columns(session, "system_schema", "scylla_keyspaces"):
        return False
    rows = session.rows(_TABLETS, (keyspace,), consistency="ONE")
    return bool(rows) and rows[0]["initial_tablets"] is not None


def select(selection: Selection, here: Streams, before: Streams) -> Streams:
    """The streams that a selection names.

    Args:
        selection: the role of the wanted streams.
        here: the streams of the selection's generation.
        before: the streams of the generation that it is compared with; unused for `Role.ALL`.
    """
    match selection.role:
        case Role.ALL:
            return here
        case Role.KEPT:
            return {stream: opened for stream, opened in here.items() if stream in before}
        case Role.OPENED:
            return {stream: opened for stream, opened in here.items() if stream not in before}
        case Role.CLOSED:
            return {stream: opened for stream, opened in before.items() if stream not in here}


class VnodeStreams:
    """The generations of a cluster's vnode keyspaces: all tables share them, and each generation replaces all streams.

    Clusters older than 4.4 have only the older table. An upgraded cluster copies the older table to the newer tables.
    When the copy is complete, `system.cdc_local` contains `rewritten`, and from then on only the newer tables are used.
    Until then, later generations may be in the newer tables alone. Their changes are published when the copy is
    complete: nothing is lost or out of order, and a warning is logged.

    Args:
        session: connected to the cluster.
    """

    may_lag = False
    shared = True

    def __init__(self, session: CqlSession) -> None:
        self._session = session
        self._newer = False
        self._warned_of: UnixMillis | None = None

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; empty if there is none yet."""
        newer = self._uses_newer()
        found = sorted(_millis(row["time"]) for row in self._rows(_TIMES if newer else _OLD_TIMES, ()))
        if not newer:
            self._warn_of_uncopied(found)
        return [GenerationStart(start_ms) for start_ms in found]

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        """The streams of a generation whose token lies in a slice of the ring."""
        # The driver accepts an integer for a timestamp, as milliseconds.
        newer = self._uses_newer()
        rows = self._slice(generation_ms, within) if newer else self._rows(_OLD_STREAMS, (generation_ms,))
        if not rows:
            raise RetriableError(
                f"generation {generation_ms} has no streams at {self._session.address}; they are published before it"
            )
        found = (StreamId(bytes(raw)) for row in rows for raw in row["streams"] or ())
        return dict.fromkeys(sorted((one for one in found if one.token in within), key=_raw), generation_ms)

    def key_ranges(self, generation_ms: UnixMillis, within: TokenRange) -> Mapping[StreamId, KeyRange]:
        """The ranges of the keys of a slice's streams.

        Empty with the older table: it contains neither which streams belong to one vnode, nor where the vnode ends.
        """
        if not self._uses_newer():
            return {}
        rows = self._slice(generation_ms, within)
        if within.after is None and within.until == MAX_TOKEN:
            rows = rows + rows[:1]
        return ranges_of_vnodes(
            (row["range_end"], [StreamId(bytes(raw)) for raw in row["streams"]]) for row in rows if row["streams"]
        )

    def count(self, generation_ms: UnixMillis) -> int:
        """How many streams a generation has; counts them without decoding: there may be hundreds of thousands."""
        cql = _STREAMS if self._uses_newer() else _OLD_STREAMS
        cells = self._session.cells(cql, (generation_ms,), consistency=metadata_consistency(self._session))
        return sum(int.from_bytes(streams[:_COUNT_BYTES], "big") for *_, streams in cells if streams)

    def _slice(self, generation_ms: UnixMillis, within: TokenRange) -> list[dict[str, Any]]:
        cql = _STREAMS
        parameters: list[int] = [generation_ms]
        if within.after is not None:
            cql += " AND range_end > ?"
            parameters.append(within.after)
        rows = self._rows(f"{cql} AND range_end <= ?", (*parameters, within.until))
        if within.after is None and within.until == MAX_TOKEN:
            return rows
        # The next range beyond the slice may begin inside it. The first range follows the last one.
        beyond = self._rows(f"{_STREAMS} AND range_end > ? LIMIT 1", (generation_ms, within.until))
        return rows + (beyond or self._rows(f"{_STREAMS} LIMIT 1", (generation_ms,)))

    def _rows(self, cql: str, parameters: Sequence[object]) -> list[dict[str, Any]]:
        return self._session.rows(cql, parameters, consistency=metadata_consistency(self._session))

    def _warn_of_uncopied(self, known: Sequence[UnixMillis]) -> None:
        """Log generations that are not used until the cluster has copied the older table."""
        if not _columns(self._session, "system_distributed", "cdc_generation_timestamps"):
            return
        newer = [_millis(row["time"]) for row in self._session.rows(_TIMES, (), consistency="ONE")]
        newest = max(newer, default=None)
        if newest is None or newest <= max(known, default=newest - 1) or newest == self._warned_of:
            return
        self._warned_of = newest
        _log.warning(
            "ScyllaDB at %s: the generation of %s is in system_distributed.cdc_generation_timestamps alone, and "
            "system.cdc_local does not contain `rewritten` yet: changes from then on are published when it does. If "
            "it never does, ScyllaDB runs with cdc_dont_rewrite_streams: remove that setting and restart a node",
            *(self._session.address, iso_of_millis(newest)),
        )

    def _uses_newer(self) -> bool:
        if not self._newer:
            older = _columns(self._session, "system_distributed", "cdc_streams_descriptions")
            self._newer = not older or self._is_rewritten()
        return self._newer

    def _is_rewritten(self) -> bool:
        if not _columns(self._session, "system", "cdc_local"):
            return False
        return bool(self._session.rows(_REWRITTEN, (), consistency="ONE"))


class TabletStreams:
    """The stream sets of one table in a tablets keyspace, as the contacted node knows them.

    The nodes learn of a change at different times: an answer that is older than a previous one is ignored.

    Args:
        session: connected to the cluster.
        keyspace: the table's.
        table: name of the base table.
    """

    may_lag = True
    shared = False

    def __init__(self, session: CqlSession, keyspace: str, table: str) -> None:
        self._session = session
        self._table = (keyspace, table)
        self._newest: list[GenerationStart] = []

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; ScyllaDB deletes old ones after a while."""
        known = {one.start_ms: one for one in self._newest}
        found: list[GenerationStart] = []
        rows = self._session.rows(_TABLET_TIMES, self._table)
        for start_ms in sorted(_millis(row["timestamp"]) for row in rows):
            start = known.get(start_ms) or self._start(start_ms)
            if start is None:
                break  # another node answered, which does not know this one yet
            found.append(start)
        if found and (not self._newest or found[-1].start_ms >= self._newest[-1].start_ms):
            self._newest = found
        return self._newest

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        """The streams of a generation whose token lies in a slice of the ring.

        ScyllaDB deletes old timestamps, and with them when a stream was opened; the oldest kept one then replaces it.
        """
        rows = self._session.rows(_TABLET_HISTORY, (*self._table, generation_ms))
        opened = {bytes(row["stream_id"]): _millis(row["timestamp"]) for row in rows if row["stream_state"] == _OPENED}
        current = [
            StreamId(bytes(row["stream_id"]))
            for row in rows
            if row["stream_state"] == _CURRENT and _millis(row["timestamp"]) == generation_ms
        ]
        if not current:
            raise RetriableError(
                f"{'.'.join(self._table)}: the streams of {generation_ms} are not known at {self._session.address}: "
                "the node lags behind, or ScyllaDB has deleted them because the log's TTL has passed"
            )
        return {
            stream: opened.get(stream.raw, generation_ms)
            for stream in sorted(current, key=_raw)
            if stream.token in within
        }

    def key_ranges(self, generation_ms: UnixMillis, within: TokenRange) -> Mapping[StreamId, KeyRange]:
        """The ranges of the keys of a generation's streams; a stream has the same range in each of its stream sets."""
        rows = self._session.rows(_TABLET_STREAMS, (*self._table, generation_ms))
        return ranges_of_tablets(StreamId(bytes(row["stream_id"])) for row in rows if row["stream_state"] == _CURRENT)

    def count(self, generation_ms: UnixMillis) -> int:
        """How many streams a generation has; 0 if the contacted node does not know the generation yet."""
        rows = self._session.rows(_TABLET_STREAMS, (*self._table, generation_ms))
        return sum(row["stream_state"] == _CURRENT for row in rows)

    def _start(self, start_ms: UnixMillis) -> GenerationStart | None:
        rows = self._session.rows(_TABLET_STREAMS, (*self._table, start_ms))
        opened = {bytes(row["stream_id"]) for row in rows if row["stream_state"] == _OPENED}
        current = {bytes(row["stream_id"]) for row in rows if row["stream_state"] == _CURRENT}
        return GenerationStart(start_ms, replaces_all=current <= opened) if current else None


def metadata_consistency(session: CqlSession) -> str:
    """The name of the consistency level for reading the distributed metadata tables.

    ScyllaDB writes them with QUORUM, or with ONE on a single node. In a cluster of several nodes one replica alone is
    never read, whatever is configured: it might lag behind, and a generation or some of its streams would be missed.
    """
    configured = session.settings.metadata_consistency
    several = session.node_count > 1
    if configured is None or (several and configured in ONE_REPLICA):
        return "QUORUM" if several else "ONE"
    return configured


def _columns(session: CqlSession, keyspace: str, table: str) -> frozenset[str]:
    """The columns that the contacted server's release gives a system table; none if it has no such table."""
    rows = session.rows(_COLUMNS.format(keyspace, table), (), consistency="ONE")
    return frozenset(row["column_name"] for row in rows)


def _millis(value: datetime) -> UnixMillis:
    return UnixMillis((value.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1))
