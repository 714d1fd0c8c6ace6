"""Simulated tablets: splits and merges, the stream sets of one table's log, and their publication.

The functions are pure and follow spec sections 4.4 and 5.4. `SimulatedTablets` writes ScyllaDB's virtual tables, which
are plain tables on the local stack.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from struct import Struct
from typing import Final

from bridge.adapters.scylla.tablet_streams import TabletStreams
from bridge.model.log_rows import Cells
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, TokenRange
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from sandbox.scylla.cluster.acceptance import LEEWAY_US, SimulatorRefusal
from sandbox.scylla.cluster.known_streams import KnownStreams
from sandbox.scylla.cluster.simulated_cluster import Placement
from sandbox.writing_session import WritingSession

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
CURRENT: Final = 0
CLOSED: Final = 1
OPENED: Final = 2
_INSERT_STREAM: Final = (
    # `ring_token` sorts the rows, as on ScyllaDB; only the local stack has this column.
    "INSERT INTO system.cdc_streams (keyspace_name, table_name, timestamp, stream_state, ring_token, stream_id) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_INSERT_TIME: Final = "INSERT INTO system.cdc_timestamps (keyspace_name, table_name, timestamp) VALUES (?, ?, ?)"
_DELETE_STREAMS: Final = "DELETE FROM system.cdc_streams WHERE keyspace_name = ? AND table_name = ? AND timestamp = ?"
_DELETE_TIME: Final = "DELETE FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ? AND timestamp = ?"
_TABLES: Final = ("system.cdc_timestamps", "system.cdc_streams")
_DELETE_KEYSPACE: Final = "DELETE FROM system_schema.scylla_keyspaces WHERE keyspace_name = ?"
_INSERT_KEYSPACE: Final = "INSERT INTO system_schema.scylla_keyspaces (keyspace_name, initial_tablets) VALUES (?, ?)"

Streams = tuple[StreamId, ...]
"""The streams of a set, ascending by token."""


def last_tokens(tablets: int) -> tuple[Token, ...]:
    """The last token of each of `tablets` equal tablets, a power of two of them."""
    if tablets < 1 or tablets & (tablets - 1):
        raise ValueError(f"a table starts with a power of two of tablets, not {tablets}")
    return tuple(Token(MIN_TOKEN + (1 << 64) * (place + 1) // tablets - 1) for place in range(tablets))


def split(tokens: Sequence[Token], places: Iterable[int] | None = None) -> tuple[Token, ...]:
    """The last tokens when the tablets at `places` (all, if None) become two halves each."""
    chosen = set(range(len(tokens)) if places is None else places)
    found: list[Token] = []
    for place, last in enumerate(tokens):
        if place in chosen:
            before = tokens[place - 1] if place else Token(MIN_TOKEN - 1)
            found.append(Token((before + last) // 2))
        found.append(last)
    return tuple(found)


def merge(tokens: Sequence[Token], places: Iterable[int] | None = None) -> tuple[Token, ...]:
    """The last tokens when each tablet at `places` (every other from the first, if None) is joined with its next."""
    gone = set(range(0, len(tokens) - 1, 2) if places is None else places)
    if gone and max(gone) >= len(tokens) - 1:
        raise ValueError("the last tablet has no next one to be joined with")
    return tuple(last for place, last in enumerate(tokens) if place not in gone)


def construct_next(before: Sequence[StreamId], opened: Iterable[StreamId], closed: Iterable[StreamId]) -> Streams:
    """The stream set after a change: set - closed + opened, ascending by token."""
    gone = set(closed)
    return tuple(sorted([*(stream for stream in before if stream not in gone), *opened], key=_by_token))


def diff(before: Iterable[StreamId], after: Iterable[StreamId]) -> tuple[Streams, Streams]:
    """The streams that close and those that open between two stream sets, ascending by token."""
    old, new = set(before), set(after)
    return tuple(sorted(old - new, key=_by_token)), tuple(sorted(new - old, key=_by_token))


def collected_base(starts_ms: Sequence[UnixMillis], now_ms: UnixMillis, ttl_s: int) -> int:
    """The index of the oldest set that garbage collection keeps: the newest one that is at least as old as the TTL.

    Args:
        starts_ms: of the kept sets, ascending.
        now_ms: the coordinator's clock.
        ttl_s: of the log; 0 keeps all.
    """
    return 0 if ttl_s == 0 else max(0, bisect_right(starts_ms, now_ms - ttl_s * 1000) - 1)


@dataclass(frozen=True, slots=True)
class TabletSet:
    """One stream set: the streams in force from a timestamp on."""

    start_ms: UnixMillis
    streams: Streams

    def stream_for(self, token: Token) -> StreamId:
        """The first stream whose token is not less; the last one's is the ring's last."""
        return self.streams[bisect_left(self.streams, token, key=_by_token)]


class SimulatedTablets:
    """The stream sets of one table: creates, publishes and garbage-collects them as ScyllaDB does.

    The counterpart of `SimulatedCluster` for one table of a tablets keyspace. Not thread-safe; ids depend on `seed` and
    the table's name alone.
    """

    def __init__(self, session: WritingSession, keyspace: str, table: str, *, seed: int) -> None:
        """Take the table; it has no stream set yet, and nothing is written.

        Args:
            session: where the metadata tables are.
            keyspace: of the base table.
            table: the base table's name, as the virtual tables have it.
            seed: decides the stream ids.
        """
        self._session = session
        self._metadata = TabletStreams(session, keyspace, table)
        self._table = (keyspace.encode(), table.encode())
        self._name = f"{keyspace}.{table}"
        self._known = KnownStreams(session, self._name)
        self._random = Random(f"{seed}/tablets/{self._name}")  # noqa: S311  # simulated data, wanted to be repeatable
        self._sets: list[TabletSet] = []
        self._published: list[TabletSet] = []

    @property
    def sets(self) -> tuple[TabletSet, ...]:
        """Every set that writes use, published or not, oldest first."""
        return tuple(self._sets)

    def resume(self) -> tuple[TabletSet, ...]:
        """Load the sets that are published or known to the nodes; return the unpublished ones, ascending.

        Raises:
            RetriableError, BridgeError: as `CqlSession.rows`.
        """
        for start in self._metadata.generations():
            shown = self._metadata.streams(start.start_ms, TokenRange(None, MAX_TOKEN))
            self._published.append(TabletSet(start.start_ms, tuple(sorted(shown, key=_by_token))))
        newest = self._published[-1].start_ms if self._published else 0
        waiting = [
            TabletSet(
                start_ms, tuple(stream for streams in self._known.streams(start_ms).values() for stream in streams)
            )
            for start_ms in self._known.starts()
            if start_ms > newest
        ]
        self._sets = [*self._published, *waiting]
        return tuple(waiting)

    def remember(self, made: TabletSet) -> None:
        """Record an unpublished set for later programs.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        self._known.add(made.start_ms, {stream.token: (stream,) for stream in made.streams})

    def create(self, start_ms: UnixMillis, tablets: int) -> TabletSet:
        """The first set, as the log table's creation makes it; published at once.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        first = TabletSet(start_ms, self._streams(last_tokens(tablets)))
        self._sets = [first]
        self.publish(first)
        return first

    def resize(
        self, start_ms: UnixMillis, tokens: Sequence[Token], *, partial: bool = False, publish: bool = True
    ) -> TabletSet:
        """A split or a merge: a new set for tablets that end at `tokens`.

        Args:
            start_ms: from when it is used; later than every earlier set's.
            tokens: see `split` and `merge`.
            partial: streams whose tablet stays go on. Today's ScyllaDB replaces all, its format allows both.
            publish: also write it to the tables that readers see; else `publish` does so later.

        Raises:
            ValueError: the start is not later than the newest set's.
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        last = self._sets[-1]
        if start_ms <= last.start_ms:
            raise ValueError(f"{self._name}: set {start_ms} must start after {last.start_ms}")
        before = {stream.token: place for place, stream in enumerate(last.streams)}
        made = self._streams(tokens)
        if partial:
            made = tuple(
                last.streams[before[stream.token]] if _same_tablet(made, place, last.streams, before) else stream
                for place, stream in enumerate(made)
            )
        resized = TabletSet(start_ms, made)
        self._sets.append(resized)
        if publish:
            self.publish(resized)
        return resized

    def publish(self, made: TabletSet) -> None:
        """Show a set to readers: its states, then its timestamp; idempotent. Sets come in their order.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        if made in self._published:
            return
        before = self._published[-1].streams if self._published else ()
        closed, opened = diff(before, made.streams)
        self._show(made, {CURRENT: made.streams, CLOSED: closed, OPENED: opened})
        self._published.append(made)

    def collect(self, now_ms: UnixMillis, ttl_s: int) -> TabletSet:
        """Delete the sets before the base, and publish all streams of the base as opened, as garbage collection does.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        base = collected_base([one.start_ms for one in self._published], now_ms, ttl_s)
        if base:
            for one in self._published[: base + 1]:
                time = _LONG.pack(one.start_ms)
                self._write(_DELETE_TIME, (time,))
                self._write(_DELETE_STREAMS, (time,))
            del self._published[:base]
            kept = self._published[0]
            self._sets = [one for one in self._sets if one.start_ms >= kept.start_ms]
            self._show(kept, {CURRENT: kept.streams, OPENED: kept.streams})
        return self._published[0]

    def drop(self) -> None:
        """What dropping the table or its log does: all of its sets vanish.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        for table in _TABLES:
            self._write(f"DELETE FROM {table} WHERE keyspace_name = ? AND table_name = ?", ())  # noqa: S608  # names of ours
        self._known.forget()
        self._sets, self._published = [], []

    def stream_for(self, token: Token, write_us: UnixMicros, now_us: UnixMicros) -> Placement:
        """The stream that takes a write; there is no lower limit to its timestamp but the oldest kept set.

        Raises:
            SimulatorRefusal: ScyllaDB would refuse the timestamp (spec section 5.5).
        """
        if write_us > now_us + LEEWAY_US:
            raise SimulatorRefusal(
                'cdc: attempted to get a stream "from the future" '
                f"(write timestamp {write_us}, node's clock {now_us}, leeway {LEEWAY_US} us)"
            )
        place = bisect_right([millis_to_micros(one.start_ms) for one in self._sets], write_us) - 1
        if place < 0:
            raise SimulatorRefusal(
                f"cdc::metadata::get_stream: could not find any CDC streams for table {self._name}, "
                f"timestamp {write_us}"
            )
        stream = self._sets[place].stream_for(token)
        opened = next(one.start_ms for one in self._sets if stream in one.streams)
        return Placement(stream, opened)

    def _streams(self, tokens: Sequence[Token]) -> Streams:
        if not tokens or tokens[-1] != MAX_TOKEN:
            raise ValueError("the last tablet ends with the ring")
        return tuple(StreamId.build(token, 0, self._random.getrandbits(38)) for token in tokens)

    def _show(self, made: TabletSet, states: dict[int, Streams]) -> None:
        time = _LONG.pack(made.start_ms)
        insert = self._session.prepare(_INSERT_STREAM)
        rows: list[Cells] = [
            (*self._table, time, bytes([state]), _LONG.pack(stream.token), stream.raw)
            for state, streams in states.items()
            for stream in streams
        ]
        self._session.write_all(lambda row=row: self._session.write_raw(insert, row) for row in rows)  # type: ignore[misc]
        self._write(_INSERT_TIME, (time,))

    def _write(self, cql: str, cells: Cells) -> None:
        self._session.write_raw(self._session.prepare(cql), (*self._table, *cells)).result()


def mark_tablets(session: WritingSession, keyspace: str, initial: int | None = 0) -> None:
    """Say in `system_schema.scylla_keyspaces` that a keyspace uses tablets.

    Args:
        session: to the server.
        keyspace: its name.
        initial: how many tablets its tables begin with; 0 leaves that to the server; None: the keyspace has none.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    # ScyllaDB has a row for keyspaces with tablets alone.
    cql, cells = (_DELETE_KEYSPACE, ()) if initial is None else (_INSERT_KEYSPACE, (_INT.pack(initial),))
    session.write_raw(session.prepare(cql), (keyspace.encode(), *cells)).result()


def _same_tablet(made: Streams, place: int, before: Streams, places: dict[Token, int]) -> bool:
    at = places.get(made[place].token)
    if at is None:
        return False
    return (made[place - 1].token if place else None) == (before[at - 1].token if at else None)


def _by_token(stream: StreamId) -> Token:
    return stream.token
