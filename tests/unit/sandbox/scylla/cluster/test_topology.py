"""Rings that grow, and generations on them."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, Token
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.topology import Ring, StreamMap


def test_a_joining_node_splits_ranges_and_leaves_the_old_tokens() -> None:
    """The ring stays ascending; the same seed gives the same ring."""
    one = Ring().joined_by_node(16, Random(1))
    two = one.joined_by_node(16, Random(2))
    assert (len(one.tokens), len(two.tokens)) == (16, 32)
    assert set(one.tokens) < set(two.tokens)
    assert list(two.tokens) == sorted(two.tokens)
    assert Ring().joined_by_node(16, Random(1)) == one


@given(st.integers(MIN_TOKEN + 1, MAX_TOKEN))
def test_a_tokens_stream_lies_in_its_vnodes_set(token: int) -> None:
    """What readers see as a set holds the stream that writers choose."""
    ring = Ring().joined_by_node(8, Random(7))
    made = StreamMap.of_ring(UnixMillis(5), ring, shards=3, ignore_msb=12, random=Random(8))
    stream = made.stream_for(Token(token))
    generation = made.generation()
    assert stream in generation.stream_group_for(Token(token)).streams
    assert len(set(generation.streams())) == 24
    assert generation.start_ms == 5


def test_a_published_generation_gets_its_shard_order_back() -> None:
    """What readers see as sets is the writers' map again."""
    made = StreamMap.of_ring(
        UnixMillis(5), Ring().joined_by_node(16, Random(3)), shards=5, ignore_msb=12, random=Random(4)
    )
    published = {one.range_end: one.streams for one in made.generation().stream_groups}
    assert StreamMap.of_published(UnixMillis(5), published, ignore_msb=12) == made
