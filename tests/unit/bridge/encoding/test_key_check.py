"""Keys compared with their streams: by the known mapping, by recorded logs, and with partial knowledge."""

from __future__ import annotations

from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.adapters.scylla.routing import token_of
from bridge.encoding.grouping import groups
from bridge.encoding.key_check import SAMPLE_EVERY, KeyCheck, MisplacedKey
from bridge.model.key_ranges import KeyRange, ranges_of_tablets, ranges_of_vnodes
from bridge.model.log_rows import Cells, Change, Group, LogLayout
from bridge.model.murmur3 import murmur3_token, partition_key_bytes
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, shard_of
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from sandbox.recordings.recording import Recording, scenarios
from sandbox.scylla.cluster import tablets
from sandbox.scylla.cluster.generation import build_vnode_streams
from sandbox.scylla.cluster.topology import Ring, StreamMap

TOKENS = st.integers(MIN_TOKEN + 1, MAX_TOKEN).map(Token)
RINGS = st.lists(TOKENS, min_size=1, max_size=8, unique=True).map(sorted)
LAYOUT = LogLayout.of(("cdc$stream_id", "cdc$time", "cdc$batch_seq_no", "cdc$operation", "a", "b"), ["a", "b"])


@settings(max_examples=40)
@given(RINGS, st.integers(1, 5), st.sampled_from([0, 4, 12]), TOKENS)
def test_exactly_the_mapped_stream_holds_a_key(ends: list[Token], shards: int, ignore_msb: int, token: Token) -> None:
    """In any ring. Streams of shards that own nothing of a range have one token, and can't be distinguished."""
    made = build_vnode_streams(ends, shards, ignore_msb, count())
    ring = StreamMap(UnixMillis(0), tuple(ends), made, ignore_msb)
    sets = [(end, sorted(streams)) for end, streams in zip(ends, made, strict=True)]
    mapped = ring.stream_for(token)
    ranges = ranges_of_vnodes([*sets, sets[0]])
    assert len(ranges) == len(ends) * shards
    vnode = next(streams for streams in made if mapped in streams)
    for stream, range_ in ranges.items():
        verdict = range_.holds(stream, token)
        if stream not in vnode:
            assert verdict is False
        elif ignore_msb == 12:
            assert verdict in ((True,) if stream.token == mapped.token else (False, None))
        elif stream.token == mapped.token:
            # Several numbers of ignored bits may give the same streams; that must not be a false alarm.
            assert verdict is not False


@settings(max_examples=40)
@given(RINGS, st.integers(2, 5), TOKENS)
def test_a_vnode_by_itself_is_known_from_its_streams(ends: list[Token], shards: int, token: Token) -> None:
    """The token before its range need not be known: the first lane's first vnode lacks it."""
    made = build_vnode_streams(ends, shards, 12, count())
    mapped = StreamMap(UnixMillis(0), tuple(ends), made, 12).stream_for(token)
    for end, streams in zip(ends, made, strict=True):
        ranges = ranges_of_vnodes([(end, sorted(streams))])
        for stream in streams:
            belongs = mapped in streams and stream.token == mapped.token
            assert ranges[stream].holds(stream, token) in ((True,) if belongs else (False, None))


def test_ambiguous_streams_are_not_judged() -> None:
    """If streams were left out, or a range has one stream and no beginning, there is no answer."""
    until = Token(1 << 40)
    odd = [StreamId.build(Token(token), 0, 1) for token in (17, 4711)]
    unknown = KeyRange(None, until, odd)
    ranged = KeyRange(Token(10), until, odd)
    lone = KeyRange(None, until, odd[:1])
    for token in (Token(5), Token(17), until):
        assert unknown.holds(odd[0], token) is None
        assert lone.holds(odd[0], token) is None
        assert ranged.holds(odd[0], token) == (token > 10)


@settings(max_examples=40)
@given(st.lists(TOKENS, max_size=6, unique=True), TOKENS)
def test_exactly_the_tablets_stream_holds_a_key(lasts: list[Token], token: Token) -> None:
    """Among the streams of a stream set."""
    streams = tuple(StreamId.build(last, 0, 1) for last in sorted({*lasts, MAX_TOKEN}))
    mapped = tablets.TabletSet(UnixMillis(0), streams).stream_for(token)
    ranges = ranges_of_tablets(reversed(streams))
    assert [stream for stream in streams if ranges[stream].holds(stream, token)] == [mapped]


@pytest.mark.parametrize("scenario", scenarios())
def test_every_recorded_change_is_where_it_belongs(scenario: str) -> None:
    """Every key that real servers logged, hashed by the driver, over all generations."""
    recording = Recording.load(scenario)
    ranges: dict[StreamId, KeyRange] = {}
    for generation in recording.generations:
        sets = [(end, sorted(streams)) for end, streams in generation.streams]
        ranges |= ranges_of_vnodes([*sets, *sets[:1]])
    for table in recording.tables:
        key = [column.name for column in table.table_schema(recording.keyspace).partition_key]
        layout = LogLayout.of(table.log_names, [name for name in key if name in table.log_names])
        wrong: list[MisplacedKey] = []
        check = KeyCheck(layout, lambda: ranges, token_of, wrong.append, every=1)
        changes = sum(
            len(group.changes)
            for group in check.check_groups(groups(table.log, layout, incomplete="deliver", keep_failures=True))
        )
        named = [row for row in table.rows if all(row[name] is not None for name in key)]
        assert not wrong
        assert check.checked == changes or len(named) < len(table.log)


def group(stream: StreamId, *keys: tuple[bytes | None, bytes | None]) -> Group:
    time = timeuuid_of(UnixMicros(1_700_000_000_000_123), bytes(8))
    rows: list[Cells] = [(stream.raw, time, seq.to_bytes(4, "big"), b"\1", *key) for seq, key in enumerate(keys)]
    changes = tuple(Change(1, row, last_in_group=row is rows[-1]) for row in rows)
    return Group(stream.raw, time, changes, rows)


RANDOM = Random(3)
MAP = StreamMap.of_ring(UnixMillis(0), Ring().joined_by_node(7, RANDOM), shards=3, ignore_msb=12, random=RANDOM)
SETS = [(end, sorted(streams)) for end, streams in zip(MAP.range_ends, MAP.streams, strict=True)]
RANGES = ranges_of_vnodes([*SETS, SETS[0]])


def test_a_mismatch_is_reported_with_its_position_and_without_its_key() -> None:
    """The groups continue in order; unknown keys are not judged."""
    key = (b"secret", b"\0\0\0\7")
    token = murmur3_token(partition_key_bytes(key))
    right = MAP.stream_for(token)
    wrong = next(stream for stream in RANGES if stream.token != right.token)
    beyond = StreamId.build(Token(5), 0, 5)
    given = [group(right, key), group(wrong, (None, b"x"), key), group(beyond, key), group(right, key)]
    told: list[MisplacedKey] = []
    check = KeyCheck(LAYOUT, lambda: RANGES, token_of, told.append, every=1)
    assert list(check.check_groups(given)) == given
    assert (check.checked, check.misplaced) == (3, 1)
    [position] = [one.position for one in told]
    assert (position.stream_id, position.time_us, position.batch_seq_no) == (wrong.raw, 1_700_000_000_000_123, 1)
    assert str(told[0]).startswith(f"stream {wrong}, 1700000000000123 us, batch_seq_no 1: ")
    assert "secret" not in str(told[0])
    assert str(token) not in repr(told[0]) + str(told[0])


def test_sampling_checks_one_of_so_many() -> None:
    """It begins with the first change, and asks for ranges only then."""
    key = (b"k", b"")
    stream = MAP.stream_for(murmur3_token(partition_key_bytes(key)))
    asked: list[None] = []

    def ranges() -> dict[StreamId, KeyRange]:
        asked.append(None)
        return RANGES

    check = KeyCheck(LAYOUT, ranges, token_of, lambda _: None, every=SAMPLE_EVERY)
    assert list(check.check_groups([])) == []
    assert not asked
    changes = sum(len(one.changes) for one in check.check_groups(group(stream, key, key) for _ in range(SAMPLE_EVERY)))
    assert (changes, check.checked, len(asked)) == (2 * SAMPLE_EVERY, 2, 1)
    assert shard_of(stream.token, 3, 12) in range(3)
