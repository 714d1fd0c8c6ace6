"""The HTTP port against clients that are slow, many, or sent by another site's page."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import pytest

from bridge.monitoring.server import MOST_CONNECTIONS, Answers, MonitoringServer
from tests.unit.bridge.monitoring import jobs

pytestmark = pytest.mark.integration

BEGUN = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
PROMPT_S = 5.0


@pytest.fixture
def port() -> Iterator[int]:
    """A port on the loopback interface, with the usual limits."""
    server = MonitoringServer("127.0.0.1:0", Answers(jobs.running), or_free_port=False)
    yield int(server.address.rpartition(":")[2])
    server.close()


def get(port: int, path: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=PROMPT_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def is_closed(client: socket.socket, within_s: float) -> bool:
    """Whether the server closes a connection in time."""
    client.settimeout(within_s)
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_many_slow_clients_leave_the_probes_answerable(port: int) -> None:
    """They hold no threads, and the oldest of them are cut as soon as there are too many."""
    threads = threading.active_count()
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(MOST_CONNECTIONS + 50)
        ]
        for client in slow:
            client.sendall(BEGUN)
        status, body = get(port, "/readyz")
        assert status == 200
        assert b"shop.orders: ready\n" in body
        assert threading.active_count() <= threads + 1
        assert is_closed(slow[0], PROMPT_S)
        assert get(port, "/healthz")[0] == 200


def test_slow_client_is_cut() -> None:
    """A client that goes on to send, byte after byte, has the time of one request and no more."""
    server = MonitoringServer("127.0.0.1:0", Answers(jobs.running), or_free_port=False, request_timeout_s=0.5)
    try:
        with socket.create_connection(("127.0.0.1", int(server.address.rpartition(":")[2]))) as client:
            client.sendall(BEGUN)
            ended = threading.Event()

            def trickle() -> None:
                while not ended.wait(0.1):
                    try:
                        client.sendall(b"a")
                    except OSError:
                        return

            sender = threading.Thread(target=trickle, daemon=True)
            sender.start()
            assert is_closed(client, PROMPT_S)
            ended.set()
            sender.join(PROMPT_S)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9404", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("bridge.localhost", 200),
        ("attacker.example", 421),
        ("127.0.0.1.attacker.example:9404", 421),
        ("192.168.1.7:9404", 421),
        ("[", 421),
        ("", 421),
    ],
)
def test_loopback_answers_only_to_its_own_names(port: int, host: str, status: int) -> None:
    """A site's page whose name was made to resolve to this machine reads nothing."""
    for path in ("/", "/metrics", "/readyz"):
        found, body = get(port, path, Host=host)
        assert found == status
        assert (b"shop" in body) == (status == 200)


def test_other_interfaces_answer_to_every_name() -> None:
    """There a service name or an address of the pod is usual."""
    server = MonitoringServer("0.0.0.0:0", Answers(jobs.running), or_free_port=False)
    try:
        assert get(int(server.address.rpartition(":")[2]), "/healthz", Host="shop.data.svc")[0] == 200
    finally:
        server.close()


def test_requests_that_are_none(port: int) -> None:
    """Each gets a status, and the port goes on."""
    assert get(port, "/", method="HEAD") == (200, b"")
    assert get(port, "/", method="POST")[0] == 405
    assert get(port, "/", Cookie="a" * 20_000)[0] == 431
    with socket.create_connection(("127.0.0.1", port), PROMPT_S) as client:
        client.sendall(b"SSH-2.0-client\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")
    assert get(port, "/no")[0] == 404
    assert get(port, "/healthz?verbose=1")[0] == 200
