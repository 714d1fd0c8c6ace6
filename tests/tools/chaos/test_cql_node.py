"""A node that is slow, or whose view of the tablets' streams lags: a proxy before a server that the test scripts."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from tests.chaos.cql_node import CqlNode

PREPARE, EXECUTE, RESULT = 0x09, 0x0A, 0x08
TIMES = "SELECT timestamp FROM system.cdc_timestamps WHERE keyspace_name = ? AND table_name = ?"
LOG = "SELECT * FROM ks.t_scylla_cdc_log WHERE a = ?"


class Server:
    """Answers a PREPARE with the statement's length as its id, and an EXECUTE with its present content."""

    def __init__(self) -> None:
        self.content = b"first"
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        while head := stream.read(9):
            _, _, number, opcode, size = struct.unpack(">BBhBi", head)
            stream.read(size)
            answer = struct.pack(">i", 2) + self.content
            if opcode == PREPARE:
                answer = struct.pack(">iHH", 4, 2, size)
            connection.sendall(struct.pack(">BBhBi", 0x84, 0, number, RESULT, len(answer)) + answer)


class Client:
    """Asks one question after the other."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self._stream = self.socket.makefile("rb")
        self._number = 0

    def _ask(self, opcode: int, body: bytes) -> bytes:
        self._number += 1
        self.socket.sendall(struct.pack(">BBhBi", 4, 0, self._number, opcode, len(body)) + body)
        _, _, number, _, size = struct.unpack(">BBhBi", self._stream.read(9))
        assert number == self._number
        return self._stream.read(size)

    def prepare(self, cql: str) -> bytes:
        answer = self._ask(PREPARE, struct.pack(">i", len(cql)) + cql.encode())
        return answer[6:8]

    def execute(self, statement: bytes, value: bytes, stamp: int = 0) -> bytes:
        """The answer's content; `stamp` is what no question is told by, as the driver's timestamp."""
        body = struct.pack(">H", len(statement)) + statement + struct.pack(">HBH", 1, 0x21, 1)
        body += struct.pack(">i", len(value)) + value + struct.pack(">q", stamp)
        return self._ask(EXECUTE, body)[4:]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def node(server: Server) -> Iterator[CqlNode]:
    made = CqlNode(server.address)
    yield made
    made.close()


def test_lagging_node_gives_its_older_view_now_and_then(server: Server, node: CqlNode) -> None:
    """Every other question about the streams is answered as before the lag; what was never asked before, as it is.

    Questions about anything else always are; so is every question once the lag is over.
    """
    client = Client(node.address)
    times, log = client.prepare(TIMES), client.prepare(LOG)
    assert times != log
    assert client.execute(times, b"t") == client.execute(log, b"t") == b"first"
    node.lag(True)
    assert client.execute(times, b"t", 1) == b"first"
    assert node.outdated == 0, "an older view that is the present one is no fault"
    server.content = b"second"
    assert [client.execute(times, b"t", stamp) for stamp in range(4)] == [b"first", b"second", b"first", b"second"]
    assert client.execute(times, b"u") == client.execute(log, b"t") == b"second"
    # Another connection is another client of the same node.
    assert Client(node.address).execute(times, b"t") == b"first"
    assert node.outdated == 3
    node.lag(False)
    assert {client.execute(times, b"t") for _ in range(3)} == {b"second"}
    assert node.outdated == 3


def test_slow_node_answers_late(node: CqlNode) -> None:
    """Each answer, while it is slow; how many were late is counted."""
    client = Client(node.address)
    log = client.prepare(LOG)
    assert node.delayed == 0
    node.delay(0.2)
    began_s = time.monotonic()
    assert client.execute(log, b"t") == b"first"
    assert time.monotonic() - began_s >= 0.2
    node.delay(0.0)
    client.execute(log, b"t")
    assert node.delayed == 1


def test_node_without_its_server_is_down(server: Server, node: CqlNode) -> None:
    """A client's connection ends then, and the node takes others as soon as there is a server."""
    client = Client(node.address)
    client.prepare(LOG)
    server.close()
    # The listener may take one more connection while it closes.
    for _ in range(2):
        gone = Client(node.address)
    assert gone.socket.recv(1) == b""
