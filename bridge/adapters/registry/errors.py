"""Translates the errors of Confluent's registry client, and of HTTP below it, into ours."""

from __future__ import annotations

import re
import ssl
from typing import Final

import httpx2
from confluent_kafka.schema_registry.error import SchemaRegistryError

from bridge.adapters.registry.access import Hints
from schemas.errors import RegistryAccessError, RegistryError

_MALFORMED_ANSWER: Final = (ValueError, TypeError, KeyError, AttributeError)
"""What the client raises if an answer is not JSON, or JSON of another shape."""

HTTP_ERRORS: Final = (httpx2.HTTPError, httpx2.InvalidURL, *_MALFORMED_ANSWER)
"""What the client raises apart from `SchemaRegistryError`."""

UNAUTHORIZED: Final = 401
NOT_FOUND: Final = 404
CONFLICT: Final = 409
_RETRIABLE_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MEANINGS: Final[dict[int, str]] = {
    404: "does not know it",
    422: "does not accept the schema or subject",
}
_REFUSALS: Final[dict[int, str]] = {
    401: "refuses the credentials",
    403: "forbids it",
}
_NO_CODE: Final = -1
"""The client's error code for an answer that is not JSON."""
_EMPTY_ANSWER: Final = "b''"
"""How the client's message ends if the answer was empty."""
_WRONG_HOST: Final = re.compile(r"mismatch|doesn't match", re.IGNORECASE)
_UNKNOWN_AUTHORITY: Final = re.compile(r"issuer|self[- ]signed|unable to verify", re.IGNORECASE)
_CONNECTION_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""TLS errors that only report a closed connection, not its cause."""


def translate_error(error: Exception, address: str, purpose: str, hints: Hints) -> RegistryError:
    """Our error for one of the client's.

    Args:
        error: the client's exception.
        address: the registry's, without credentials.
        purpose: what the request was for; part of the message.
        hints: the settings to name in the message.

    Returns:
        An error whose `retriable` shows whether another try may succeed.
    """
    at = f"schema registry {address}: {purpose}"
    if isinstance(error, SchemaRegistryError):
        return _translate_answer(error, at, hints)
    if isinstance(error, httpx2.TimeoutException):
        return RegistryError(f"{at}: no answer in time", retriable=True)
    if isinstance(error, httpx2.TransportError):
        problem = _explain_tls_error(error, hints)
        if problem is not None:
            return RegistryAccessError(f"{at}: {problem}")
        if isinstance(error, httpx2.ProtocolError):
            return RegistryError(
                f"{at}: no answer in HTTP ({type(error).__name__}); {_ask_address(hints)}", retriable=True
            )
        return RegistryError(f"{at}: no connection ({type(error).__name__})", retriable=True)
    return RegistryError(
        f"{at}: unintelligible answer ({type(error).__name__}); {_ask_address(hints)}", retriable=False
    )


def malformed_answer(answer: object, address: str, purpose: str, hints: Hints) -> RegistryError:
    """The error for an answer that lacks what a registry returns; the client gives missing fields as None."""
    message = (
        f"schema registry {address}: {purpose}: unintelligible answer ({type(answer).__name__}); {_ask_address(hints)}"
    )
    return RegistryError(message, retriable=False)


def is_registry_code(code: object) -> bool:
    """Whether an error code is a registry's own; other servers send none."""
    return isinstance(code, int) and code > 0


def _translate_answer(error: SchemaRegistryError, at: str, hints: Hints) -> RegistryError:
    status, text = error.http_status_code, _answer_text(error)
    if status in _REFUSALS:
        hint = _see(hints.credentials) if status == UNAUTHORIZED else ""
        return RegistryAccessError(f"{at}: {_REFUSALS[status]} {text}{hint}")
    code: object = error.error_code
    # For a path that it does not have, a registry sends HTTP's own code.
    from_registry = is_registry_code(code) and code != NOT_FOUND
    question = "" if from_registry or status in _RETRIABLE_STATUS else f"; {_ask_address(hints)}"
    meaning = _MEANINGS.get(status, "failed")
    return RegistryError(f"{at}: {meaning} {text}{question}", retriable=status in _RETRIABLE_STATUS)


def _answer_text(error: SchemaRegistryError) -> str:
    """Status, code and message of an answer; other servers leave out the code, the message or both."""
    code: object = error.error_code
    message: object = error.error_message
    code_text = "" if code in (None, _NO_CODE) else f", code {code}"
    has_message = message and not str(message).endswith(_EMPTY_ANSWER)
    return f"(HTTP {error.http_status_code}{code_text})" + (f": {message}" if has_message else "")


def _ask_address(hints: Hints) -> str:
    return f"is {hints.address or 'that'} the base address of a schema registry?"


def _see(hint: str) -> str:
    return f"; see {hint}" if hint else ""


def _explain_tls_error(error: BaseException, hints: Hints) -> str | None:
    """The TLS failure behind an error as a sentence with the setting to check; None if TLS did not fail."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            reason = cause.verify_message
            # For an expired certificate no setting of ours is at fault.
            hint = (
                hints.address
                if _WRONG_HOST.search(reason)
                else hints.authorities
                if _UNKNOWN_AUTHORITY.search(reason)
                else ""
            )
            return f"its certificate is not accepted: {reason.removesuffix('.')}{_see(hint)}"
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _CONNECTION_CLOSED):
            reason = (cause.reason or "unknown reason").replace("_", " ").lower()
            # A server reports a problem with the client's certificate in an alert.
            hint = hints.certificate if "alert" in reason or "certificate" in reason else hints.address
            return f"no TLS connection: {reason}{_see(hint)}"
        cause = cause.__cause__ or cause.__context__
    return None
