"""How a registry is let to know who we are, and how we know it: credentials, bearer tokens and TLS.

Values only; ``bridge.adapters.registry.client`` sends them. No ``repr`` holds a secret.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

from schemas.errors import RegistryAccessError, RegistryError


@dataclass(frozen=True, slots=True)
class Credentials:
    """User name and password for HTTP basic authentication (RFC 7617)."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token for HTTP bearer authentication (RFC 6750).

    Attributes:
        token: the token itself.
        logical_cluster: Confluent Cloud's id of the registry's cluster, sent as ``target-sr-cluster``; else "".
        identity_pool: Confluent Cloud's id of an identity pool, sent as ``Confluent-Identity-Pool-Id``.
    """

    token: str = field(repr=False)
    logical_cluster: str = ""
    identity_pool: str | None = None


Identity: TypeAlias = Credentials | BearerToken

Auth: TypeAlias = Identity | Callable[[], Identity]
"""Who we are, or where to ask for it: asked again after the registry refused it."""


@dataclass(frozen=True, slots=True)
class Hints:
    """What to look at when the registry is refused or refuses us, in the words of whoever gave it; "" for nothing.

    Attributes:
        credentials: where user and password, or the token, come from.
        authorities: where it is said whom we trust.
        certificate: where our certificate comes from.
        address: where the url comes from.
    """

    credentials: str = ""
    authorities: str = ""
    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Tls:
    """Whom we trust, and the certificate that we show; host names are always verified.

    Attributes:
        ca_file: PEM file with the authorities that may have signed the registry's certificate; None is the usual
            public ones (or those in the file or folder that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` names).
        certificate_file: PEM file with our certificate and its chain; None shows none.
        key_file: PEM file with our private key; None when it is in `certificate_file`.
        key_password: gives what the key is encrypted with; asked at each connecting.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: Callable[[], str] | None = field(default=None, repr=False)

    def properties(self) -> dict[str, object]:
        """The Confluent client's properties, once everything is proved to be usable.

        Raises:
            RegistryAccessError: a file can't be read, is no PEM file, or key and certificate do not belong together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        found: dict[str, object] = {}
        if self.ca_file is not None:
            try:
                context.load_verify_locations(self.ca_file)
            except (OSError, ValueError) as error:
                raise _unusable(f"the CA file {self.ca_file}", error) from None
            found["ssl.ca.location"] = str(self.ca_file)
        if self.certificate_file is not None:
            key_file = self.key_file or self.certificate_file
            # Never None: OpenSSL would then ask for the password of an encrypted key on the terminal.
            password = "" if self.key_password is None else self.key_password()
            try:
                context.load_cert_chain(self.certificate_file, key_file, password)
            except (OSError, ValueError) as error:
                raise _unusable(f"the client certificate {self.certificate_file} with {key_file}", error) from None
            found["ssl.certificate.location"] = str(self.certificate_file)
            found["ssl.key.location"] = str(key_file)
            found["ssl.key.password"] = password
        return found


def _unusable(what: str, error: Exception) -> RegistryAccessError:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "not PEM, or the key's password is wrong").replace("_", " ").lower()
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return RegistryAccessError(f"schema registry: {what} can't be used: {reason}")


def identity_properties(identity: Identity, address: str) -> dict[str, object]:
    """Return the Confluent client's properties for an identity.

    Raises:
        RegistryError: it can't be put into an HTTP header as it is.
    """
    if isinstance(identity, Credentials):
        if ":" in identity.username:
            raise RegistryError(f"schema registry {address}: a user name may hold no colon", retriable=False)
        return {"basic.auth.user.info": f"{identity.username}:{identity.password}"}
    if not identity.token or not all("!" <= character <= "~" for character in identity.token):
        # HTTP clients quote a header that they can't send.
        message = f"schema registry {address}: a bearer token is one or more visible ASCII characters"
        raise RegistryError(message, retriable=False)
    properties: dict[str, object] = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": identity.token,
        "bearer.auth.logical.cluster": identity.logical_cluster,
    }
    if identity.identity_pool is not None:
        properties["bearer.auth.identity.pool.id"] = identity.identity_pool
    return properties


def split_credentials(url: str) -> tuple[str, Credentials | None]:
    """Return the addresses without user and password, and the first ones found.

    They go to the client apart from the url, since HTTP clients log the urls they ask.
    """
    bare, found = [], None
    for one in url.split(","):
        parts = urlsplit(one.strip())
        userinfo, _, host = parts.netloc.rpartition("@")
        if userinfo and found is None:
            username, _, password = userinfo.partition(":")
            found = Credentials(unquote(username), unquote(password))
        bare.append(urlunsplit((parts.scheme, host, parts.path, "", "")))
    return ",".join(bare), found
