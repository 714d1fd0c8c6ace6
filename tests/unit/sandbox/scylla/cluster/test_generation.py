"""Generations, checked against ScyllaDB's documented example and against recorded logs."""

from __future__ import annotations

import pytest

from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.streams import StreamId, Token, shard_of
from bridge.model.times import UnixMillis, micros_of
from sandbox.recordings.recording import Recording, scenarios
from sandbox.scylla.cluster.generation import Generation, StreamGroup, build_vnode_streams


def test_streams_of_a_generation_have_the_documented_tokens() -> None:
    """ScyllaDB's own example of three shards: a shard that owns nothing in a range gets the range's end."""
    ends = [-9_188_777_836_090_239_983, -9_186_344_421_721_794_021, 9_222_822_729_861_621_869]
    made = build_vnode_streams([Token(end) for end in ends], 3, 12, range(9))
    tokens = [[f"{stream.token % (1 << 64):016x}" for stream in streams] for streams in made]
    assert tokens == [
        ["8000000000000001", "8005555555555556", "7ffe0c687fcce86e"],
        ["8080000000000000", "80838c6b76e19a1b", "807ae73e07dbd412"],
        ["80838c6b76e19a1c", "8085555555555556", "808aaaaaaaaaaaab"],
    ]
    assert [{stream.index for stream in streams} for streams in made] == [{0}, {1}, {2}]


@pytest.mark.parametrize("scenario", scenarios())
def test_recorded_rows_lie_in_the_stream_that_the_mapping_names(scenario: str) -> None:
    """For every row of a real log: generation, vnode and stream follow from its time and its partition key."""
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
            groups = tuple(StreamGroup(end, tuple(sorted(ids))) for end, ids in used.streams)
            vnode = Generation(used.start_ms, groups).stream_group_for(token)
            in_shard_order = dict(used.streams)[vnode.range_end]
            assert in_shard_order[shard_of(token, len(in_shard_order), 12)] == StreamId(stream)


def test_recorded_streams_have_the_tokens_that_the_server_gave_them() -> None:
    """Every generation of one node is rebuilt but for its random bits."""
    for scenario in ("many_partitions", "z_generation_change"):
        for generation in Recording.load(scenario).generations:
            made = build_vnode_streams([end for end, _ids in generation.streams], 2, 12, range(32))
            for ours, (_end, theirs) in zip(made, generation.streams, strict=True):
                assert [(stream.token, stream.index) for stream in ours] == [(s.token, s.index) for s in theirs]


def test_a_generation_wraps_round_the_ring() -> None:
    """What lies beyond the last range end belongs to the first range."""
    low, high = (StreamGroup(Token(end), (StreamId(bytes([end % 256]) * 16),)) for end in (-5, 5))
    generation = Generation(UnixMillis(7), (low, high))
    assert [generation.stream_group_for(Token(token)) for token in (-6, -5, -4, 5, 6)] == [low, low, high, high, low]
    assert generation.start_us == 7000
    assert [stream.raw[0] for stream in generation.streams()] == [251, 5]


def test_stream_groups_that_do_not_ascend_are_refused() -> None:
    """A generation is searched by range end."""
    one = StreamGroup(Token(5), ())
    with pytest.raises(ValueError, match="must ascend by range end"):
        Generation(UnixMillis(7), (one, one))
