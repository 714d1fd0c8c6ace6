"""A small schema registry on a free loopback port: Confluent's REST interface over a dict."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

Answer = tuple[int, object]


def error(status: int, message: str = "because", code: int | None = None) -> Answer:
    return status, {"error_code": status * 100 if code is None else code, "message": message}


@dataclass
class FixedAnswers:
    """Gives fixed answers in order, then repeats the last one."""

    answers: list[Answer]
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.asked.append((path, headers.get("Authorization")))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class FakeRegistry:
    """Stores schemas by subject.

    Attributes:
        refused: the reasons against every further schema of a subject that has one; None accepts all schemas.
        refusal_message: the message of a refused registration.
        lacks: prefixes of paths that this registry does not have.
        verbose: whether the answer to a check contains the reasons.
        levels: compatibility level by subject; "" is the global one.
        authorization: the only accepted header, if any.
        down: whether every request is answered with 503.
        asked: method and path of each request.
        headers: the headers of each request.
    """

    refused: list[str] | None = None
    refusal_message: str = "incompatible with an earlier schema"
    lacks: tuple[str, ...] = ()
    verbose: bool = True
    levels: dict[str, str] = field(default_factory=lambda: {"": "BACKWARD"})
    authorization: str | None = None
    down: bool = False
    subjects: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)

    def answer(self, method: str, path: str, headers: Any, body: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        self.headers.append(headers)
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return error(401, "Unauthorized")
        if self.down:
            return error(503)
        bare, _, query = path.partition("?")
        if bare.startswith(self.lacks):
            return 404, b"<html>nothing here</html>"
        match (method, [unquote(part) for part in bare.split("/")[1:]]):
            case ("GET", ["schemas", "types"]):
                return 200, ["AVRO"]
            case ("GET", ["config"]):
                return 200, {"compatibilityLevel": self.levels[""]}
            case ("GET", ["config", subject]):
                level = self.levels.get(subject) or ("defaultToGlobal=true" in query and self.levels[""])
                return (200, {"compatibilityLevel": level}) if level else error(404, code=40408)
            case ("POST", ["subjects", subject]):
                return self._look_up(subject, body["schema"])
            case ("POST", ["compatibility", "subjects", subject, "versions", *_]):
                if subject not in self.subjects:
                    return error(404, code=40401)
                reasons = {"messages": self.refused} if self.verbose and "verbose=true" in query else {}
                return 200, {"is_compatible": False, **reasons} if self.refused is not None else {"is_compatible": True}
            case ("POST", ["subjects", subject, "versions"]):
                return self._register(subject, body["schema"])
        return error(404, "no such path")

    def _look_up(self, subject: str, text: str) -> Answer:
        if subject not in self.subjects:
            return error(404, "Subject not found", 40401)
        found = [schema_id for schema_id, known in self.subjects[subject] if known == text]
        return (200, {"subject": subject, "id": found[0], "schema": text}) if found else error(404, code=40403)

    def _register(self, subject: str, text: str) -> Answer:
        status, known = self._look_up(subject, text)
        if status == 200:
            return status, known
        if subject in self.subjects and self.refused is not None:
            return error(409, self.refusal_message, 409)
        schema_id = 1 + sum(map(len, self.subjects.values()))
        self.subjects.setdefault(subject, []).append((schema_id, text))
        return 200, {"id": schema_id}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: tests close connections early."""


@contextmanager
def serving(registry: FakeRegistry | FixedAnswers, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve until the end of the block; yields host and port."""

    class Handler(BaseHTTPRequestHandler):
        def setup(self) -> None:
            # In the connection's own thread: a client that refuses the certificate does not block others.
            if tls is not None:
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            if tls is not None:
                with suppress(OSError):
                    self.request.close()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, found = registry.answer(self.command, self.path, self.headers, json.loads(body) if body else None)
            answer = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST = _answer  # noqa: N815 - the base class looks for these names

        def log_message(self, *args: object) -> None:
            """Print nothing."""

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
