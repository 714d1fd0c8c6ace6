"""The HTTP port: `/metrics`, `/healthz`, `/readyz`, and the status page at `/`. Read-only and without secrets."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Final
from urllib.parse import urlsplit

from bridge.errors import StartupError
from bridge.monitoring import health
from bridge.monitoring.exposition import Exposition
from bridge.monitoring.page import document
from bridge.monitoring.snapshot import JobSnapshot

_log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"
_REQUEST_TIMEOUT_S: Final = 10.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

Answer = tuple[int, str, bytes]
"""Status, content type, body."""


class Answers:
    """Answers requests for each path.

    Args:
        take_snapshot: returns the present state of the job.
    """

    def __init__(self, take_snapshot: Callable[[], JobSnapshot]) -> None:
        self._take_snapshot = take_snapshot
        self._exposition = Exposition(take_snapshot)

    def to(self, path: str, accept: str) -> Answer:
        """Return the answer to a request.

        Args:
            path: the path without the query.
            accept: the request's header `Accept`.
        """
        match path:
            case "/":
                return HTTPStatus.OK, "text/html; charset=utf-8", document.render(self._take_snapshot()).encode()
            case "/metrics":
                return HTTPStatus.OK, *self._exposition.answer(accept)
            case "/healthz":
                return _probe_answer(*health.live_answer(self._take_snapshot()))
            case "/readyz":
                return _probe_answer(*health.ready_answer(self._take_snapshot()))
        return HTTPStatus.NOT_FOUND, _TEXT, b"there are /, /metrics, /healthz and /readyz\n"


def _probe_answer(good: bool, text: str) -> Answer:
    return (HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE), _TEXT, text.encode()


class MonitoringServer:
    """Serves the answers in its own threads.

    Attributes:
        address: the address that it listens on, `host:port`.
    """

    def __init__(self, listen: str, answers: Answers, *, or_free_port: bool) -> None:
        """Open the port and start serving.

        Args:
            listen: `host:port`.
            answers: the answers to serve.
            or_free_port: whether to use any free port of the host if this one is in use.

        Raises:
            StartupError: the port can't be opened.
        """
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        try:
            self._server = _open(host, int(port), answers)
        except OSError as error:
            if not or_free_port:
                raise StartupError(
                    f"monitoring.listen {listen}: {error.strerror or error}; choose another address, or leave it out"
                ) from error
            try:
                self._server = _open(host, 0, answers)
            except OSError as again:
                raise StartupError(f"monitoring.listen {listen}: {again.strerror or again}") from again
        bound = self._server.server_address
        self.address = f"[{bound[0]!s}]:{bound[1]}" if ":" in str(bound[0]) else f"{bound[0]!s}:{bound[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="monitoring", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_REQUEST_TIMEOUT_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    answers: Answers

    def server_bind(self) -> None:
        # HTTPServer.server_bind would ask the name server for the host's own name.
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a request from %s failed", client_address, exc_info=True)


def _open(host: str, port: int, answers: Answers) -> _Server:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    kind = type("_Server", (_Server,), {"address_family": family})
    server: _Server = kind((host, port), _Handler)
    server.answers = answers
    return server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "scylla-cdc-bridge"
    sys_version = ""
    timeout = _REQUEST_TIMEOUT_S
    server: _Server

    def do_GET(self) -> None:  # name given by http.server
        """Answer a request."""
        self._send_answer(with_body=True)

    def do_HEAD(self) -> None:  # name given by http.server
        """Answer a request without the body."""
        self._send_answer(with_body=False)

    def _send_answer(self, *, with_body: bool) -> None:
        status, content_type, body = self.server.answers.to(urlsplit(self.path).path, self.headers.get("Accept", ""))
        self.send_response(status)
        for name, value in (("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS.items()):
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # name given by http.server
        """Log nothing, because probes and scrapes are frequent."""
