"""Stream ids and token arithmetic, checked against ScyllaDB's documented examples."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.streams import (
    MAX_TOKEN,
    MIN_TOKEN,
    StreamId,
    Token,
    first_token_of_shard,
    lane_range,
    shard_of,
)

IDS = [
    ("7ffe0c687fcce86e0783343730000001", 9_222_822_729_861_621_870, 0),
    ("80000000000000010d9ee5f1f4000001", -9_223_372_036_854_775_807, 0),
    ("807ae73e07dbd4122e32d36e08000011", -9_188_777_836_090_239_982, 1),
    ("ced00000000000009663c8dc500005a1", -3_544_332_906_740_580_352, 90),
    ("c417fed9f65a8577e5ac04d700000411", -4_316_701_505_716_845_193, 65),
    ("ffffffffffffffff50e84c99d4000001", -1, 0),
]
INT_KEYS = {
    0: -3_485_513_579_396_041_028,
    1: -4_069_959_284_402_364_209,
    2: -3_248_873_570_005_575_792,
    3: 9_010_454_139_840_013_625,
    5: -7_509_452_495_886_106_294,
}
KEYS_OF_TOKENS = {
    "f6aa3d6c1d288fbef20580ddb26542bb": -3_544_332_906_740_580_352,
    "7892b8c173924a0bbe96aa099d7c8c1a": -1,
    "5ed0b893f10c088ccf0e007bf6edbf61": 0,
    "0580ac3a93bc2d3800238bdf71626cd2": MAX_TOKEN,
}


@pytest.mark.parametrize(("text", "token", "index"), IDS)
def test_a_stream_id_tells_its_token_version_and_index(text: str, token: int, index: int) -> None:
    """And is rebuilt from them and its random bits."""
    stream = StreamId(bytes.fromhex(text))
    assert (stream.token, stream.version, stream.index, str(stream)) == (token, 1, index, "0x" + text)
    random = int.from_bytes(stream.raw[8:], "big") >> 26
    assert StreamId.build(Token(token), index, random) == stream


def test_a_stream_id_shorter_than_a_token_is_refused() -> None:
    """Nothing of it would mean anything."""
    with pytest.raises(ValueError, match="at least 8 bytes, not 7"):
        StreamId(b"1234567")


@pytest.mark.parametrize(("key", "token"), INT_KEYS.items())
def test_an_int_key_has_the_servers_token(key: int, token: int) -> None:
    """Its four bytes are hashed as they are."""
    assert murmur3_token(key.to_bytes(4, "big")) == token


@pytest.mark.parametrize(("key", "token"), KEYS_OF_TOKENS.items())
def test_a_sixteen_byte_key_has_the_servers_token(key: str, token: int) -> None:
    """One whole block, no tail."""
    assert murmur3_token(bytes.fromhex(key)) == token


def test_a_composite_key_is_hashed_with_lengths_and_zeros() -> None:
    """A single component is hashed bare."""
    assert partition_key_bytes([b"ab"]) == b"ab"
    assert partition_key_bytes([b"ab", b""]) == b"\0\2ab\0\0\0\0"


@pytest.mark.parametrize(
    ("key", "shards", "ignore_msb", "shard"),
    [
        (0, 3, 10, 1),
        (1, 4, 12, 1),
        (1, 8, 12, 2),
        (2, 3, 12, 1),
        (3, 3, 12, 2),
        (3, 8, 12, 5),
        (5, 3, 0, 0),
        (3, 1, 0, 0),
    ],
)
def test_shards_of_tokens(key: int, shards: int, ignore_msb: int, shard: int) -> None:
    """The ignored bits are shifted out before the ring is cut."""
    assert shard_of(Token(INT_KEYS[key]), shards, ignore_msb) == shard


@given(
    st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(1, 64), st.integers(0, 14)
)
def test_the_first_token_of_a_shard_is_the_shards(after: int, until: int, shards: int, ignore_msb: int) -> None:
    """It is owned by the shard, lies in the range, and no earlier one of the range's first tokens is owned by it."""
    for shard in range(shards):
        token = first_token_of_shard(Token(after), Token(until), shard, shards, ignore_msb)
        if token is None:
            continue
        distance = (token - after) % (1 << 64)
        assert 0 < distance <= ((until - after) % (1 << 64) or 1 << 64)
        assert shard_of(token, shards, ignore_msb) == shard
        for earlier in range(1, min(distance, 50)):
            probe = (after + earlier + (1 << 63)) % (1 << 64) - (1 << 63)
            assert probe == MIN_TOKEN or shard_of(Token(probe), shards, ignore_msb) != shard


@given(st.integers(1, 40), st.integers(MIN_TOKEN, MAX_TOKEN))
def test_every_token_lies_in_exactly_one_lane(lanes: int, token: int) -> None:
    """Each token is in exactly one lane, for any number of lanes."""
    assert sum(Token(token) in lane_range(lane, lanes) for lane in range(lanes)) == 1


def test_lanes_hold_both_ends_of_the_ring() -> None:
    """The lowest token too, though no server uses it."""
    assert MIN_TOKEN in lane_range(0, 3)
    assert MAX_TOKEN in lane_range(2, 3)
    assert "no token" not in lane_range(0, 3)
    with pytest.raises(ValueError, match="lane 3 does not exist among 3 lanes"):
        lane_range(3, 3)
