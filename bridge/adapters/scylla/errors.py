"""Translates the exceptions of the CQL driver into the bridge's errors."""

from __future__ import annotations

import os
from typing import Final

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    ReadFailure,
    ReadTimeout,
    RequestExecutionException,
    Unauthorized,
    Unavailable,
    WriteFailure,
    WriteTimeout,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage, SyntaxException

from bridge.adapters import tls
from bridge.adapters.tls_probe import find_tls_problem
from bridge.config.document import ScyllaSettings
from bridge.errors import AccessError, BridgeError, RefusedError, RetriableError, StartupError

DRIVER_ERRORS: Final = (NoHostAvailable, DriverException, ErrorMessage, ConnectionException, OSError)
"""What the driver raises when a request fails."""

_TRANSLATIONS: Final[tuple[tuple[type[BaseException], type[BridgeError], str], ...]] = (
    # The driver's exception, the bridge's error, and the verb of the message. The first match counts.
    (AuthenticationFailed, AccessError, "refused the username or password (scylla.username, scylla.password)"),
    (Unauthorized, StartupError, "does not allow"),
    (SyntaxException, BridgeError, "does not understand"),
    (InvalidRequest, RefusedError, "refuses"),
    (Unavailable, RetriableError, "has too few live replicas for"),
    (ReadTimeout, RetriableError, "timed out reading for"),
    (WriteTimeout, RetriableError, "timed out writing for"),
    (ReadFailure, RetriableError, "failed reading for"),
    (WriteFailure, RetriableError, "failed writing for"),
    (OperationTimedOut, RetriableError, "did not answer in time to"),
    (RequestExecutionException, RetriableError, "failed at"),
    (ConnectionException, RetriableError, "lost the connection while at"),
    (NoHostAvailable, RetriableError, "can't be reached for"),
    (ErrorMessage, RetriableError, "answered with an error to"),
    (OSError, RetriableError, "can't be reached for"),
)


def translate_error(error: BaseException, settings: ScyllaSettings, request: str) -> BridgeError:
    """The bridge's error for an exception of the driver.

    Args:
        error: the driver's exception.
        settings: how the session was connected.
        request: the CQL statement, or a word for what failed; part of the message.

    Returns:
        RetriableError where another try may succeed; AccessError for a refused login or TLS handshake; StartupError
        for a missing right; RefusedError for an invalid statement; BridgeError for everything else.
    """
    address = ", ".join(settings.contact_points)
    cause = _decisive_cause(error)
    if "[SSL" in str(cause):
        problem = tls.explain_tls_error(_openssl_message(str(cause)), settings.tls, "scylla.tls")
        if problem is not None:
            return AccessError(f"ScyllaDB at {address}: {problem}")
    if isinstance(cause, StartupError):
        # A secret or a certificate could not be read when the driver opened another connection.
        return cause
    if isinstance(cause, NoHostAvailable) and isinstance(cause.errors, dict) and cause.errors:
        tried = "; ".join(f"{node}: {_node_error_text(found)}" for node, found in cause.errors.items())
        return RetriableError(f"ScyllaDB at {address} can't be reached for {shorten(request)}: {shorten(tried)}")
    if isinstance(cause, NoHostAvailable) and isinstance(cause.errors, list) and cause.errors:
        nodes, port = ", ".join(map(str, cause.errors)), settings.contact_points[0].rpartition(":")[2]
        return RetriableError(
            f"ScyllaDB at {address} can't be reached for {shorten(request)}: none of the nodes that it names "
            f"({nodes}) takes connections on port {port}, that of the first contact point; see scylla.contact_points"
        )
    for kind, ours, verb in _TRANSLATIONS:
        if isinstance(cause, kind):
            return ours(f"ScyllaDB at {address} {verb} {shorten(request)}: {shorten(str(cause))}")
    return BridgeError(f"ScyllaDB at {address}: unexpected {type(cause).__name__} at {shorten(request)}: {cause}")


def raise_tls_problem(settings: ScyllaSettings) -> None:
    """Raise AccessError if the TLS settings do not fit one of the contact points.

    For a connection that broke off: the driver's exception does not contain the reason.
    """
    for point in settings.contact_points:
        problem = find_tls_problem(point, settings.tls, "scylla.tls")
        if problem is not None:
            raise AccessError(f"ScyllaDB at {point}: {problem}")


def shorten(text: str) -> str:
    """A text on one line, at most 300 characters long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= 300 else flat[:297] + "..."


def _decisive_cause(error: BaseException) -> BaseException:
    """If one node refused the login or the TLS handshake, that node's error; else the error itself."""
    cause = error
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        inner = [found for found in error.errors.values() if isinstance(found, BaseException)]
        for kind in (AuthenticationFailed, StartupError):
            cause = next((found for found in inner if isinstance(found, kind)), cause)
    return cause


def _node_error_text(error: object) -> str:
    """The error of one node, without the text that Python's classes add."""
    if isinstance(error, OperationTimedOut) and isinstance(error.errors, str):
        # The exception's own text lists fields that are not set.
        return f"{error.errors[:1].lower()}{error.errors[1:]}; is that its port for CQL (scylla.contact_points)?"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower() or str(error)
    return str(error) or type(error).__name__


def _openssl_message(text: str) -> str:
    """OpenSSL's message, cut out of the driver's."""
    return text[text.index("[SSL") :].partition(" (_ssl.c:")[0]
