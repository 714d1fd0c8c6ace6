"""Ports are chosen so that a server can come back to its own."""

from __future__ import annotations

import socket

import pytest

from sandbox.errors import LocalStackError
from sandbox.stack.ports import LOOPBACK, free_ports, is_free, require_free


def test_free_ports_differ_and_lie_below_the_ephemeral_range() -> None:
    """No client's outgoing connection can take a stopped server's port."""
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(20_000 <= port < 32_768 for port in ports)
    assert not set(free_ports(50, avoid=ports)) & set(ports)


def test_a_port_in_use_is_refused() -> None:
    """The message names the server and the port."""
    with socket.socket() as busy:
        busy.bind((LOOPBACK, 0))
        busy.listen()
        port = busy.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(LocalStackError, match=f"Port {port} for kafka is in use"):
            require_free("kafka", port)
