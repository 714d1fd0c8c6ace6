"""Certificates for tests: an authority, and certificates that it signs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)


@dataclass(frozen=True)
class Issued:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """Signs certificates; `file` is its own certificate, for clients to trust."""

    folder: Path
    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, folder: Path, name: str = "authority") -> Self:
        """Make an authority whose files are in a folder."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_common_name(name), _common_name(name), key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        file = folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return cls(folder, file, certificate, key)

    def issue(
        self, name: str, *, address: str = "127.0.0.1", expired: bool = False, password: str | None = None
    ) -> Issued:
        """Sign a certificate for an IP address; it is valid for an hour, or has expired an hour ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(_common_name(name), self.certificate.subject, key, ago_h=3 if expired else 1)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(address))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        issued = Issued(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        issued.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        secret: KeySerializationEncryption = NoEncryption()
        if password is not None:
            secret = BestAvailableEncryption(password.encode())
        issued.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret))
        return issued


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ago_h: int = 1
) -> x509.CertificateBuilder:
    since = datetime.now(UTC) - timedelta(hours=ago_h)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(since + timedelta(hours=2))
    )
