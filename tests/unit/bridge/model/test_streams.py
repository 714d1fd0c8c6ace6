"""Stream ids and token arithmetic, checked against ScyllaDB's documented examples and against recorded rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.streams import (
    MAX_TOKEN,
    MIN_TOKEN,
    Generation,
    StreamId,
    StreamSet,
    Token,
    build_vnode_streams,
    first_token_of_shard,
    lane_range,
    shard_of,
)
from bridge.model.times import UnixMillis, micros_of
from sandbox.recordings.recording import Recording, scenarios

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
def test_a_stream_id_holds_token_version_and_index(text: str, token: int, index: int) -> None:
    """It is built from them and 38 random bits."""
    stream = StreamId(bytes.fromhex(text))
    assert (stream.token, stream.version, stream.index, str(stream)) == (token, 1, index, "0x" + text)
    random = int.from_bytes(stream.raw[8:], "big") >> 26
    assert StreamId.build(Token(token), index, random) == stream


def test_a_stream_id_shorter_than_a_token_is_rejected() -> None:
    """It would have no token."""
    with pytest.raises(ValueError, match="at least 8 bytes, not 7"):
        StreamId(b"1234567")


@pytest.mark.parametrize(("key", "token"), INT_KEYS.items())
def test_an_int_key_has_the_servers_token(key: int, token: int) -> None:
    """The four bytes are hashed as they are."""
    assert murmur3_token(key.to_bytes(4, "big")) == token


@pytest.mark.parametrize(("key", "token"), KEYS_OF_TOKENS.items())
def test_a_sixteen_byte_key_has_the_servers_token(key: str, token: int) -> None:
    """It is one whole block without a tail."""
    assert murmur3_token(bytes.fromhex(key)) == token


def test_a_composite_key_is_hashed_with_lengths_and_zeros() -> None:
    """A key of one component is hashed without them."""
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
    """The sharding function shifts the ignored bits out first."""
    assert shard_of(Token(INT_KEYS[key]), shards, ignore_msb) == shard


def test_streams_of_a_generation_have_the_documented_tokens() -> None:
    """ScyllaDB's example of three shards: a shard without tokens in a range gets the range's end."""
    ends = [-9_188_777_836_090_239_983, -9_186_344_421_721_794_021, 9_222_822_729_861_621_869]
    made = build_vnode_streams([Token(end) for end in ends], 3, 12, range(9))
    tokens = [[f"{stream.token % (1 << 64):016x}" for stream in streams] for streams in made]
    assert tokens == [
        ["8000000000000001", "8005555555555556", "7ffe0c687fcce86e"],
        ["8080000000000000", "80838c6b76e19a1b", "807ae73e07dbd412"],
        ["80838c6b76e19a1c", "8085555555555556", "808aaaaaaaaaaaab"],
    ]
    assert [{stream.index for stream in streams} for streams in made] == [{0}, {1}, {2}]


@given(
    st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(1, 64), st.integers(0, 14)
)
def test_first_token_of_a_shard(after: int, until: int, shards: int, ignore_msb: int) -> None:
    """The shard owns it, it lies in the range, and the shard owns no earlier token of the range."""
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


@pytest.mark.parametrize("scenario", scenarios())
def test_recorded_rows_lie_in_the_stream_that_the_mapping_names(scenario: str) -> None:
    """Generation, vnode and stream of every row of a real log follow from its time and partition key."""
    recording = Recording.load(scenario)
    for table in recording.tables:
        key = table.table_schema("rec").partition_key
        for row in table.rows:
            stream, time = row["cdc$stream_id"], row["cdc$time"]
            assert stream is not None
            assert time is not None
            cells = [row[column.name] for column in key]
            token = murmur3_token(partition_key_bytes([cell for cell in cells if cell is not None]))
            used = [entry for entry in recording.generations if entry.start_ms * 1000 <= micros_of(time)][-1]
            sets = tuple(StreamSet(end, tuple(sorted(ids))) for end, ids in used.streams)
            vnode = Generation(used.start_ms, sets).stream_set_for(token)
            in_shard_order = dict(used.streams)[vnode.range_end]
            assert in_shard_order[shard_of(token, len(in_shard_order), 12)] == StreamId(stream)


def test_recorded_streams_have_the_tokens_that_the_server_gave_them() -> None:
    """Every generation of a single node is rebuilt, except for the random bits."""
    for scenario in ("many_partitions", "z_generation_change"):
        for generation in Recording.load(scenario).generations:
            made = build_vnode_streams([end for end, _ids in generation.streams], 2, 12, range(32))
            for ours, (_end, theirs) in zip(made, generation.streams, strict=True):
                assert [(stream.token, stream.index) for stream in ours] == [(s.token, s.index) for s in theirs]


def test_a_generation_wraps_round_the_ring() -> None:
    """A token behind the last range end belongs to the first range."""
    low, high = (StreamSet(Token(end), (StreamId(bytes([end % 256]) * 16),)) for end in (-5, 5))
    generation = Generation(UnixMillis(7), (low, high))
    assert [generation.stream_set_for(Token(token)) for token in (-6, -5, -4, 5, 6)] == [low, low, high, high, low]
    assert generation.start_us == 7000
    assert [stream.raw[0] for stream in generation.streams()] == [251, 5]


def test_stream_groups_that_do_not_ascend_are_rejected() -> None:
    """A generation is searched by range end."""
    one = StreamSet(Token(5), ())
    with pytest.raises(ValueError, match="must ascend by range end"):
        Generation(UnixMillis(7), (one, one))


@given(st.integers(1, 40), st.integers(MIN_TOKEN, MAX_TOKEN))
def test_every_token_lies_in_exactly_one_lane(lanes: int, token: int) -> None:
    """This holds for every number of lanes."""
    assert sum(Token(token) in lane_range(lane, lanes) for lane in range(lanes)) == 1


def test_lanes_hold_both_ends_of_the_ring() -> None:
    """They also hold the lowest token, which no key has."""
    assert MIN_TOKEN in lane_range(0, 3)
    assert MAX_TOKEN in lane_range(2, 3)
    assert "no token" not in lane_range(0, 3)
    with pytest.raises(ValueError, match="lane 3 does not exist among 3 lanes"):
        lane_range(3, 3)
