"""Translates failures of Spark, of its JVM and of its Python processes into the bridge's terms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from bridge.errors import BridgeError, is_hopeless

_RAISED: Final = re.compile(
    r"^(?:pyspark\S*: )?(?P<module>(?:bridge|schemas)\.[\w.]+)\.(?P<kind>\w+Error): (?P<message>.*)$", re.MULTILINE
)
_EXCEPTION_LINE: Final = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*: ")
_TRACEBACK: Final = "Traceback (most recent call last)"
_TORN_PLAN: Final = "json.decoder.JSONDecodeError"
_NO_WORKER: Final = re.compile(r"Python worker (?:failed to connect back|exited unexpectedly)")
_HUNG_UP: Final = re.compile(r"^(?:Broken pipe|Connection reset(?: by peer)?|(?:java\.io\.)?EOFException)$")
"""The whole message of Spark's error when a Python process was killed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a query, or its start, failed.

    Attributes:
        message: for the log and the status page, one line.
        is_hopeless: whether no further attempt can help.
        by_spark: whether it is Spark's own failure: not the bridge's, not that of a Python process, and not the lack of
            one.
    """

    message: str
    is_hopeless: bool
    by_spark: bool

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Translate an exception."""
        if isinstance(error, BridgeError):
            return cls(describe_error(error), is_hopeless(type(error)), by_spark=False)
        own = _find_own_error(error)
        if own is None:
            return cls(describe_error(error), is_hopeless=False, by_spark=_is_by_spark(str(error)))
        kind = getattr(import_module(own["module"]), own["kind"], None)
        return cls(own["message"], kind is not None and is_hopeless(kind), by_spark=False)


def describe_error(error: Exception) -> str:
    """Return what happened, in one line: the bridge's own message, or what Java or Python raised."""
    if isinstance(error, BridgeError):
        return "; ".join(str(error).splitlines())
    own = _find_own_error(error)
    if own is not None:
        return own["message"]
    # Py4J puts a colon before the Java exception.
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        del lines[0]
    # The last line of a traceback names the exception; the lines above it name only places.
    raised = [line for line in lines if _EXCEPTION_LINE.match(line)]
    message = (raised[-1:] or lines[:1] or ["no message"])[0]
    hint = " (perhaps one of Spark's Python processes was killed)" if _HUNG_UP.match(message) else ""
    return f"{type(error).__name__}: {message}{hint}"


def _find_own_error(error: Exception) -> re.Match[str] | None:
    # Errors of Python workers arrive as text inside Spark's exceptions; the last one ended the attempt.
    found = list(_RAISED.finditer(str(error)))
    return found[-1] if found else None


def _is_by_spark(text: str) -> bool:
    if _TORN_PLAN in text:
        # Python parses the plan that Spark's checkpoint keeps.
        return True
    if _TRACEBACK in text or _NO_WORKER.search(text):
        return False
    return not any(_HUNG_UP.match(line.strip()) for line in text.splitlines())
