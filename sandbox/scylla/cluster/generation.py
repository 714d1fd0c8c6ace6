"""Vnode generations: which streams they have, and how ScyllaDB builds them. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bridge.model.streams import StreamId, Token, first_token_of_shard
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """The streams of one vnode.

    Attributes:
        range_end: last token of the vnode; unique inside its generation.
        streams: sorted by id. ScyllaDB's tables do not keep the shard order (spec section 4.3).
    """

    range_end: Token
    streams: tuple[StreamId, ...]


@dataclass(frozen=True, slots=True)
class Generation:
    """All streams of a vnode cluster and the instant from which writes use them.

    Attributes:
        start_ms: the generation's timestamp in Unix ms, which identifies it.
        stream_groups: one for each vnode, ascending by `range_end`.
    """

    start_ms: UnixMillis
    stream_groups: tuple[StreamGroup, ...]

    def __post_init__(self) -> None:
        ends = [group.range_end for group in self.stream_groups]
        if ends != sorted(set(ends)):
            raise ValueError(f"generation {self.start_ms}: stream groups must ascend by range end, each once")

    @property
    def start_us(self) -> UnixMicros:
        """The generation's start in Unix us."""
        return millis_to_micros(self.start_ms)

    def streams(self) -> Iterator[StreamId]:
        """Every stream, vnode by vnode."""
        for group in self.stream_groups:
            yield from group.streams

    def stream_group_for(self, token: Token) -> StreamGroup:
        """The group whose range holds the token; the first range wraps round the ring."""
        ends = [group.range_end for group in self.stream_groups]
        return self.stream_groups[bisect_left(ends, token) % len(ends)]


def build_vnode_streams(
    range_ends: Sequence[Token], shards: int, ignore_msb: int, randoms: Iterable[int]
) -> tuple[tuple[StreamId, ...], ...]:
    """Build the streams of a new generation as ScyllaDB does: one for each shard of each vnode.

    Args:
        range_ends: the ring's tokens, ascending.
        shards: number of shards of every node.
        ignore_msb: ignored bits of the sharding function (12 by default in ScyllaDB).
        randoms: one number for each stream; 38 bits of it are used.

    Returns:
        For each vnode its streams, in shard order.
    """
    random = iter(randoms)
    ring = []
    for index, until in enumerate(range_ends):
        after = range_ends[index - 1]
        streams = []
        for shard in range(shards):
            token = first_token_of_shard(after, until, shard, shards, ignore_msb)
            streams.append(StreamId.build(until if token is None else token, index, next(random)))
        ring.append(tuple(streams))
    return tuple(ring)
