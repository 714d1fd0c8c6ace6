"""TLS contexts made from the settings, and explanations of TLS errors.

Certificates and host names are always verified. A context knows the section of its settings, so that an error names the
setting at fault. No message contains any part of a key or its password.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any, Final, Self

from bridge.config.tls import TlsFiles
from bridge.errors import AccessError

_Stamp = tuple[tuple[int, int, int] | None, ...]
"""Inode, modification time in ns and size of each file; None for a file that is not set or does not exist."""


def client_context(files: TlsFiles, section: str) -> ssl.SSLContext:
    """A client context from the present contents of the files.

    Args:
        files: the authorities to trust, and the certificate and key to show.
        section: the name of their section, as in `kafka.tls`; for error messages.

    Raises:
        AccessError: a file can't be read, is no PEM file, or key and certificate do not belong together.
        StartupError: the key's password can't be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load(context, files, section)
    return context


class RenewingContext(ssl.SSLContext):
    """A context that reads the files again when they change, for clients that keep one context for all connections."""

    _files: TlsFiles
    _section: str
    _stamp: _Stamp
    _current: ssl.SSLContext

    @classmethod
    def of(cls, files: TlsFiles, section: str) -> Self:
        """Make the context of a section.

        Args:
            files: the authorities to trust, and the certificate and key to show.
            section: the name of their section, as in `kafka.tls`; for error messages.

        Raises:
            AccessError: a file can't be read, is no PEM file, or key and certificate do not belong together.
            StartupError: the key's password can't be read.
        """
        context = cls(ssl.PROTOCOL_TLS_CLIENT)
        context._files, context._section = files, section
        # Take the stamp before reading the files: a change in between is then noticed.
        context._stamp = _stamp_of(files)
        context._current = client_context(files, section)
        return context

    def wrap_socket(self, *arguments: Any, **keywords: Any) -> ssl.SSLSocket:
        """Start TLS on a socket, with the present contents of the files.

        Raises:
            AccessError, StartupError: the files have changed and can't be used.
        """
        stamp = _stamp_of(self._files)
        if stamp != self._stamp:
            self._current, self._stamp = client_context(self._files, self._section), stamp
        return self._current.wrap_socket(*arguments, **keywords)


_CAUSES: Final = (
    (r"hostname mismatch|IP address mismatch|doesn't match", "its certificate is for another host; see {section}"),
    (
        r"alert[ _]certificate[ _]expired",
        "it reports that the certificate in {section}.client_certificate_file has expired",
    ),
    (r"certificate has expired", "its certificate has expired; see {section}"),
    (r"not yet valid", "its certificate is not valid yet: is a clock wrong? See {section}"),
    (
        r"unable to get (?:local )?issuer|self[- ]signed|unable to verify",
        "its certificate is from an authority that {section}.ca_file does not name",
    ),
    (r"verify failed", "its certificate can't be verified; see {section}"),
    (
        r"certificate[ _]required|handshake[ _]failure"
        r"|alert[ _](?:bad|unknown|unsupported)[ _](?:certificate|ca)|alert[ _]certificate[ _]unknown",
        "it does not accept {shown}",
    ),
    (
        r"wrong[ _]version[ _]number|http[ _]request|packet[ _]length",
        "it does not speak TLS there; see {section}.enabled",
    ),
)


def explain_tls_error(reason: str, files: TlsFiles, section: str) -> str | None:
    """Explain an error message of a TLS library.

    Args:
        reason: the library's message.
        files: the settings of the connection.
        section: the name of their section, as in `kafka.tls`.

    Returns:
        A sentence about the server that names the setting at fault and ends with the library's message; None if the
        message names no cause: a connection may break off for any reason.
    """
    shown = f"the certificate in {section}.client_certificate_file"
    if files.client_certificate_file is None:
        shown = f"a client without a certificate; set {section}.client_certificate_file"
    for pattern, explanation in _CAUSES:
        if re.search(pattern, reason, re.IGNORECASE):
            return f"{explanation.format(section=section, shown=shown)} ({_shorten(reason)})"
    return None


def _shorten(reason: str) -> str:
    flat = " ".join(re.sub(r"\s*\(_ssl\.c:\d+\)", "", reason).split())
    return flat if len(flat) <= 160 else flat[:157] + "..."


def _load(context: ssl.SSLContext, files: TlsFiles, section: str) -> None:
    if files.ca_file is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(files.ca_file)
        except (OSError, ValueError) as error:
            raise _unusable(f"{section}.ca_file", files.ca_file, error) from None
    if files.client_certificate_file is not None:
        key_file = files.client_key_file or files.client_certificate_file
        # Never None: OpenSSL would then ask for the password of an encrypted key on the terminal.
        password = (
            ""
            if files.client_key_password is None
            else files.client_key_password.reveal(f"{section}.client_key_password")
        )
        try:
            context.load_cert_chain(files.client_certificate_file, key_file, password)
        except (OSError, ValueError) as error:
            setting = f"{section}.client_certificate_file"
            raise _unusable(setting, f"{files.client_certificate_file} with {key_file}", error) from None


def _unusable(setting: str, path: Path | str, error: Exception) -> AccessError:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "not PEM, or the key's password is wrong").replace("_", " ").lower()
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
    return AccessError(f"{setting}: {path} can't be used: {reason}")


def _stamp_of(files: TlsFiles) -> _Stamp:
    """The stamp of the files, which changes if a file is replaced; follows links, because Kubernetes replaces links."""
    stamps: list[tuple[int, int, int] | None] = []
    password = files.client_key_password
    for path in (
        files.ca_file,
        files.client_certificate_file,
        files.client_key_file,
        None if password is None else password.file,
    ):
        try:
            found = None if path is None else path.stat()
        except OSError:
            found = None  # loading the file fails and reports the problem
        stamps.append(None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)
