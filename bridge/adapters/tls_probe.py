"""Probes a server's TLS, for clients that report only a failed connection. Sends nothing but handshakes."""

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
"""A client's first request: its length (10), request ApiVersions (18) of version 0, and no client id."""


def find_tls_problem(address: str, settings: TlsSettings, section: str) -> str | None:
    """Find out why TLS with a server can't work.

    Args:
        address: `host:port`.
        settings: the TLS settings of the connection.
        section: the name of their section, as in `kafka.tls`.

    Returns:
        A sentence about the server that names the setting at fault; None if TLS works, or if the server does not
        answer.

    Raises:
        AccessError, StartupError: our own files can't be used.
    """
    if not settings.enabled:
        return f"it speaks TLS; set {section}.enabled" if _speaks_tls(address) else None
    context = client_context(settings, section)
    try:
        with _connect(address) as plain, context.wrap_socket(plain, server_hostname=_host(address)) as encrypted:
            # With TLS 1.3 a server refuses our certificate only after our side has finished the handshake.
            encrypted.settimeout(_ALERT_TIMEOUT_S)
            encrypted.recv(1)
    except ssl.SSLError as error:
        return explain_tls_error(str(error), settings, section)
    except OSError:  # includes the timeout: then the server has accepted the handshake
        return None
    return None


def speaks_plaintext_kafka(address: str) -> bool:
    """Whether a Kafka broker answers at `host:port` without TLS, whether or not it requires a login."""
    try:
        with _connect(address) as plain:
            plain.sendall(_API_VERSIONS)
            with plain.makefile("rb") as answer:
                return answer.read(8)[4:] == _CORRELATION
    except OSError:
        return False


def accepts_connections(address: str) -> bool:
    """Whether a server accepts connections at `host:port`."""
    try:
        with _connect(address):
            return True
    except OSError:
        return False


def _speaks_tls(address: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The server's identity does not matter: only the handshake is tried, and nothing is sent.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connect(address) as plain, context.wrap_socket(plain):
            return True
    except OSError:
        return False


def _connect(address: str) -> socket.socket:
    return socket.create_connection((_host(address), int(address.rpartition(":")[2])), timeout=_CONNECT_TIMEOUT_S)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")
