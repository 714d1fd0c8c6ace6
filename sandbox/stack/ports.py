"""Chooses TCP ports on the loopback interface."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from sandbox.errors import LocalStackError

LOOPBACK = "127.0.0.1"

# Below Linux's range of ephemeral ports: while a server is down, the kernel cannot give its port to a client.
_LOWEST, _HIGHEST = 20_000, 31_999


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports that clients use; None means any free one."""

    cql: int | None = None
    kafka: int | None = None
    registry: int | None = None


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set it, too: a port whose last connections are in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_ports(count: int, *, avoid: Iterable[int] = ()) -> list[int]:
    """Choose `count` different free ports, none of them in `avoid`.

    Raises:
        LocalStackError: there are not enough.
    """
    candidates = [port for port in range(_LOWEST, _HIGHEST + 1) if port not in set(avoid)]
    random.shuffle(candidates)
    found: list[int] = []
    for port in candidates:
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    message = f"No {count} free ports between {_LOWEST} and {_HIGHEST}"
    raise LocalStackError(message)


def require_free(name: str, port: int) -> None:
    """Check that a port can be used.

    Raises:
        LocalStackError: another program uses the port.
    """
    if not is_free(port):
        message = f"Port {port} for {name} is in use (or not allowed) on {LOOPBACK}. Choose another one."
        raise LocalStackError(message)
