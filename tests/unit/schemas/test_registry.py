from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from schemas.errors import IncompatibleSchemaError, RegistryError
from schemas.registry import Registry

SCHEMA = '{"type":"record","name":"R","fields":[]}'


class _Answers:
    """What the fake registry answers, in order (the last one for ever), and what it was asked."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str | None]] = []

    def next(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        self.asked.append((path, authorization))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def serving(*answers: tuple[int, object]) -> Iterator[tuple[str, _Answers]]:
    """A registry on a free port that gives fixed answers."""
    given = _Answers(
        *((status, body if isinstance(body, bytes) else json.dumps(body).encode()) for status, body in answers)
    )

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, body = given.next(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _answer  # noqa: N815 - the base class looks for these names

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", given
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def error(status: int, message: str = "because") -> tuple[int, object]:
    return status, {"error_code": status * 100, "message": message}


def test_round_trip() -> None:
    """A registered schema is read back by its id; other subjects and texts register anew."""
    registry = Registry("mock://registry")
    schema_id = registry.register("t-value", SCHEMA)
    assert registry.register("t-value", SCHEMA) == schema_id
    assert registry.register("t-value", SCHEMA.replace("R", "S")) != schema_id
    assert registry.get(schema_id) == registry.get(schema_id) == SCHEMA


def test_asked_once() -> None:
    """What was registered or fetched once is not asked for again."""
    with serving((200, {"id": 7})) as (address, given):
        registry = Registry(f"http://{address}")
        assert [registry.register("t-value", SCHEMA) for _ in range(3)] == [7, 7, 7]
        assert [path.partition("?")[0] for path, _ in given.asked] == ["/subjects/t-value/versions"]
    with serving((200, {"schema": SCHEMA})) as (address, given):
        registry = Registry(f"http://{address}")
        assert [registry.get(7) for _ in range(3)] == [SCHEMA] * 3
        assert len(given.asked) == 1


def test_incompatible() -> None:
    """A 409 names the subject, the registry's address and its reason, and is final."""
    with serving(error(409, "reader lacks default for 'x'")) as (address, _):
        registry = Registry(f"http://{address}")
        with pytest.raises(IncompatibleSchemaError, match="reader lacks default for 'x'") as caught:
            registry.register("t-value", SCHEMA)
    assert caught.value.subject == "t-value"
    assert caught.value.reason == "reader lacks default for 'x'"
    assert not caught.value.retriable
    assert "t-value" in str(caught.value)
    assert address in str(caught.value)


@pytest.mark.parametrize(
    ("status", "retriable"),
    [
        (400, False),
        (401, False),
        (403, False),
        (404, False),
        (408, True),
        (422, False),
        (429, True),
        (500, True),
        (502, True),
        (503, True),
        (504, True),
    ],
)
def test_status(status: int, retriable: bool) -> None:
    """Each HTTP status says whether trying again makes sense, with the registry's reason."""
    with serving(error(status)) as (address, given):
        with pytest.raises(RegistryError, match=rf"register subject t-key: .*HTTP {status}.*because") as caught:
            Registry(f"http://{address}").register("t-key", SCHEMA)
        assert len(given.asked) == 1
    assert caught.value.retriable == retriable
    assert not isinstance(caught.value, IncompatibleSchemaError)


def test_failure_is_not_cached() -> None:
    """After a failure the next call asks again."""
    with serving(error(503), (200, {"id": 7})) as (address, _):
        registry = Registry(f"http://{address}")
        with pytest.raises(RegistryError):
            registry.register("t-key", SCHEMA)
        assert registry.register("t-key", SCHEMA) == 7


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        *(("register", answer) for answer in (b"<html>", {}, [], "x", 5, None)),
        *(("get", answer) for answer in (b"<html>", {}, [], "x", 5, None)),
        *(("ping", answer) for answer in (b"<html>", {}, "x", 5, None)),
    ],
)
def test_strange_answers(call: str, answer: object) -> None:
    """An answer of another shape is final: some other server sits at the address."""
    with serving((200, answer)) as (address, _):
        registry = Registry(f"http://{address}")
        calls = {
            "register": lambda: registry.register("t-key", SCHEMA),
            "get": lambda: registry.get(7),
            "ping": registry.ping,
        }
        with pytest.raises(RegistryError, match="unintelligible answer") as caught:
            calls[call]()
        assert not caught.value.retriable


def test_nobody_there() -> None:
    """A refused connection may be tried again."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(RegistryError, match="no connection") as caught:
            Registry(f"http://127.0.0.1:{taken.getsockname()[1]}").ping()
    assert caught.value.retriable


def test_no_answer() -> None:
    """A registry that accepts and says nothing times out, and may be tried again."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = Registry(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_s=0.05)
        with pytest.raises(RegistryError, match="no answer in time") as caught:
            registry.ping()
    assert caught.value.retriable


def test_second_address() -> None:
    """With several addresses the next one is asked when one fails."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with serving((200, ["AVRO"])) as (address, given):
            Registry(f"{dead}, http://{address}").ping()
            assert [path for path, _ in given.asked] == ["/schemas/types"]


BASIC = "Basic dXNlcjpwOnc="  # user, p:w


@pytest.mark.parametrize(
    ("userinfo", "auth"), [("", ("user", "p:w")), ("", lambda: ("user", "p:w")), ("user:p%3Aw@", None)]
)
def test_credentials(userinfo: str, auth: tuple[str, str] | None) -> None:
    """Credentials reach the registry from a pair, a callable or the url, and show nowhere."""
    with serving(error(403)) as (address, given):
        registry = Registry(f"http://{userinfo}{address}", auth=auth)
        with pytest.raises(RegistryError) as caught:
            registry.ping()
        assert [authorization for _, authorization in given.asked] == [BASIC]
    for shown in (repr(registry), str(caught.value), repr(caught.value)):
        assert address in shown
        assert not any(secret in shown for secret in ("p:w", "p%3Aw", "user:"))
    assert caught.value.__suppress_context__


def test_renewed_credentials() -> None:
    """After a 401 a callable is asked for new credentials, once per call."""
    fresh = iter([("a", "old"), ("a", "new")])
    with serving(error(401), (200, {"id": 7})) as (address, given):
        registry = Registry(f"http://{address}", auth=lambda: next(fresh))
        assert registry.register("t-key", SCHEMA) == 7
        assert len({authorization for _, authorization in given.asked}) == 2
    with serving(error(401)) as (address, given):
        registry = Registry(f"http://{address}", auth=lambda: ("a", "b"))
        with pytest.raises(RegistryError, match="refuses the credentials"):
            registry.register("t-key", SCHEMA)
        assert len(given.asked) == 2


@pytest.mark.parametrize(
    ("url", "auth"),
    [("http://u:secret@h", ("u", "secret")), ("http://h", ("u:x", "secret")), ("nonsense://secret@h", None)],
)
def test_unusable(url: str, auth: tuple[str, str] | None) -> None:
    """An unusable address or pair of credentials is refused at once, without showing it."""
    with pytest.raises(RegistryError) as caught:
        Registry(url, auth=auth)
    assert "secret" not in str(caught.value)
    assert not caught.value.retriable


def test_close() -> None:
    """Closing twice does no harm."""
    registry = Registry("mock://registry")
    registry.close()
    registry.close()
