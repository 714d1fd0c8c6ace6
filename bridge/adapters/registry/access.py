"""Credentials, bearer tokens and TLS for the schema registry.

These are values only; ``bridge.adapters.registry.client`` uses them. No ``repr`` contains a secret.
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
"""An identity, or a function that returns it; it is called again after the registry refused the identity."""


@dataclass(frozen=True, slots=True)
class Hints:
    """The settings that error messages name; "" for none.

    Attributes:
        credentials: the settings of user and password, or of the token.
        authorities: the setting of the trusted authorities.
        certificate: the setting of our certificate.
        address: the setting of the url.
    """

    credentials: str = ""
    authorities: str = ""
    certificate: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Tls:
    """The trusted authorities, and the certificate that we show; host names are always verified.

    Attributes:
        ca_file: PEM file with the authorities that may have signed the registry's certificate; None for the public
            authorities (or those in the file or folder that ``SSL_CERT_FILE`` or ``SSL_CERT_DIR`` names).
        certificate_file: PEM file with our certificate and its chain; None for no certificate.
        key_file: PEM file with our private key; None if the key is in `certificate_file`.
        key_password: returns the password of the key; called for each new client.
    """

    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    key_password: Callable[[], str] | None = field(default=None, repr=False)

    def properties(self) -> dict[str, object]:
        """Check the files, and return the properties for Confluent's client.

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
    """Return the properties for Confluent's client.

    Args:
        identity: the credentials or the token.
        address: the registry's; for error messages.

    Raises:
        RegistryError: the identity can't be put into an HTTP header.
    """
    if isinstance(identity, Credentials):
        if ":" in identity.username:
            raise RegistryError(f"schema registry {address}: a user name may hold no colon", retriable=False)
        return {"basic.auth.user.info": f"{identity.username}:{identity.password}"}
    if not identity.token or not all("!" <= character <= "~" for character in identity.token):
        # Check it here: the error of an HTTP client would quote the header.
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
    """Take user and password out of a registry's url: HTTP clients log the urls of their requests.

    Args:
        url: one address, or several separated by commas.

    Returns:
        The addresses without user and password, and the first user and password found; None if there are none.
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
