"""The readiness probe's CQL, against a server of a few scripted frames."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sandbox.stack.cql_wire import CqlConnection, CqlError, Credentials
from sandbox.stack.ports import LOOPBACK

_Frames = list[tuple[int, bytes]]


@contextmanager
def _server(answer: Callable[[int, bytes], tuple[int, bytes] | None], asked: _Frames) -> Iterator[int]:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            while head := requests.read(9):
                _, _, _, opcode, length = struct.unpack(">BBhBi", head)
                body = requests.read(length)
                asked.append((opcode, body))
                said = answer(opcode, body)
                if said is None:
                    return
                connection.sendall(struct.pack(">BBhBi", 0x84, 0, 0, said[0], len(said[1])) + said[1])

    with socket.create_server((LOOPBACK, 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def _connect(port: int, credentials: Credentials | None = None) -> CqlConnection:
    return CqlConnection(LOOPBACK, port, credentials=credentials, timeout_s=10)


def test_a_statement_is_run_after_the_login() -> None:
    """STARTUP, the SASL token, then the query with its consistency."""
    answers = {0x01: (0x03, b""), 0x0F: (0x10, b""), 0x07: (0x08, b"result")}
    asked: _Frames = []
    with _server(lambda opcode, _: answers[opcode], asked) as port, _connect(port, Credentials("u", "p")) as connection:
        assert connection.run("SELECT 1") == b"result"
    assert [opcode for opcode, _ in asked] == [0x01, 0x0F, 0x07]
    assert asked[1][1] == b"\0\0\0\x04\0u\0p"
    assert asked[2][1] == b"\0\0\0\x08SELECT 1\0\x01\0"


def test_a_missing_login_is_an_error() -> None:
    """A server that requires a login is not ready for one without."""
    with _server(lambda _opcode, _body: (0x03, b""), []) as port, pytest.raises(CqlError, match="requires a login"):
        _connect(port)


def test_the_servers_error_is_told() -> None:
    """Message and code come through."""
    error = struct.pack(">iH", 0x0100, 3) + b"bad"
    with (
        _server(lambda _opcode, _body: (0x00, error), []) as port,
        pytest.raises(CqlError, match=r"bad \(code 0x0100\)"),
    ):
        _connect(port)


def test_a_closed_connection_is_an_error() -> None:
    """A server that is going down answers nothing."""
    with _server(lambda _opcode, _body: None, []) as port, pytest.raises(CqlError, match="closed"):
        _connect(port)
