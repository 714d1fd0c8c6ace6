"""Where log reads are sent, with the driver's own hash, ring, shards and tablets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import Mock
from uuid import UUID

import pytest
from cassandra.metadata import KeyspaceMetadata, Metadata, Murmur3Token, TokenMap
from cassandra.murmur3 import murmur3
from cassandra.policies import HostDistance, SimpleConvictionPolicy, TokenAwarePolicy
from cassandra.pool import Host
from cassandra.query import PreparedStatement
from cassandra.shard_info import ShardingInfo
from cassandra.tablets import Tablet
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.adapters.scylla.log_reader import LogReader
from bridge.adapters.scylla.routing import RoutedStatement, token_of
from bridge.model.micro_batch import Window
from bridge.model.murmur3 import key_with_token, murmur3_token
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token, shard_of
from bridge.model.times import UnixMicros

LOG: Final = ("ks", "t_scylla_cdc_log")
TOKENS: Final = (-6_000_000_000_000_000_000, -1, 5_000_000_000_000_000_000)


def host(number: int) -> Host:
    made = Host(f"127.0.0.{number}", SimpleConvictionPolicy, host_id=UUID(int=number))
    made.set_up()
    return made


HOSTS: Final = [host(number) for number in (1, 2, 3)]


class AllNear:
    """A child policy: all nodes are equally near, in a fixed order."""

    def make_query_plan(self, *_: object) -> list[Host]:
        return list(HOSTS)

    def distance(self, _host: Host) -> int:
        near: int = HostDistance.LOCAL
        return near

    def populate(self, *_: object) -> None:
        """Do nothing."""


def asked_first(metadata: Metadata, stream: StreamId) -> Host:
    column = SimpleNamespace(keyspace_name=LOG[0], table_name=LOG[1], name="cdc$stream_id")
    statement = PreparedStatement([column], b"", [0], "", LOG[0], 4, None, None)
    routed = RoutedStatement(statement, key_with_token(stream.token))
    policy = TokenAwarePolicy(AllNear())
    policy.populate(SimpleNamespace(metadata=metadata), HOSTS)
    return next(iter(policy.make_query_plan(None, routed)))


@pytest.fixture
def ring() -> Metadata:
    """Three nodes with one token each, and a keyspace with one replica."""
    metadata = Metadata()
    metadata.partitioner = "org.apache.cassandra.dht.Murmur3Partitioner"
    owners = {Murmur3Token(token): owner for token, owner in zip(TOKENS, HOSTS, strict=True)}
    metadata.token_map = TokenMap(Murmur3Token, owners, sorted(owners), metadata)
    metadata.keyspaces["ks"] = KeyspaceMetadata("ks", True, "SimpleStrategy", {"replication_factor": "1"})
    return metadata


@given(st.binary(min_size=16, max_size=16))
@example(bytes([0x80]) + bytes(15))
@example(bytes([0x80, *bytes(6), 1]) + bytes(8))
@example(b"\x7f" + b"\xff" * 15)
@example(b"\xff" * 16)
@example(bytes(16))
def test_the_driver_hashes_a_streams_routing_key_to_its_token(raw: bytes) -> None:
    """The driver's hash in C and in Python gives each stream's token, or the next one for the lowest token."""
    stream = StreamId(raw)
    key = key_with_token(stream.token)
    wanted = max(stream.token, MIN_TOKEN + 1)
    assert Murmur3Token.hash_fn(key) == murmur3(key) == murmur3_token(key) == wanted


@given(st.binary(max_size=70))
def test_driver_hashes_as_the_server(key: bytes) -> None:
    """For keys of any length, including tails with high bits."""
    assert token_of(key) == murmur3_token(key)


@pytest.mark.parametrize("place", range(len(TOKENS)))
def test_owner_on_the_ring_gets_the_request(ring: Metadata, place: int) -> None:
    """The node whose token ends the range; behind the last token, and at the lowest, the first node."""
    until = TOKENS[place]
    after = TOKENS[place - 1]
    for token in (until, after + 1, until - 5):
        assert asked_first(ring, StreamId.build(Token(token), 7, 1)) is HOSTS[place]
    for token in (MIN_TOKEN, MAX_TOKEN):
        assert asked_first(ring, StreamId.build(token, 0, 1)) is HOSTS[0]


def test_replica_of_the_tablet_gets_the_request(ring: Metadata) -> None:
    """The tablets of the log table take precedence over the ring, found by the stream's own token."""
    lasts = [-(1 << 62) - 1, -1, (1 << 62) - 1, MAX_TOKEN]
    replicas = [HOSTS[2], HOSTS[0], HOSTS[2], HOSTS[1]]
    first = MIN_TOKEN
    for last, replica in zip(lasts, replicas, strict=True):
        ring._tablets.add_tablet(*LOG, Tablet(first, last, [(replica.host_id, 3)]))
        first = Token(last)
    for last, replica in zip(lasts, replicas, strict=True):
        assert asked_first(ring, StreamId.build(Token(last), 0, 1)) is replica
    assert asked_first(ring, StreamId.build(MIN_TOKEN, 0, 1)) is replicas[0]


@given(st.integers(MIN_TOKEN + 1, MAX_TOKEN), st.integers(1, 64), st.integers(0, 14))
def test_owning_shard_gets_the_request(token: int, shards: int, ignore_msb: int) -> None:
    """The driver's arithmetic on the routing key's hash gives the shard that the stream was made for."""
    sharding = ShardingInfo(0, shards, "", "", ignore_msb, None, None)
    hashed = Murmur3Token.from_key(key_with_token(Token(token)))
    assert sharding.shard_id_from_token(hashed.value) == shard_of(Token(token), shards, ignore_msb)


def test_statement_without_routing_key_uses_its_partition_key() -> None:
    """As every other read does."""
    column: Any = SimpleNamespace(keyspace_name="ks", table_name="t", name="pk")
    statement = RoutedStatement(PreparedStatement([column], b"", [0], "", "ks", 4, None, None), None)
    statement.values = [b"\0\0\0\1"]
    assert statement.routing_key == b"\0\0\0\1"


def test_reader_asks_the_owner_of_the_first_stream() -> None:
    """For a page and for a probe of several streams, with the same bounds of time."""
    session = Mock(prepare=Mock(side_effect=lambda cql, **_: Mock(cql=cql)))
    reader = LogReader(session, "ks", "t")
    streams = [StreamId.build(Token(token), 0, 0) for token in (5_000, -7, 12)]
    window = Window(UnixMicros(10), UnixMicros(20))
    reader.page(streams[0], window, page_rows=10)
    reader.streams_of_rows(streams, window, page_rows=200)
    (one, several) = session.page.call_args_list
    assert one.kwargs["routing_key"] == several.kwargs["routing_key"] == key_with_token(Token(5_000))
    assert several.args[1] == [[stream.raw for stream in streams], *one.args[1][1:]]
    assert several.kwargs["page_rows"] == 200
    bounds = '"cdc$time" >= ? AND "cdc$time" < ? BYPASS CACHE'
    assert [call.args[0].cql.partition(" AND ")[2] for call in (one, several)] == [bounds, bounds]
