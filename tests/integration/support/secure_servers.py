"""Servers that let nobody in without a certificate, a login and rights; every certificate is made here."""

from __future__ import annotations

import base64
import http.client
import json
import re
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from sandbox.stack.cql_server import CqlServer
from sandbox.stack.kafka_server import KafkaServer
from sandbox.stack.ports import LOOPBACK
from tests.unit.certificates import Authority, Issued

USER = "bridge"
REAUTHENTICATE_MS = 1000
"""After how long a login by SCRAM-SHA-256 or OAUTHBEARER has to be renewed on a connection that stays open."""
_LISTENERS = ("LOGIN", "MUTUAL", "EXPIRED", "ELSEWHERE")


@dataclass(frozen=True)
class Certificates:
    """An authority that is trusted, one that is not, and what they issued."""

    authority: Authority
    stranger: Authority
    server: Issued
    expired: Issued
    elsewhere: Issued
    client: Issued
    strangers_client: Issued

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        authority, stranger = Authority.make(folder), Authority.make(folder, "stranger")
        return cls(
            authority,
            stranger,
            authority.issue("server"),
            authority.issue("expired", expired=True),
            authority.issue("elsewhere", address="192.0.2.1"),
            authority.issue(USER),
            stranger.issue("strangers-client"),
        )


def keystore(issued: Issued) -> Path:
    """Key and certificate in one PEM file."""
    path = issued.key.with_suffix(".both.pem")
    path.write_text(issued.key.read_text() + issued.certificate.read_text())
    return path


@dataclass(frozen=True)
class SecureKafka(KafkaServer):
    """A broker with listeners for every way in; its plain one belongs to the broker itself and to the tests."""

    certificates: Certificates = field(kw_only=True)
    ports: Mapping[str, int] = field(kw_only=True)
    password: str = field(kw_only=True)
    keys: Path = field(kw_only=True)

    def address(self, listener: str) -> str:
        return f"{LOOPBACK}:{self.ports[listener]}"

    def command(self) -> list[str]:
        java, *rest = super().command()
        return [java, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.keys.as_uri()}", *rest]

    def _configuration(self) -> str:
        former = dict(line.split("=", 1) for line in super()._configuration().splitlines())
        listeners = "".join(f",{name}://{self.address(name)}" for name in _LISTENERS)
        former["listeners"] += listeners
        former["advertised.listeners"] += listeners
        former["listener.security.protocol.map"] += ",LOGIN:SASL_SSL,MUTUAL:SSL,EXPIRED:SSL,ELSEWHERE:SSL"
        made = self.certificates
        shown = {
            "LOGIN": made.server,
            "MUTUAL": made.server,
            "EXPIRED": made.expired,
            "ELSEWHERE": made.elsewhere,
        }
        for name, issued in shown.items():
            prefix = f"listener.name.{name.lower()}."
            former |= {
                f"{prefix}ssl.keystore.type": "PEM",
                f"{prefix}ssl.keystore.location": str(keystore(issued)),
                f"{prefix}ssl.truststore.type": "PEM",
                f"{prefix}ssl.truststore.location": str(made.authority.file),
            }
        module = "org.apache.kafka.common.security"
        oauth = f"{module}.oauthbearer"
        former |= {
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.login.plain.sasl.jaas.config": f"{module}.plain.PlainLoginModule required "
            f'user_{USER}="{self.password}";',
            "listener.name.login.scram-sha-256.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            "listener.name.login.oauthbearer.connections.max.reauth.ms": str(REAUTHENTICATE_MS),
            "listener.name.login.oauthbearer.sasl.jaas.config": f"{oauth}.OAuthBearerLoginModule required;",
            "listener.name.login.oauthbearer.sasl.server.callback.handler.class": f"{oauth}."
            "OAuthBearerValidatorCallbackHandler",
            "listener.name.login.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "listener.name.login.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
        }
        for mechanism in ("256", "512"):
            former[f"listener.name.login.scram-sha-{mechanism}.sasl.jaas.config"] = (
                f"{module}.scram.ScramLoginModule required;"
            )
        return "".join(f"{key}={value}\n" for key, value in former.items())


@dataclass(frozen=True)
class SecureCql(CqlServer):
    """A CQL server with logins, rights and mutual TLS; without TLS it answers too, for the tests' own doings."""

    certificates: Certificates = field(kw_only=True)

    def prepare(self) -> None:
        super().prepare()
        made = self.certificates
        text = self._yaml.read_text(encoding="utf-8")
        text = text.replace("authorizer: AllowAllAuthorizer", "authorizer: CassandraAuthorizer")
        text += (
            "role_manager: CassandraRoleManager\n"
            "permissions_validity: 0ms\nroles_validity: 0ms\ncredentials_validity: 0ms\n"
            "client_encryption_options:\n"
            "  enabled: true\n  optional: true\n  require_client_auth: true\n"
            "  ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n"
            f"  keystore: {keystore(made.server)}\n  truststore: {made.authority.file}\n"
        )
        self._yaml.write_text(text, encoding="utf-8")


class TlsFront:
    """Speaks TLS before a server that does not, with any certificate, and can drop its connections."""

    def __init__(self, backend: tuple[str, int], shown: Issued, *, trusts: Path | None = None) -> None:
        self._backend = backend
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self.present(shown, trusts=trusts)
        self._listener = socket.create_server((LOOPBACK, 0))
        self.address = f"{LOOPBACK}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def present(self, shown: Issued, *, trusts: Path | None = None) -> None:
        """What new connections meet from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(shown.certificate, shown.key)
        if trusts is not None:
            context.load_verify_locations(trusts)
            context.verify_mode = ssl.CERT_REQUIRED
        self._context = context

    def drop_connections(self) -> None:
        with self._lock:
            doomed, self._open = self._open, []
        for one in doomed:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.drop_connections()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, plain: socket.socket) -> None:
        try:
            client = self._context.wrap_socket(plain, server_side=True)
        except (OSError, ValueError):
            plain.close()
            return
        with client, socket.create_connection(self._backend) as server, suppress(OSError):
            with self._lock:
                self._open += [client, server]
            while True:
                # What the TLS layer has read already is not seen by select.
                ready = [client] if client.pending() else select.select([client, server], [], [], 60)[0]
                for one in ready:
                    data = one.recv(65536)
                    if not data:
                        return
                    (server if one is client else client).sendall(data)


class Door:
    """A proxy before a registry: TLS, basic or bearer authentication, and a list of allowed requests."""

    def __init__(self, registry: str, shown: Issued, login: tuple[str, str], token: str) -> None:
        self.registry = registry
        self.allowed: Callable[[str, str], bool] = lambda _method, _path: True
        self.asked: set[tuple[str, str]] = set()
        basic = base64.b64encode(":".join(login).encode()).decode()
        self._welcome = {f"Basic {basic}", f"Bearer {token}"}
        self._server = _https(shown, self._handler())
        self.url = f"https://{LOOPBACK}:{self._server.server_port}/apis/ccompat/v7"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        door = self
        address = re.sub(r"^http://|/.*$", "", self.registry)

        class Handler(_Quiet):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = self.path.partition("?")[0].removeprefix("/apis/ccompat/v7")
                door.asked.add((self.command, path))
                if self.headers.get("Authorization") not in door._welcome:
                    self.answer(401, {"error_code": 401, "message": "Unauthorized"})
                elif not door.allowed(self.command, path):
                    self.answer(403, {"error_code": 40301, "message": f"{self.command} {path} is not allowed"})
                else:
                    onward = http.client.HTTPConnection(address, timeout=30)
                    kept = {name: value for name, value in self.headers.items() if name in ("Content-Type", "Accept")}
                    onward.request(self.command, self.path, body, kept)
                    answer = onward.getresponse()
                    self.answer(answer.status, answer.read(), answer.getheader("Content-Type") or "application/json")
                    onward.close()

            do_GET = do_POST = do_PUT = do_DELETE = _any  # noqa: N815  # the base class's names

        return Handler


class TokenIssuer:
    """Signs tokens (ES256) that the broker believes, and gives them out at a token endpoint of its own."""

    def __init__(self, keys: Path, shown: Issued, client: tuple[str, str]) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        numbers = self._key.public_key().public_numbers()
        point = {name: _text64(value.to_bytes(32, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))}
        keys.write_text(json.dumps({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k", "use": "sig", **point}]}))
        self._client = "Basic " + base64.b64encode(":".join(client).encode()).decode()
        self.given = 0
        self._server = _https(shown, self._handler())
        self.url = f"https://{LOOPBACK}:{self._server.server_port}/token"

    def token(self, *, life_s: float = 3600, subject: str = USER) -> str:
        now_s = int(time.time())
        head = {"alg": "ES256", "typ": "JWT", "kid": "k"}
        claims = {"sub": subject, "aud": "kafka", "iss": "tests", "iat": now_s, "exp": int(now_s + life_s)}
        signed = ".".join(_text64(json.dumps(part).encode()) for part in (head, claims))
        pair = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        return signed + "." + _text64(b"".join(number.to_bytes(32, "big") for number in pair))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(_Quiet):
            def do_POST(self) -> None:
                body = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
                if self.headers.get("Authorization") != issuer._client:
                    self.answer(401, {"error": "invalid_client"})
                elif body.get("grant_type") != ["client_credentials"]:
                    self.answer(400, {"error": "unsupported_grant_type"})
                else:
                    issuer.given += 1
                    token = issuer.token(life_s=60)
                    self.answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 60})

        return Handler


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _https(shown: Issued, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    server = ThreadingHTTPServer((LOOPBACK, 0), handler)
    server.daemon_threads = True
    # The handshake is the handler thread's, so that a client that refuses us stops nobody else.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.handle_error = lambda *_: None  # type: ignore[method-assign,assignment]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _text64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


@contextmanager
def closing(*open_: Any) -> Iterator[None]:
    """Close everything at the end, the last first."""
    try:
        yield
    finally:
        for one in reversed(open_):
            one.close()
