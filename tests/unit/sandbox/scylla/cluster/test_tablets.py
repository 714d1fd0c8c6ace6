"""Tablet maps and stream sets, pure."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMillis
from sandbox.scylla.cluster.tablets import TabletSet, collected_base, construct_next, diff, last_tokens, merge, split


def streams(*tokens: int) -> tuple[StreamId, ...]:
    return tuple(StreamId.build(Token(token), 0, 7) for token in tokens)


@pytest.mark.parametrize(
    ("tablets", "leading_bytes"),
    [
        (1, ["7fff"]),
        (2, ["ffff", "7fff"]),
        (4, ["bfff", "ffff", "3fff", "7fff"]),
        (8, ["9fff", "bfff", "dfff", "ffff", "1fff", "3fff", "5fff", "7fff"]),
    ],
)
def test_last_tokens(tablets: int, leading_bytes: list[str]) -> None:
    """Equal tablets end at these tokens, in token order; all further bits are ones."""
    tokens = last_tokens(tablets)
    assert [(token % (1 << 64)).to_bytes(8, "big").hex() for token in tokens] == [
        lead + "f" * 12 for lead in leading_bytes
    ]


def test_split_and_merge_are_each_others_inverse() -> None:
    """Splitting every tablet doubles their number; some alone leave the others where they are."""
    assert split(last_tokens(4)) == last_tokens(8)
    assert merge(last_tokens(8)) == last_tokens(4)
    some = split(last_tokens(2), [1])
    assert some == (Token(-1), Token((1 << 62) - 1), MAX_TOKEN)
    assert merge(some, [1]) == last_tokens(2)
    with pytest.raises(ValueError, match="power of two"):
        last_tokens(3)
    with pytest.raises(ValueError, match="no next one"):
        merge(last_tokens(2), [1])


@pytest.mark.parametrize(
    ("before", "opened", "closed", "expected"),
    [
        ([1, 4, 9], [2, 6], [4], [1, 2, 6, 9]),
        ([1, 4, 9], [0, 2, 6, 12], [1, 4, 9], [0, 2, 6, 12]),
        ([1, 4, 9], [], [1, 4, 9], []),
        ([], [1, 4, 9], [], [1, 4, 9]),
        ([4], [1, 6, 9], [], [1, 4, 6, 9]),
        ([-8, 3], [-2], [], [-8, -2, 3]),
    ],
)
def test_next_set(before: list[int], opened: list[int], closed: list[int], expected: list[int]) -> None:
    """Closed streams leave, opened ones come in at their token's place."""
    assert construct_next(streams(*before), streams(*opened), streams(*closed)) == streams(*expected)


@pytest.mark.parametrize(
    ("before", "after", "closed", "opened"),
    [
        ([1, 4, 9], [1, 9, 20], [4], [20]),
        ([1, 4, 9], [9, 20, 30], [1, 4], [20, 30]),
        ([], [9, 20], [], [9, 20]),
        ([1, 4, 9], [], [1, 4, 9], []),
        ([1, 4, 9], [0], [1, 4, 9], [0]),
        ([1, 4, 9], [0, 12, 30], [1, 4, 9], [0, 12, 30]),
        ([1, 4, 9], [1, 2, 4, 6, 9], [], [2, 6]),
        ([1, 2, 3, 4, 5], [1, 3, 5], [2, 4], []),
    ],
)
def test_diff(before: list[int], after: list[int], closed: list[int], opened: list[int]) -> None:
    """What is in one set alone; the next set follows from it."""
    assert diff(streams(*before), streams(*after)) == (streams(*closed), streams(*opened))
    assert construct_next(streams(*before), streams(*opened), streams(*closed)) == streams(*after)


@pytest.mark.parametrize(
    ("ages_s", "ttl_s", "base"),
    [
        ([60], 40, 0),
        ([60], 90, 0),
        ([50, 20], 60, 0),
        ([50, 20], 40, 0),
        ([50, 20], 20, 1),
        ([50, 20], 7, 1),
        ([80, 50, 30, 20], 60, 0),
        ([80, 50, 30, 20], 50, 1),
        ([80, 50, 30, 20], 40, 1),
        ([80, 50, 30, 20], 25, 2),
        ([80, 50, 30, 20], 7, 3),
        ([80, 50, 30, 20], 0, 0),
    ],
)
def test_base_of_garbage_collection(ages_s: list[int], ttl_s: int, base: int) -> None:
    """The newest set that is as old as the TTL stays, with all that are younger; a TTL of 0 keeps everything."""
    now_ms = 10_000_000
    assert collected_base([UnixMillis(now_ms - age * 1000) for age in ages_s], UnixMillis(now_ms), ttl_s) == base


@settings(max_examples=30)
@given(st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.sampled_from([1, 2, 8]))
def test_stream_of_a_token(token: int, tablets: int) -> None:
    """The first whose token is not less; nothing wraps."""
    ends = last_tokens(tablets)
    found = TabletSet(UnixMillis(1), streams(*ends)).stream_for(Token(token)).token
    assert token <= found
    assert not any(before < found and token <= before for before, _ in pairwise(ends))
