"""Stands between a job and the CQL server, as a node that can be slow, and whose view of the tablets' streams can lag.

It knows version 4 of the native protocol, which the bridge uses: each frame is a header of 9 bytes and a body.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Final

_HEADER: Final = struct.Struct(">BBhBi")
_RESULT, _PREPARE, _EXECUTE = 0x08, 0x09, 0x0A
_PREPARED: Final = 4
"""The kind of a result that names a prepared statement."""
_HAS_VALUES: Final = 0x01
_LAGGING: Final = (b"system.cdc_timestamps", b"system.cdc_streams")
"""Each node has its own view of these; it learns of a change of the streams when its turn comes."""
_CONNECT_S: Final = 10.0

Question = tuple[bytes, bytes]
"""A prepared statement and its values."""


@dataclass(slots=True)
class _Connection:
    """What is under way on one connection: statements that are being prepared, and questions, by stream number."""

    preparing: set[int] = field(default_factory=set)
    asked: dict[int, Question] = field(default_factory=dict)


class CqlNode:
    """Listens on a port of its own and passes everything on. Thread-safe.

    Attributes:
        delayed: answers that came late so far.
        outdated: answers so far that differed from the server's, because they were older.
    """

    def __init__(self, server: str) -> None:
        """Listen; the server need not be there yet.

        Args:
            server: `host:port`.
        """
        self.delayed = self.outdated = 0
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._delay_s = 0.0
        self._lags = False
        self._turn = 0
        self._statements: set[bytes] = set()
        self._views: dict[Question, bytes] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def delay(self, seconds: float) -> None:
        """Hold every answer back for so long; 0 ends that."""
        self._delay_s = seconds

    def lag(self, on: bool) -> None:
        """Answer every other question about the tablets' streams with what it was answered before now."""
        with self._lock:
            self._lags = on

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        host, _, port = self._server.rpartition(":")
        try:
            server = socket.create_connection((host, int(port)), timeout=_CONNECT_S)
        except OSError:
            # As a node that is down: the client sees its connection end.
            client.close()
            return
        server.settimeout(None)
        self._sockets += [client, server]
        state = _Connection()
        threading.Thread(target=self._pass_answers, args=(state, server, client), daemon=True).start()
        with suppress(OSError):
            for head, body in _frames(client.makefile("rb")):
                self._note_request(state, head, body)
                server.sendall(head + body)
        _end(server, client)

    def _pass_answers(self, state: _Connection, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            for head, body in _frames(server.makefile("rb")):
                answer = self._answer(state, head, body)
                if self._delay_s:
                    self.delayed += 1
                    time.sleep(self._delay_s)
                client.sendall(head[:5] + struct.pack(">i", len(answer)) + answer)
        _end(server, client)

    def _note_request(self, state: _Connection, head: bytes, body: bytes) -> None:
        _, _, stream, opcode, _ = _HEADER.unpack(head)
        with self._lock:
            if opcode == _PREPARE and any(name in body for name in _LAGGING):
                state.preparing.add(stream)
            elif opcode == _EXECUTE and (question := _question(body)) is not None and question[0] in self._statements:
                state.asked[stream] = question

    def _answer(self, state: _Connection, head: bytes, body: bytes) -> bytes:
        _, _, stream, opcode, _ = _HEADER.unpack(head)
        with self._lock:
            if stream in state.preparing:
                state.preparing.discard(stream)
                if opcode == _RESULT and struct.unpack_from(">i", body)[0] == _PREPARED:
                    self._statements.add(_short_bytes(body, 4))
            question = state.asked.pop(stream, None)
            if question is None or opcode != _RESULT:
                return body
            before = self._views.get(question, body)
            if not self._lags:
                self._views[question] = body
                return body
            self._turn += before != body
            if before == body or self._turn % 2 == 0:
                return body
            self.outdated += 1
            return before


def _frames(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """The frames of one direction, as head and body, up to its end."""
    while len(head := stream.read(_HEADER.size)) == _HEADER.size:
        size = _HEADER.unpack(head)[4]
        if len(body := stream.read(size)) < size:
            return
        yield head, body


def _short_bytes(body: bytes, at: int) -> bytes:
    (size,) = struct.unpack_from(">H", body, at)
    return body[at + 2 : at + 2 + size]


def _question(body: bytes) -> Question | None:
    """Statement and values of an EXECUTE; None without values. What follows them differs from request to request."""
    statement = _short_bytes(body, 0)
    at = 2 + len(statement) + 2
    if not body[at] & _HAS_VALUES:
        return None
    (count,) = struct.unpack_from(">H", body, at + 1)
    begin = at = at + 3
    for _ in range(count):
        (size,) = struct.unpack_from(">i", body, at)
        at += 4 + max(0, size)
    return statement, body[begin:at]


def _end(*connections: socket.socket) -> None:
    for one in connections:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
