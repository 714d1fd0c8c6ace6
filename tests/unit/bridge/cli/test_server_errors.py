"""Checks the errors that `docs/errors.md` quotes for addresses where the expected server does not answer.

The servers are loopback sockets that close connections, stay silent, or answer as a web server does. All cases run at
once, because each takes a while to fail.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.adapters import connect, tls_probe
from bridge.adapters.connect import open_kafka, open_registry, open_scylla
from bridge.config.document import validate
from bridge.errors import StartupError
from bridge.runtime import log_setup
from tests.unit.bridge.adapters.registry.fake_registry import FixedAnswers, serving
from tests.unit.bridge.cli.error_entries import Entry
from tests.unit.bridge.cli.server_errors import SERVER_CASES
from tests.unit.bridge.config.bad_input_cases import GOOD

_HERE: Final = "127.0.0.1"
_NOWHERE: Final = "no-such-host.invalid"
_WEB_PAGE: Final = b"<html><body>Welcome</body></html>"
_SECTIONS: Final = {
    "ScyllaDB": ("scylla", open_scylla),
    "Kafka": ("kafka", open_kafka),
    "Schema registry": ("registry", open_registry),
}
_OPEN: Final[dict[str, Callable[..., Any]]] = dict(_SECTIONS.values())
_resolve = socket.getaddrinfo


class Servers:
    """Addresses of unexpected servers, and bad files that a configuration may name."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        silent = stack.enter_context(socket.create_server((_HERE, 0)))
        free = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in free:
            one.bind((_HERE, 0))
        self._stack = stack
        self.silent = _address(silent)
        self.closed = [_address(one) for one in free]
        self.hangs_up = stack.enter_context(_hanging_up())
        self.web = self.answers(200, _WEB_PAGE)
        self.folder = folder
        (folder / "binary").write_bytes(b"\xff\xfe")
        (folder / "rubbish").write_text("hello", encoding="ascii")

    def answers(self, status: int, body: object) -> str:
        """Return `host:port` of a web server that answers every request like this."""
        return self._stack.enter_context(serving(FixedAnswers([(status, body)])))

    def file(self, name: str) -> str:
        return str(self.folder / name)


def _address(of: socket.socket) -> str:
    return f"{_HERE}:{of.getsockname()[1]}"


@contextmanager
def _hanging_up() -> Iterator[str]:
    with socket.create_server((_HERE, 0)) as listening:

        def hang_up(taken: socket.socket) -> None:
            # What is left unread would make it a reset, which reads otherwise.
            with taken, suppress(OSError):
                taken.settimeout(0.2)
                taken.recv(65_536)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=hang_up, args=listening.accept()[:1], daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield _address(listening)
        # Only so a waiting accept comes back.
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _resolving(host: Any, *arguments: Any, **more: Any) -> Any:
    if host in (_NOWHERE, _NOWHERE.encode()):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return _resolve(host, *arguments, **more)


def _settings_by_case(servers: Servers) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the settings that cause each error, by the document's section and case."""
    at, tls = "contact_points", {"enabled": True}
    brokers = "bootstrap_servers"
    secret = {"username": "u", "password": {"file": servers.file("binary")}}

    def url(*answer: Any) -> dict[str, Any]:
        return {"url": f"http://{servers.answers(*answer)}"}

    return {
        ("ScyllaDB", "a host name without an address"): [{at: f"{_NOWHERE}:9042"}],
        ("ScyllaDB", "an HTTP server, or a silent server"): [{at: servers.silent, "request_timeout_ms": 100}],
        ("ScyllaDB", "a server that closes the connection"): [{at: servers.hangs_up}],
        ("ScyllaDB", "two nodes; nothing listens on either"): [{at: servers.closed}],
        ("ScyllaDB", "`tls.enabled`, and the server has no TLS"): [{at: servers.web, "tls": tls}],
        ("Kafka", "an HTTP server, a silent server, or one that closes the connection"): [
            {brokers: server} for server in (servers.web, servers.silent, servers.hangs_up)
        ],
        ("Kafka", "`tls.enabled`, and the server has no TLS"): [{brokers: servers.web, "tls": tls}],
        ("Kafka", "`kafka.properties: {nonsense.setting: 1}`"): [{"properties": {"nonsense.setting": 1}}],
        ("Kafka", "`kafka.properties: {message.max.bytes: 5}`"): [{"properties": {"message.max.bytes": 5}}],
        ("Schema registry", "a web page, other JSON, or half of a JSON document"): [
            url(200, body) for body in (_WEB_PAGE, {"version": "1.2"}, b'{"version')
        ],
        ("Schema registry", "status 404 or a redirect from another server"): [url(404, _WEB_PAGE), url(302, b"")],
        ("Schema registry", "status 403 from another server"): [url(403, b"no")],
        ("Schema registry", "status 500"): [url(500, b"boom")],
        ("Schema registry", "a silent server"): [{"url": f"http://{servers.silent}", "request_timeout_ms": 100}],
        ("Schema registry", "a server that closes the connection"): [{"url": f"http://{servers.hangs_up}"}],
        ("Schema registry", "a host name without an address"): [{"url": f"http://{_NOWHERE}:8081"}],
        ("Schema registry", "`https`, and the server has no TLS"): [{"url": f"https://{servers.web}"}],
        ("Schema registry", "`ca_file` is missing"): [
            {"url": f"https://{servers.web}", "ca_file": servers.file("missing")}
        ],
        ("Secrets and certificates, where they are read", "the file is binary"): [secret],
        ("Secrets and certificates, where they are read", "`ca_file` is missing"): [
            {"tls": {**tls, "ca_file": servers.file("missing")}}
        ],
        ("Secrets and certificates, where they are read", "`ca_file` is no PEM file"): [
            {"tls": {**tls, "ca_file": servers.file("rubbish")}}
        ],
    }


def _open_and_fail(section: str, change: dict[str, Any]) -> str:
    settings = {**GOOD[section], **change}
    try:
        _OPEN[section](validate({**GOOD, section: settings}), report=str, patience_s=0).close()
    except StartupError as error:
        return str(error)
    return "no error"


def _pattern(entry: Entry) -> str:
    """Return the document's text as a regular expression that allows other hosts and files, and one attempt."""
    (text,) = entry.told
    text = text.replace("(tried 9 times in 60.0 s)", "(tried once)")
    parts = map(re.escape, text.replace("/etc/ca.pem", "...").replace("/run/pw", "...").split("..."))
    return re.sub(r"\ba:\d+", r"\\S+", ".*".join(parts))


def test_strange_servers_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each case that names this test gives the quoted error."""
    monkeypatch.setattr(connect, "PING_TIMEOUT_S", 0.6)
    monkeypatch.setattr(tls_probe, "_CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(log_setup, "silence_library", lambda _name: nullcontext())
    monkeypatch.setattr(socket, "getaddrinfo", _resolving)
    mine = {
        (title, one.tried): one
        for title, entries in SERVER_CASES.items()
        for one in entries
        if one.test == test_strange_servers_are_told.__name__
    }
    with ExitStack() as stack, ThreadPoolExecutor(32) as threads:
        cases = _settings_by_case(Servers(stack, tmp_path))
        assert cases.keys() == mine.keys()
        seen = []
        for case, changes in cases.items():
            section = _SECTIONS[case[0]][0] if case[0] in _SECTIONS else mine[case].told[0].partition(".")[0]
            seen += [(case, threads.submit(_open_and_fail, section, change)) for change in changes]
        wrong = {case: told.result() for case, told in seen if not re.match(_pattern(mine[case]), told.result())}
    assert wrong == {}
