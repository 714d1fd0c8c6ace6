"""The HTTP port: `/metrics`, `/healthz`, `/readyz`, and the status page at `/`. Read-only and without secrets.

One thread serves all connections. Each has one request and a deadline, and there is a limit to their number, so clients
that send or read slowly neither hold threads nor keep others from an answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from bridge.errors import StartupError
from bridge.monitoring import health
from bridge.monitoring.exposition import Exposition
from bridge.monitoring.page import document
from bridge.monitoring.snapshot import JobSnapshot

_log = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"
REQUEST_TIMEOUT_S: Final = 10.0
"""How long a connection may take in all, from its begin to the last byte of the answer."""
MOST_CONNECTIONS: Final = 256
"""The oldest connection gives way to a further one. An answer takes milliseconds, so the oldest is a slow one."""
_LONGEST_HEAD_BYTES: Final = 16 << 10
_BACKLOG: Final = 128
_CLOSE_S: Final = 10.0
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}

_OTHER_HOST: Final = (
    b"monitoring.listen is on the loopback interface, and answers only to names of this machine: localhost, 127.0.0.1, "
    b"[::1]\n"
)

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


@dataclass(frozen=True, slots=True)
class _Request:
    """A request without its body.

    Attributes:
        method: such as GET.
        path: without the query.
        headers: by their names in lower case.
    """

    method: str
    path: str
    headers: dict[str, str]


class MonitoringServer:
    """Serves the answers in a thread of its own.

    Attributes:
        address: the address that it listens on, `host:port`.
    """

    def __init__(
        self, listen: str, answers: Answers, *, or_free_port: bool, request_timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        """Open the port and start serving.

        Args:
            listen: `host:port`.
            answers: the answers to serve.
            or_free_port: whether to use any free port of the host if this one is in use.
            request_timeout_s: how long a connection may take.

        Raises:
            StartupError: the port can't be opened.
        """
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        try:
            listener = _open(host, int(port))
        except OSError as error:
            if not or_free_port:
                raise StartupError(
                    f"monitoring.listen {listen}: {error.strerror or error}; choose another address, or leave it out"
                ) from error
            try:
                listener = _open(host, 0)
            except OSError as again:
                raise StartupError(f"monitoring.listen {listen}: {again.strerror or again}") from again
        bound = listener.getsockname()
        self.address = f"[{bound[0]}]:{bound[1]}" if ":" in bound[0] else f"{bound[0]}:{bound[1]}"
        self._answers = answers
        # A page of another site can have its own name resolve to this machine, but can't change the header `Host`.
        self._own_name = host.lower() if ip_address(bound[0].partition("%")[0]).is_loopback else None
        self._timeout_s = request_timeout_s
        self._connections: dict[asyncio.Task[None], None] = {}
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._thread = threading.Thread(target=self._run, args=(listener,), name="monitoring", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close the port."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(_CLOSE_S)

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        server = await asyncio.start_server(self._handle, sock=listener, limit=_LONGEST_HEAD_BYTES, backlog=_BACKLOG)
        await self._closed.wait()
        server.close()
        for connection in list(self._connections):
            connection.cancel()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        self._connections[connection] = None
        if len(self._connections) > MOST_CONNECTIONS:
            next(iter(self._connections)).cancel()
        try:
            async with asyncio.timeout(self._timeout_s):
                writer.write(await self._respond(reader))
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError):
            _log.debug("a request failed", exc_info=True)
        except asyncio.CancelledError:
            _log.debug("a connection gives way to another one, or to the end of the job")
        finally:
            del self._connections[connection]
            writer.transport.abort()

    async def _respond(self, reader: asyncio.StreamReader) -> bytes:
        try:
            request = _parse_request(await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            return _encode_answer((HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, _TEXT, b"the headers are too long\n"))
        if request is None:
            return _encode_answer((HTTPStatus.BAD_REQUEST, _TEXT, b"not a request of HTTP/1\n"))
        return _encode_answer(self._answer(request), with_body=request.method != "HEAD")

    def _answer(self, request: _Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"there are GET and HEAD\n"
        host = request.headers.get("host")
        if self._own_name is not None and host is not None and not _is_this_machine(host, self._own_name):
            return HTTPStatus.MISDIRECTED_REQUEST, _TEXT, _OTHER_HOST
        try:
            return self._answers.to(request.path, request.headers.get("accept", ""))
        except Exception:  # noqa: BLE001  # asyncio would log it without the path, and send nothing
            _log.exception("the answer to %s failed", request.path)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"the answer failed; see the job's log\n"


def _open(host: str, port: int) -> socket.socket:
    family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listener = socket.socket(family, kind)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Here and not in the thread: the port answers from now on, and another process may have begun to listen.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _parse_request(head: bytes) -> _Request | None:
    """Return the request that the bytes up to the empty line are; None if they are none."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    match first.split(" "):
        case [method, target, "HTTP/1.0" | "HTTP/1.1"]:
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            try:
                return _Request(method, urlsplit(target).path, headers)
            except ValueError:
                return None
    return None


def _is_this_machine(host: str, own_name: str) -> bool:
    """Return whether a header `Host` names this machine's loopback interface, or is the configured name."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", own_name) or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def _encode_answer(answer: Answer, *, with_body: bool = True) -> bytes:
    status, content_type, body = answer
    headers = {
        "Date": formatdate(usegmt=True),
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Connection": "close",
        **_HEADERS,
        **({"Allow": "GET, HEAD"} if status == HTTPStatus.METHOD_NOT_ALLOWED else {}),
    }
    lines = [
        f"HTTP/1.1 {status:d} {HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + (body if with_body else b"")
