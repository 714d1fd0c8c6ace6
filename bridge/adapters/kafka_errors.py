"""What librdkafka's error codes, by their names, mean here. Pure: no import of the client."""

from __future__ import annotations

from typing import Final

from bridge.errors import BridgeError, FencedError, PoisonError, RetriableError, StartupError

_REFUSED: Final = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "_SSL",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "INVALID_CONFIG",
        "_INVALID_ARG",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_TRANSACTION_TIMEOUT",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",  # a name that no topic can have
        "_UNSUPPORTED_FEATURE",
    }
)
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_POISON: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG"})


def meant(name: str, message: str) -> BridgeError:
    """The one table from librdkafka's error codes to our errors; a code that is not in it may pass."""
    if name in _FENCED:
        return FencedError(message)
    if name in _POISON:
        return PoisonError(message)
    if name in _REFUSED:
        return StartupError(message)
    return RetriableError(message)
