"""Stands between a client and a CQL server, and counts the statements that are under way at once.

Knows just enough of the native protocol, versions 3 to 5, to find the frames.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_STARTUP, _EXECUTE = 0x01, 0x0A
_ANSWERS_TO_STARTUP: Final = (0x02, 0x03)
_EVENTS: Final = b"\xff\xff"
_SEGMENTS_SINCE: Final = 5
_HEADER_BYTES: Final = 9
_WAIT_S: Final = 0.1


class _Frames:
    """Takes one direction's bytes; gives its frames as (stream number, opcode)."""

    def __init__(self, last_bare: tuple[int, ...]) -> None:
        """Before protocol 5's segments begin, the last bare frame has one of these opcodes."""
        self._last_bare = last_bare
        self._in_segments = False
        self._raw = b""
        self._payload = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, int]]:
        self._raw += data
        while True:
            if self._in_segments:
                self._unpack()
            else:
                self._payload, self._raw = self._payload + self._raw, b""
            if len(self._payload) < _HEADER_BYTES:
                break
            size = _HEADER_BYTES + int.from_bytes(self._payload[5:9], "big")
            if len(self._payload) < size:
                break
            frame, self._payload = self._payload[:size], self._payload[size:]
            yield frame[2:4], frame[4]
            if not self._in_segments and frame[0] & 0x7F >= _SEGMENTS_SINCE and frame[4] in self._last_bare:
                self._in_segments = True
                self._payload, self._raw = b"", self._payload

    def _unpack(self) -> None:
        # Header: 17 bits of length, a flag, and a CRC of 3 bytes; behind the payload a CRC of 4.
        while len(self._raw) >= 6:
            size = int.from_bytes(self._raw[:3], "little") & 0x1FFFF
            if len(self._raw) < 6 + size + 4:
                return
            self._payload += self._raw[6 : 6 + size]
            self._raw = self._raw[6 + size + 4 :]


class CqlProxy:
    """Listens on a port of its own, passes everything on, and remembers the most statements under way.

    Answers wait until so many are, for a moment each: a quick server would answer the first before the last is sent.

    Attributes:
        most: prepared statements that were sent and not yet answered, over all connections, at most.
        statements: how many there were.
    """

    def __init__(self, server: str, wait_for: int) -> None:
        self._wait_for = wait_for
        self._are_there = threading.Event()
        host, _, port = server.rpartition(":")
        self._server = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._under_way: set[tuple[int, bytes]] = set()
        self._sockets: list[socket.socket] = []
        self.most = 0
        self.statements = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server, timeout=10)
                server.settimeout(None)
                self._sockets += [client, server]
                number = len(self._sockets)
                for source, target, asks in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=(number, source, target, asks), daemon=True).start()

    def _pass(self, connection: int, source: socket.socket, target: socket.socket, asks: bool) -> None:
        frames = _Frames((_STARTUP,) if asks else _ANSWERS_TO_STARTUP)
        with suppress(OSError):
            while data := source.recv(65_536):
                if not asks:
                    self._are_there.wait(_WAIT_S)
                for stream, opcode in frames.feed(data):
                    self._count(connection, stream, opcode, asks)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def _count(self, connection: int, stream: bytes, opcode: int, asks: bool) -> None:
        with self._lock:
            if not asks:
                if stream != _EVENTS:
                    self._under_way.discard((connection, stream))
            elif opcode == _EXECUTE:
                self.statements += 1
                self._under_way.add((connection, stream))
                self.most = max(self.most, len(self._under_way))
                if self.most >= self._wait_for:
                    self._are_there.set()
