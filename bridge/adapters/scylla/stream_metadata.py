"""The streams of a table's log, and since when it has them: ScyllaDB's metadata tables behind one small interface.

| class | tables | scope |
|---|---|---|
| `VnodeStreams` | `system_distributed.cdc_generation_timestamps`, `.cdc_streams_descriptions_v2`; | the cluster |
| | of clusters created before 4.4 also `system_distributed.cdc_streams_descriptions` | |
| `TabletStreams` | `system.cdc_timestamps`, `system.cdc_streams` | one table |

Releases differ in their tables and columns. `system_schema.columns` lists those of the contacted server, so that no
request is refused.

Every method raises RetriableError if the cluster does not answer, or not with all of its metadata yet, and BridgeError
if it refuses the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol

from bridge.adapters.scylla.session import CqlSession
from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.errors import RetriableError
from bridge.model.key_ranges import KeyRange, ranges_of_vnodes
from bridge.model.micro_batch import Role, Selection
from bridge.model.streams import MAX_TOKEN, StreamId, Streams, TokenRange
from bridge.model.times import UnixMillis, millis_of
from bridge.planning.micro_batches import GenerationStart

_COLUMNS: Final = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = '{}' AND table_name = '{}'"
_TABLETS: Final = "SELECT initial_tablets FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"

_TIMES: Final = "SELECT time FROM system_distributed.cdc_generation_timestamps WHERE key = 'timestamps'"
_STREAMS: Final = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
_OLD_TIMES: Final = "SELECT time FROM system_distributed.cdc_streams_descriptions"
_OLD_STREAMS: Final = "SELECT streams FROM system_distributed.cdc_streams_descriptions WHERE time = ?"
_REWRITTEN: Final = "SELECT key FROM system.cdc_local WHERE key = 'rewritten'"

_COUNT_BYTES: Final = 4
"""The cell of a CQL set begins with the number of its elements, in this many bytes."""
_raw: Final = attrgetter("raw")
ONE_REPLICA: Final = frozenset({"ONE", "LOCAL_ONE"})


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

    ScyllaDB 4.4 replaced the older table by two newer ones, and copies generations from one to the others. When a node
    has found the copy complete, its `system.cdc_local` contains `rewritten`: then the newer tables count alone. A node
    that was created since 2026.2 never has that mark, and a cluster that runs with `cdc_dont_rewrite_streams` has none
    either. Without it, the generations of all tables count, and the newer tables have precedence. So a generation
    counts the same before and after the copy, and no node's mark decides what is known.

    Args:
        session: connected to the cluster.
    """

    shared = True

    def __init__(self, session: CqlSession) -> None:
        self._session = session
        self._has_newer = False
        self._older: frozenset[UnixMillis] | None = None
        # While the older table may still grow, the contacted node may be amid the cluster's upgrade.
        self.may_lag = True

    def generations(self) -> list[GenerationStart]:
        """The published generations, ascending; empty if there is none yet."""
        newer = self._newer_times()
        return [GenerationStart(start_ms) for start_ms in sorted(newer | self._older_times(newer))]

    def streams(self, generation_ms: UnixMillis, within: TokenRange) -> Streams:
        """The streams of a generation whose token lies in a slice of the ring."""
        # The driver accepts an integer for a timestamp, as milliseconds.
        newer = self._is_in_newer(generation_ms)
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
        if not self._is_in_newer(generation_ms):
            return {}
        rows = self._slice(generation_ms, within)
        if within.after is None and within.until == MAX_TOKEN:
            rows = rows + rows[:1]
        return ranges_of_vnodes(
            (row["range_end"], [StreamId(bytes(raw)) for raw in row["streams"]]) for row in rows if row["streams"]
        )

    def count(self, generation_ms: UnixMillis) -> int:
        """How many streams a generation has; counts them without decoding: there may be hundreds of thousands."""
        cql = _STREAMS if self._is_in_newer(generation_ms) else _OLD_STREAMS
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

    def _newer_times(self) -> frozenset[UnixMillis]:
        if not self._has_newer:
            self._has_newer = bool(_columns(self._session, "system_distributed", "cdc_generation_timestamps"))
        return self._times(_TIMES) if self._has_newer else frozenset()

    def _older_times(self, newer: frozenset[UnixMillis]) -> frozenset[UnixMillis]:
        """Return the generations of the older table; none if it does not count any more."""
        if self._older is None:
            older = self._times(_OLD_TIMES) if self._older_counts() else None
            if older is not None and max(newer, default=-1) < max(older, default=0):
                return older
            # Generations are published in order, so no node writes to the older table any more. It is not read again:
            # a query of its times reads all of its streams.
            self._older = older or frozenset()
            self.may_lag = False
        return self._older

    def _older_counts(self) -> bool:
        return bool(_columns(self._session, "system_distributed", "cdc_streams_descriptions")) and not (
            self._is_rewritten()
        )

    def _is_in_newer(self, generation_ms: UnixMillis) -> bool:
        if self._older is None:
            self.generations()
        if self._older is not None and generation_ms not in self._older:
            return True
        # While a generation is copied, its first rows may be there, but its time comes last.
        return generation_ms in self._newer_times()

    def _is_rewritten(self) -> bool:
        if not _columns(self._session, "system", "cdc_local"):
            return False
        return bool(self._session.rows(_REWRITTEN, (), consistency="ONE"))

    def _times(self, cql: str) -> frozenset[UnixMillis]:
        return frozenset(millis_of(row["time"]) for row in self._rows(cql, ()))


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
