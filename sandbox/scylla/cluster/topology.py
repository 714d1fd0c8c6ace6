"""The simulated ring and the streams of its generations, by token. Pure.

A real client cannot recompute this mapping, because the tables for clients lose the shard order of the streams (spec
section 4.3). The simulator keeps the order, so that a partition gets the stream that ScyllaDB would choose.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from bridge.model.streams import StreamId, Token, shard_of
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.generation import Generation, StreamGroup, build_vnode_streams


@dataclass(frozen=True, slots=True)
class Ring:
    """The tokens of every node, ascending."""

    tokens: tuple[Token, ...] = ()

    def joined_by_node(self, vnodes: int, random: Random) -> Ring:
        """The ring after a node with `vnodes` tokens has joined: new tokens split ranges, old ones stay."""
        tokens = set(self.tokens)
        wanted = len(tokens) + vnodes
        while len(tokens) < wanted:
            # No node has the lowest token (spec section 4.2).
            tokens.add(Token(random.randrange(-(1 << 63) + 1, 1 << 63)))
        return Ring(tuple(sorted(tokens)))


@dataclass(frozen=True, slots=True)
class StreamMap:
    """One generation with its streams in shard order.

    Attributes:
        start_ms: the generation's timestamp.
        range_ends: last token of each vnode, ascending.
        streams: for each vnode its streams, one a shard, in shard order.
        ignore_msb: the sharding function's ignored bits.
    """

    start_ms: UnixMillis
    range_ends: tuple[Token, ...]
    streams: tuple[tuple[StreamId, ...], ...]
    ignore_msb: int

    @classmethod
    def of_ring(cls, start_ms: UnixMillis, ring: Ring, *, shards: int, ignore_msb: int, random: Random) -> StreamMap:
        """A new generation for a ring, with random bits of its own."""
        randoms = (random.getrandbits(38) for _ in range(len(ring.tokens) * shards))
        streams = build_vnode_streams(ring.tokens, shards, ignore_msb, randoms)
        return cls(start_ms, ring.tokens, streams, ignore_msb)

    @classmethod
    def of_published(
        cls, start_ms: UnixMillis, streams: Mapping[Token, Sequence[StreamId]], *, ignore_msb: int
    ) -> StreamMap:
        """Rebuild a generation from its published streams, with each vnode's streams in shard order.

        The tokens show that order, unless a vnode is so small that it has no token for one of the shards.
        """
        ends = tuple(sorted(streams))

        def in_order(found: Sequence[StreamId]) -> tuple[StreamId, ...]:
            return tuple(sorted(found, key=lambda stream: shard_of(stream.token, len(found), ignore_msb)))

        return cls(start_ms, ends, tuple(in_order(streams[end]) for end in ends), ignore_msb)

    def stream_for(self, token: Token) -> StreamId:
        """The stream of a base partition (spec section 4.3): its vnode's, then its shard's."""
        streams = self.streams[bisect_left(self.range_ends, token) % len(self.range_ends)]
        return streams[shard_of(token, len(streams), self.ignore_msb)]

    def generation(self) -> Generation:
        """The generation as readers see it: the shard order of each vnode's streams is lost."""
        groups = (
            StreamGroup(range_end, tuple(sorted(streams)))
            for range_end, streams in zip(self.range_ends, self.streams, strict=True)
        )
        return Generation(self.start_ms, tuple(groups))
