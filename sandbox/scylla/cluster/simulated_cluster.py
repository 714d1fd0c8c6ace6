"""The simulated cluster: creates generations, publishes them in ScyllaDB's order, and finds the stream of a write."""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from struct import Struct
from typing import Final, NamedTuple

from bridge.adapters.scylla.stream_metadata import VnodeStreams
from bridge.model.log_rows import Cells
from bridge.model.streams import StreamId, Token
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros
from sandbox.scylla.cluster.acceptance import LEEWAY_US, accepting_generation
from sandbox.scylla.cluster.generation import Generation
from sandbox.scylla.cluster.known_streams import VNODES, Known, KnownStreams
from sandbox.scylla.cluster.topology import Ring, StreamMap
from sandbox.writing_session import WritingSession

_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_TIMESTAMPS_KEY: Final = b"timestamps"
_INSERT_STREAMS: Final = (
    "INSERT INTO system_distributed.cdc_streams_descriptions_v2 (time, range_end, streams) VALUES (?, ?, ?)"
)
_INSERT_TIMESTAMP: Final = (
    # `expired` stays null, as in every release of ScyllaDB.
    "INSERT INTO system_distributed.cdc_generation_timestamps (key, time) VALUES (?, ?)"
)
_STREAMS: Final = "SELECT range_end, streams FROM system_distributed.cdc_streams_descriptions_v2 WHERE time = ?"
_TABLES: Final = (
    "system_distributed.cdc_generation_timestamps",
    "system_distributed.cdc_streams_descriptions_v2",
    "system_distributed.cdc_streams_descriptions",
)


class Placement(NamedTuple):
    """The stream and generation of a write's log rows."""

    stream_id: StreamId
    generation_ms: UnixMillis


class SimulatedCluster:
    """A vnode cluster whose nodes have equal numbers of shards. Each generation adds a node.

    Not thread-safe. The ring, the streams and their random bits depend on `seed` alone.
    """

    def __init__(
        self, session: WritingSession, *, seed: int, vnodes: int = 16, shards: int = 2, ignore_msb: int = 12
    ) -> None:
        """Create a cluster without generations. Nothing is written.

        Args:
            session: session to the server with the generation tables.
            seed: seed of tokens and stream ids.
            vnodes: number of tokens of each node.
            shards: number of shards of each node, and so of streams of each vnode.
            ignore_msb: the sharding function's ignored bits (ScyllaDB's default is 12).
        """
        self._session = session
        self._known = KnownStreams(session, VNODES)
        self._random = Random(f"{seed}/cluster")  # noqa: S311  # simulated data, wanted to be repeatable
        self._vnodes = vnodes
        self._shards = shards
        self._ignore_msb = ignore_msb
        self._ring = Ring()
        self._maps: list[StreamMap] = []
        self._starts_us: list[UnixMicros] = []

    def resume(self, now_us: UnixMicros) -> tuple[UnixMillis, ...]:
        """Load the published and the known generations that writes may still need.

        Args:
            now_us: the coordinator's clock.

        Returns:
            Starts of those that are not published yet, ascending.

        Raises:
            RetriableError, BridgeError: as `CqlSession.rows`.
        """
        known = self._known.starts()
        published = {start.start_ms for start in VnodeStreams(self._session).generations()}
        unpublished = [start for start in known if start > max(published, default=start - 1)]
        starts = sorted(published | {*known})
        # For some seconds after a change writes may still belong to the earlier generation.
        needed = bisect_right(starts, (now_us - 2 * LEEWAY_US) // 1000) - 1
        if unpublished:
            needed = min(needed, starts.index(unpublished[0]))
        for start_ms in starts[max(0, needed) :]:
            self._take_on(self._map_of(start_ms, is_known=start_ms in known))
        return tuple(unpublished)

    def remember(self, generation: Generation) -> None:
        """Record a generation for later programs, published or not.

        Raises:
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        self._known.add(generation.start_ms, self._streams_of(generation))

    def _map_of(self, start_ms: UnixMillis, *, is_known: bool) -> StreamMap:
        if is_known:
            streams = self._known.streams(start_ms)
            return StreamMap(start_ms, tuple(streams), tuple(streams.values()), self._ignore_msb)
        rows = self._session.rows(_STREAMS, (start_ms,))
        found = {Token(row["range_end"]): [StreamId(bytes(raw)) for raw in row["streams"]] for row in rows}
        return StreamMap.of_published(start_ms, found, ignore_msb=self._ignore_msb)

    def _take_on(self, stream_map: StreamMap) -> None:
        self._maps.append(stream_map)
        self._starts_us.append(millis_to_micros(stream_map.start_ms))
        self._ring = Ring(stream_map.range_ends)

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Every generation that writes use, published or not, oldest first."""
        return tuple(stream_map.generation() for stream_map in self._maps)

    def reset(self) -> None:
        """Empty the generation tables and drop every generation. The ring keeps its nodes.

        Raises:
            RetriableError, BridgeError: as `CqlSession.execute`.
        """
        clear_generations(self._session)
        self._maps.clear()
        self._starts_us.clear()

    def add_generation(self, start_ms: UnixMillis, *, publish: bool = True) -> Generation:
        """Add a node, and use the streams of the new generation from `start_ms` on.

        As in ScyllaDB, writes use the generation from its start on, whether it is published or not.

        Args:
            start_ms: the generation's timestamp in Unix ms, later than that of every other generation.
            publish: whether to publish it at once. Otherwise `publish` does so later.

        Raises:
            ValueError: the start is not later than the newest generation's.
            RetriableError, BridgeError: publishing failed; `publish` may be tried again.
        """
        if self._maps and start_ms <= self._maps[-1].start_ms:
            raise ValueError(f"generation {start_ms} must start after {self._maps[-1].start_ms}")
        self._ring = self._ring.joined_by_node(self._vnodes, self._random)
        made = StreamMap.of_ring(
            start_ms, self._ring, shards=self._shards, ignore_msb=self._ignore_msb, random=self._random
        )
        self._take_on(made)
        generation = made.generation()
        if publish:
            self.publish(generation)
        return generation

    def publish(self, generation: Generation) -> None:
        """Write a generation to the tables for clients. Idempotent.

        Its timestamp is written after all its streams (spec section 5.3), so that a reader that sees the timestamp
        sees the streams.

        Raises:
            ValueError: the cluster has no such generation.
            RetriableError, BridgeError: as `CqlSession.write_raw`.
        """
        publish_streams(self._session, generation.start_ms, self._streams_of(generation))

    def _streams_of(self, generation: Generation) -> Known:
        """A generation's streams in shard order, as the server stores them."""
        made = {stream_map.start_ms: stream_map for stream_map in self._maps}
        if generation.start_ms not in made:
            raise ValueError(f"no generation {generation.start_ms} to publish; there are {sorted(made)}")
        stream_map = made[generation.start_ms]
        return dict(zip(stream_map.range_ends, stream_map.streams, strict=True))

    def stream_for(self, token: Token, write_us: UnixMicros, now_us: UnixMicros) -> Placement:
        """Return the stream of a write.

        Args:
            token: token of the base partition.
            write_us: the write's timestamp in Unix us.
            now_us: the coordinator's clock in Unix us.

        Raises:
            SimulatorRefusal: ScyllaDB would refuse the timestamp (spec section 5.5).
        """
        stream_map = self._maps[accepting_generation(self._starts_us, write_us, now_us)]
        return Placement(stream_map.stream_for(token), stream_map.start_ms)


def clear_generations(session: WritingSession) -> None:
    """Empty the generation tables, including that of the nodes.

    Raises:
        RetriableError, BridgeError: as `CqlSession.execute`.
    """
    for table in _TABLES:
        session.execute(f"TRUNCATE {table}")
    KnownStreams(session, VNODES).forget()


def publish_streams(session: WritingSession, start_ms: UnixMillis, streams: Known) -> None:
    """Write one generation's streams, then its timestamp, in the format of ScyllaDB's tables.

    Raises:
        RetriableError, BridgeError: as `CqlSession.write_raw`.
    """
    time = _LONG.pack(start_ms)
    insert = session.prepare(_INSERT_STREAMS)
    rows: list[Cells] = [(time, _LONG.pack(end), _blob_set(ids)) for end, ids in streams.items()]
    session.write_all(lambda row=row: session.write_raw(insert, row) for row in rows)  # type: ignore[misc]
    session.write_raw(session.prepare(_INSERT_TIMESTAMP), (_TIMESTAMPS_KEY, time)).result()


def _blob_set(ids: tuple[StreamId, ...]) -> bytes:
    body = b"".join(_INT.pack(len(stream.raw)) + stream.raw for stream in ids)
    return _INT.pack(len(ids)) + body
