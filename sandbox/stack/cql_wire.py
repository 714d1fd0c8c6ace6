"""A small client of the CQL native protocol (version 4): it checks readiness and runs statements without values.

The stack does not depend on the project's CQL driver.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import BinaryIO, Self

_REQUEST_VERSION = 4
_ERROR, _STARTUP, _READY, _AUTHENTICATE, _QUERY = 0x00, 0x01, 0x02, 0x03, 0x07
_AUTH_RESPONSE, _AUTH_SUCCESS = 0x0F, 0x10
_CONSISTENCY_ONE = 0x0001
_HEADER = struct.Struct(">BBhBi")


class CqlError(OSError):
    """The server answered with an error, or with a frame that is not CQL."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A CQL login."""

    user: str
    password: str


class CqlConnection:
    """A connection to a CQL server, and a context manager. Calls raise OSError, or CqlError if the server refuses."""

    def __init__(self, host: str, port: int, *, credentials: Credentials | None, timeout_s: float) -> None:
        """Connect and log in. Every answer may take at most `timeout_s` seconds."""
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._answers: BinaryIO = self._socket.makefile("rb")
        try:
            self._log_in(credentials)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._answers.close()
        self._socket.close()

    def run(self, cql: str) -> bytes:
        """Run a statement without values; return the undecoded body of the result frame."""
        text = cql.encode()
        return self._send_request(
            _QUERY, struct.pack(">i", len(text)) + text + struct.pack(">HB", _CONSISTENCY_ONE, 0)
        )[1]

    def _log_in(self, credentials: Credentials | None) -> None:
        version = struct.pack(">H", 1) + _short_text("CQL_VERSION") + _short_text("3.0.0")
        opcode, _ = self._send_request(_STARTUP, version)
        if opcode == _AUTHENTICATE:
            if credentials is None:
                message = "the server requires a login"
                raise CqlError(message)
            token = f"\0{credentials.user}\0{credentials.password}".encode()
            opcode, _ = self._send_request(_AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
        if opcode not in (_READY, _AUTH_SUCCESS):
            message = f"the server answered the login with an unexpected frame ({opcode:#x})"
            raise CqlError(message)

    def _send_request(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        self._socket.sendall(_HEADER.pack(_REQUEST_VERSION, 0, 0, opcode, len(body)) + body)
        head = self._answers.read(_HEADER.size)
        if len(head) < _HEADER.size:
            message = "the server closed the connection"
            raise CqlError(message)
        _, _, _, answered, length = _HEADER.unpack(head)
        answer = self._answers.read(length)
        if answered == _ERROR:
            code, size = struct.unpack_from(">iH", answer)
            message = f"{answer[6 : 6 + size].decode(errors='replace')} (code {code:#06x})"
            raise CqlError(message)
        return answered, answer


def _short_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
