"""Looks at a server's TLS when a client only says that it could not connect. Sends nothing but greetings."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from bridge.adapters.tls import client_context, explain_tls_error
from bridge.config.tls import TlsSettings

_CONNECT_TIMEOUT_S: Final = 3.0
_ALERT_TIMEOUT_S: Final = 0.5
_CORRELATION: Final = b"brdg"
_API_VERSIONS: Final = b"\x00\x00\x00\x0a\x00\x12\x00\x00" + _CORRELATION + b"\xff\xff"
"""What a client asks first: its length (10), request ApiVersions (18) of version 0, and no client id."""


def find_tls_problem(address: str, settings: TlsSettings, section: str) -> str | None:
    """Why TLS with a server can't work, as a sentence about it; None when it can, or when the server is not there.

    Args:
        address: `host:port`.
        settings: what we would connect with.
        section: where they stand, as in `kafka.tls`.

    Raises:
        AccessError, StartupError: our own files can't be used.
    """
    if not settings.enabled:
        return f"it speaks TLS; set {section}.enabled" if _speaks_tls(address) else None
    context = client_context(settings, section)
    try:
        with _connected(address) as plain, context.wrap_socket(plain, server_hostname=_host(address)) as encrypted:
            # From TLS 1.3 on a server refuses our certificate only when the handshake is over for us.
            encrypted.settimeout(_ALERT_TIMEOUT_S)
            encrypted.recv(1)
    except ssl.SSLError as error:
        return explain_tls_error(str(error), settings, section)
    except OSError:  # also when nothing came in time: nothing is wrong then
        return None
    return None


def speaks_plaintext_kafka(address: str) -> bool:
    """Whether a Kafka broker answers at `host:port` without TLS; with a login or without one."""
    try:
        with _connected(address) as plain:
            plain.sendall(_API_VERSIONS)
            with plain.makefile("rb") as answer:
                return answer.read(8)[4:] == _CORRELATION
    except OSError:
        return False


def accepts_connections(address: str) -> bool:
    """Whether anything takes connections at `host:port`."""
    try:
        with _connected(address):
            return True
    except OSError:
        return False


def _speaks_tls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only whether there is TLS at all is asked; nothing is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connected(address) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _connected(address: str) -> socket.socket:
    return socket.create_connection((_host(address), int(address.rpartition(":")[2])), timeout=_CONNECT_TIMEOUT_S)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
