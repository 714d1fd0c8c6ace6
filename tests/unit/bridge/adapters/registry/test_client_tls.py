"""A registry behind TLS, with certificates made by the test."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bridge.adapters.registry.access import Credentials, Hints, Tls
from bridge.adapters.registry.client import Registry
from schemas.errors import RegistryAccessError
from tests.unit.bridge.adapters.registry.fake_registry import FakeRegistry, serving
from tests.unit.certificates import Authority, Issued

SCHEMA = '{"type":"record","name":"R","fields":[]}'
PASSWORD = "hunter2"


@dataclass(frozen=True)
class Certificates:
    ours: Authority
    other: Authority
    server: Issued
    expired: Issued
    elsewhere: Issued
    client: Issued
    locked: Issued
    stranger: Issued


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    ours, other = Authority.make(folder), Authority.make(folder, "other")
    return Certificates(
        ours=ours,
        other=other,
        server=ours.issue("server"),
        expired=ours.issue("expired", expired=True),
        elsewhere=ours.issue("elsewhere", address="127.0.0.2"),
        client=ours.issue("client"),
        locked=ours.issue("locked", password=PASSWORD),
        stranger=other.issue("stranger"),
    )


@contextmanager
def registry_of(issued: Issued, *, clients_of: Authority | None = None) -> Iterator[str]:
    """Serve a registry with a certificate, which may require one of its clients; yields the url."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(clients_of.file)
    with serving(FakeRegistry(authorization="Basic dTpw"), context) as address:
        yield f"https://{address}"


def client(url: str, **tls: Path | Callable[[], str]) -> Registry:
    return Registry(url, auth=Credentials("u", "p"), tls=Tls(**tls), timeout_s=5)  # type: ignore[arg-type]


def test_trusted(certificates: Certificates) -> None:
    """A certificate of the named authority for this very host is accepted, and requests pass."""
    with registry_of(certificates.server) as url:
        registry = client(url, ca_file=certificates.ours.file)
        assert registry.register("t-value", SCHEMA) == 1
        assert registry.find("t-value", SCHEMA) == 1


@pytest.mark.parametrize(
    ("shown", "trusted", "words"),
    [
        ("server", "other", "unable to get local issuer certificate"),
        ("server", None, "unable to get local issuer certificate"),
        ("expired", "ours", "certificate has expired"),
        ("elsewhere", "ours", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
def test_untrusted_certificate_is_refused(
    certificates: Certificates, shown: str, trusted: str | None, words: str
) -> None:
    """Of an unknown authority, expired, or for another host; the message has the reason."""
    tls = {} if trusted is None else {"ca_file": getattr(certificates, trusted).file}
    with registry_of(getattr(certificates, shown)) as url, pytest.raises(RegistryAccessError) as caught:
        client(url, **tls).ping()
    assert f"schema registry {url}: list schema types: its certificate is not accepted: " in str(caught.value)
    assert words in str(caught.value)
    assert not caught.value.retriable


def test_client_certificate_is_shown(certificates: Certificates) -> None:
    """From one file or two, with an encrypted key or a plain one."""
    bundle = certificates.ours.folder / "bundle.pem"
    bundle.write_bytes(certificates.client.certificate.read_bytes() + certificates.client.key.read_bytes())
    shown: list[dict[str, Path | Callable[[], str]]] = [
        {"certificate_file": certificates.client.certificate, "key_file": certificates.client.key},
        {"certificate_file": bundle},
        {
            "certificate_file": certificates.locked.certificate,
            "key_file": certificates.locked.key,
            "key_password": lambda: PASSWORD,
        },
    ]
    with registry_of(certificates.server, clients_of=certificates.ours) as url:
        for tls in shown:
            client(url, ca_file=certificates.ours.file, **tls).ping()


def test_setting_at_fault_is_named(certificates: Certificates) -> None:
    """From `Hints`; for an expired certificate no setting is at fault."""
    hints = Hints("the password", "the authorities", "our certificate", "the address")
    tls = Tls(ca_file=certificates.ours.file)

    def told(url: str, tls: Tls = tls, password: str = "pw") -> str:
        with pytest.raises(RegistryAccessError) as caught:
            Registry(url, auth=Credentials("u", password), tls=tls, hints=hints).ping()
        return str(caught.value)

    with registry_of(certificates.server) as url:
        words = told(url, Tls(ca_file=certificates.other.file))
        assert words.endswith("unable to get local issuer certificate; see the authorities")
        assert told(url, password="wrong").endswith("; see the password")
    with registry_of(certificates.elsewhere) as url:
        assert told(url).endswith("certificate is not valid for '127.0.0.1'; see the address")
    with registry_of(certificates.expired) as url:
        assert told(url).endswith("certificate has expired")
    with registry_of(certificates.server, clients_of=certificates.ours) as url:
        assert told(url).endswith("; see our certificate")
    with serving(FakeRegistry()) as address:
        assert told(f"https://{address}").endswith("; see the address")


@pytest.mark.parametrize("shown", ["nothing", "stranger"])
def test_missing_or_unknown_client_certificate(certificates: Certificates, shown: str) -> None:
    """The refusal is reported as an error of TLS."""
    tls = {"ca_file": certificates.ours.file}
    if shown == "stranger":
        tls |= {"certificate_file": certificates.stranger.certificate, "key_file": certificates.stranger.key}
    with registry_of(certificates.server, clients_of=certificates.ours) as url:
        with pytest.raises(RegistryAccessError, match=r"no TLS connection: .*(alert|certificate)") as caught:
            client(url, **tls).ping()
        assert not caught.value.retriable


def test_server_without_tls(certificates: Certificates) -> None:
    """An https address of a plain http server is reported as such."""
    with serving(FakeRegistry()) as address, pytest.raises(RegistryAccessError, match="no TLS connection"):
        client(f"https://{address}", ca_file=certificates.ours.file).ping()


def test_unusable_files_are_named(certificates: Certificates, tmp_path: Path) -> None:
    """With the reason, before anything is sent; there is no prompt on the terminal."""
    nothing, rubbish = tmp_path / "nothing.pem", tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish", encoding="ascii")
    locked = {"certificate_file": certificates.locked.certificate, "key_file": certificates.locked.key}
    cases: list[tuple[dict[str, Path | Callable[[], str]], str]] = [
        ({"ca_file": nothing}, f"the CA file {nothing} can't be used: No such file"),
        ({"ca_file": rubbish}, f"the CA file {rubbish} can't be used: no certificate"),
        ({"certificate_file": rubbish}, f"the client certificate {rubbish} with {rubbish} can't be used: "),
        ({"certificate_file": certificates.client.certificate, "key_file": certificates.server.key}, "mismatch"),
        ({**locked}, "can't be used: "),
        ({**locked, "key_password": lambda: "not " + PASSWORD}, "can't be used: "),
    ]
    for tls, words in cases:
        with pytest.raises(RegistryAccessError) as caught:
            client("https://127.0.0.1:1", **tls)
        assert words in str(caught.value)
        assert PASSWORD not in str(caught.value)
