"""A quota of Kafka's for all producers, through the request AlterClientQuotas, which no Python client has."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ALTER_CLIENT_QUOTAS: Final = 49
_WITHIN_S: Final = 10


@contextmanager
def producer_quota(server: str, bytes_per_s: float) -> Iterator[None]:
    """Limit `producer_byte_rate` of every client, for a while.

    Args:
        server: `host:port` of a broker.
        bytes_per_s: the quota; the broker averages over ten seconds or more.
    """
    _alter(server, bytes_per_s, remove=False)
    try:
        yield
    finally:
        _alter(server, bytes_per_s, remove=True)


def _alter(server: str, bytes_per_s: float, *, remove: bool) -> None:
    def text(words: str | None) -> bytes:
        return struct.pack(">h", -1) if words is None else struct.pack(">h", len(words)) + words.encode()

    every_client = struct.pack(">i", 1) + text("client-id") + text(None)
    change = struct.pack(">i", 1) + text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, remove)
    head = struct.pack(">hhi", _ALTER_CLIENT_QUOTAS, 0, 7) + text("test")
    request = head + struct.pack(">i", 1) + every_client + change + b"\0"
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_WITHIN_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            _, _, entries, error = struct.unpack(">iiih", answer.read(size)[:14])
    assert (entries, error) == (1, 0)
