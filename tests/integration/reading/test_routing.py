"""Which node is asked for a stream, counted by the nodes of a real cluster."""

from __future__ import annotations

import os
import struct
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from bridge.adapters.scylla.change_log import ChangeLog
from bridge.adapters.scylla.routing import token_of
from bridge.config.document import ScyllaSettings
from bridge.model.micro_batch import Window
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMicros
from bridge.reading.stream_probe import STREAMS_PER_PROBE
from bridge.runtime.java import find_java
from sandbox.stack import processes, server
from sandbox.stack.cql_server import CqlServer
from sandbox.stack.cql_wire import CqlConnection
from sandbox.stack.jars import Jars
from sandbox.stack.ports import free_ports
from sandbox.writing_session import WritingSession
from tests.integration.support.running import wait_for

WANTED = "SCYLLA_CDC_BRIDGE_CLUSTER"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(WANTED not in os.environ, reason="two more CQL servers take 15 to 60 s: `make cluster` runs it"),
]

HOSTS = ("127.0.0.1", "127.0.0.2")
WINDOW = Window(UnixMicros(1_700_000_000_000_000), UnixMicros(1_700_000_001_000_000))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, shared_jars: Path) -> Iterator[int]:
    """Two nodes, each with sixteen tokens of its own; gives their port."""
    folder = tmp_path_factory.mktemp("cluster")
    java = find_java()
    jars = Jars(shared_jars, java)
    jars.ensure(print)
    port, storage_port = free_ports(2)
    with ExitStack() as running:
        for host in HOSTS:
            node = CqlServer(
                folder / host, folder / f"{host}.log", port, storage_port, java, jars,
                name=f"cql at {host}", host=host, seed=HOSTS[0], heap_mib=320,
            )  # fmt: skip
            process = server.launch(node)
            running.callback(processes.kill, process)
            server.wait_ready(node, process, timeout_s=250)
        yield port


@pytest.fixture(scope="module")
def session(cluster: int) -> Iterator[WritingSession]:
    """A session that knows one node by its address and finds the other, and a log table."""
    found = WritingSession.connect(ScyllaSettings(contact_points=(f"{HOSTS[0]}:{cluster}",), consistency="ONE"))
    # Each row on one node, so that there is one owner to be asked.
    found.execute("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    # The node that has only just joined hears of it a little later, and may be asked for the table.
    wait_for("both nodes know the keyspace", lambda: all(knows(host, cluster, "keyspaces") for host in HOSTS))
    found.execute(
        'CREATE TABLE ks.t_scylla_cdc_log ("cdc$stream_id" blob, "cdc$time" timeuuid, "cdc$batch_seq_no" int, '
        'PRIMARY KEY ("cdc$stream_id", "cdc$time", "cdc$batch_seq_no"))'
    )
    wait_for("both nodes know the table", lambda: all(knows(host, cluster, "tables") for host in HOSTS))
    yield found
    found.close()


def knows(host: str, port: int, schema_table: str) -> bool:
    """Whether a node itself has anything of our keyspace there."""
    with CqlConnection(host, port, credentials=None, timeout_s=10) as connection:
        body = connection.run(f"SELECT count(*) FROM system_schema.{schema_table} WHERE keyspace_name = 'ks'")
    count: int = struct.unpack(">q", body[-8:])[0]
    return count > 0


def owner_of(token: int, ring: list[tuple[int, str]]) -> str:
    return ring[bisect_left(ring, (token, "")) % len(ring)][1]


@pytest.fixture(scope="module")
def ring(session: WritingSession) -> list[tuple[int, str]]:
    """Each token with its node, as each node itself says."""
    found: dict[str, list[str]] = {}

    def both_answer() -> bool:
        # Statements without a routing key go to one node after the other, once the driver has found the second.
        for row in session.rows("SELECT tokens, rpc_address FROM system.local"):
            found[row["rpc_address"]] = list(row["tokens"])
        return sorted(found) == list(HOSTS)

    wait_for("both nodes answer", both_answer)
    return sorted((int(token), address) for address, tokens in found.items() for token in tokens)


def requests_at(host: str, port: int) -> int:
    """How many requests the connections of drivers that are now open have sent to a node, as the node says."""
    with CqlConnection(host, port, credentials=None, timeout_s=10) as connection:
        body = connection.run(
            "SELECT sum(request_count) FROM system_views.clients WHERE driver_name > '' ALLOW FILTERING"
        )
    count: int = struct.unpack(">q", body[-8:])[0]
    return count


def asked(port: int, ask: Callable[[], None]) -> dict[str, int]:
    """How many requests came to each node meanwhile, once the driver is done with what it asks of new nodes."""

    def counts() -> dict[str, int]:
        return {host: requests_at(host, port) for host in HOSTS}

    before = counts()
    still_since_s = time.monotonic()

    def stands_still() -> bool:
        nonlocal before, still_since_s
        now = counts()
        if now != before:
            before, still_since_s = now, time.monotonic()
        return time.monotonic() - still_since_s > 1.0

    wait_for("an idle driver", stands_still)
    ask()
    return {host: count - before[host] for host, count in counts().items()}


def test_each_stream_is_asked_of_its_owner(cluster: int, session: WritingSession, ring: list[tuple[int, str]]) -> None:
    """All requests of a stream go to the node that owns its token, of both nodes, by the nodes' own count."""
    log = ChangeLog(session).log_reader("ks", "t")
    random = Random(1)
    tokens = [Token(random.randrange(MIN_TOKEN, MAX_TOKEN)) for _ in range(60)]
    tokens += [Token(token + step) for token, _ in ring for step in (0, 1)] + [MIN_TOKEN, MAX_TOKEN]
    streams = [StreamId.build(token, 0, random.getrandbits(38)) for token in tokens]
    for owner in HOSTS:
        owned = [stream for stream in streams if owner_of(stream.token, ring) == owner]
        assert len(owned) > 10

        def ask(owned: list[StreamId] = owned) -> None:
            for stream in owned:
                assert list(log.page(stream, WINDOW, page_rows=10).result(timeout=10).rows) == []

        found = asked(cluster, ask)
        # A heartbeat or two of the driver's connections may come between.
        assert found[owner] - len(owned) in range(4), found
        assert sum(found.values()) - found[owner] in range(4), found


def test_streams_are_asked_together_of_the_firsts_owner(
    cluster: int, session: WritingSession, ring: list[tuple[int, str]]
) -> None:
    """A request for neighbours on the ring, which mostly have one owner, goes to it: both nodes get requests."""
    log = ChangeLog(session).log_reader("ks", "t")
    random = Random(3)
    streams = sorted(
        (StreamId.build(Token(random.randrange(MIN_TOKEN, MAX_TOKEN)), 0, 0) for _ in range(60 * STREAMS_PER_PROBE)),
        key=lambda one: one.token,
    )
    groups = [streams[at : at + STREAMS_PER_PROBE] for at in range(0, len(streams), STREAMS_PER_PROBE)]
    # Its statement is prepared by then.
    assert list(log.streams_of_rows(groups[0], WINDOW, page_rows=10).result(timeout=10).rows) == []
    expected = Counter(owner_of(group[0].token, ring) for group in groups)
    assert min(expected[host] for host in HOSTS) > 10

    def ask() -> None:
        for group in groups:
            assert list(log.streams_of_rows(group, WINDOW, page_rows=10).result(timeout=10).rows) == []

    found = asked(cluster, ask)
    for host in HOSTS:
        assert found[host] - expected[host] in range(4), (found, expected)


def test_the_drivers_own_choice_would_be_another(
    cluster: int, session: WritingSession, ring: list[tuple[int, str]]
) -> None:
    """By the hash of the stream id itself, many requests would go to the wrong node: the test above can tell."""
    random = Random(2)
    streams = [StreamId.build(Token(random.randrange(MIN_TOKEN, MAX_TOKEN)), 0, 1) for _ in range(200)]
    wrong = [stream for stream in streams if owner_of(stream.token, ring) != owner_of(token_of(stream.raw), ring)]
    assert len(wrong) > 20
    statement = session.prepare('SELECT * FROM ks.t_scylla_cdc_log WHERE "cdc$stream_id" = ?')
    for owner in HOSTS:
        misled = [stream for stream in wrong if owner_of(stream.token, ring) == owner]

        def ask(misled: list[StreamId] = misled) -> None:
            for stream in misled:
                session.page(statement, (stream.raw,), page_rows=10).result(timeout=10)

        assert asked(cluster, ask)[owner] in range(4)
