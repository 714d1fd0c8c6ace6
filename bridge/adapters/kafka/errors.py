"""What librdkafka's error codes, by their names, mean here. Pure: no import of the client."""

from __future__ import annotations

import re
from typing import Final

from bridge.adapters import tls
from bridge.config.document import KafkaSettings
from bridge.errors import AccessError, BridgeError, FencedError, PoisonError, RetriableError, StartupError

_REFUSED: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "INVALID_CONFIG",
        "_INVALID_ARG",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_TRANSACTION_TIMEOUT",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",  # a name that no topic can have
        "_UNSUPPORTED_FEATURE",
    }
)
_ACCESS: Final = frozenset(
    {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "_SSL", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}
)
_FENCED: Final = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING"})
_POISON: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG"})
_UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
# The last one is how a question about offsets says that no leader is known.
_MOVING: Final = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "_NOENT"})

_OFFERED: Final = re.compile(r"broker's supported mechanisms: ?([\w,-]*)")
"""What a broker says when it does not take the mechanism."""
_TOKENLESS: Final = "Failed to acquire SASL OAUTHBEARER token"
_BY_TLS: Final = re.compile(r"\bSSL\b|certificate", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"\bissuer\b|self[- ]signed|unable to verify|CAfile|CA cert", re.IGNORECASE)
"""What libcurl says of a certificate whose authority it does not know."""


def is_moving(name: str) -> bool:
    """Whether a partition has no leader yet, or a new one that the client has not heard of."""
    return name in _MOVING


def is_poison(name: str) -> bool:
    """Whether Kafka, or its client, takes a record for what can't be stored."""
    return name in _POISON


def is_unknown(name: str) -> bool:
    """Whether a topic does not exist."""
    return name in _UNKNOWN


def is_unknown_or_hidden(name: str) -> bool:
    """Whether a topic does not exist, or we may not know of it."""
    return name in _UNKNOWN or name.endswith("_AUTHORIZATION_FAILED")


def is_access(name: str) -> bool:
    """Whether an error is about a login or a TLS handshake."""
    return name in _ACCESS


def access_error(settings: KafkaSettings, name: str, reason: str) -> AccessError:
    """A failed login or handshake, with the setting to look at."""
    address, flat = ", ".join(settings.bootstrap_servers), " ".join(reason.split())
    if name == "_SSL":
        words = tls.explain_tls_error(flat, settings.tls, "kafka.tls") or f"TLS failed; see kafka.tls ({flat})"
        return AccessError(f"Kafka at {address}: {words}")
    if _TOKENLESS in flat and settings.sasl.token_endpoint_url is not None and _BY_TLS.search(flat):
        setting = "token_endpoint_ca_file" if _AUTHORITY.search(flat) else "token_endpoint_url"
        return AccessError(f"Kafka at {address} gets no token: TLS failed; see kafka.sasl.{setting} ({flat})")
    if (offered := _OFFERED.search(flat)) is not None:
        if offered[1]:
            words = f"does not take {settings.sasl.mechanism} there, only {offered[1]}; see kafka.sasl.mechanism"
        else:
            words = "takes no login there; leave kafka.sasl out, or name the port of a listener that takes one"
        return AccessError(f"Kafka at {address} {words}")
    return AccessError(f"Kafka at {address} refuses the login; see {settings.sasl.credentials} ({flat})")


def is_no_login_reply(reason: str) -> bool:
    """Whether these are the words about a listener that takes no logins.

    Kafka has no others where a connection logs in again within a second of its login, as with a token about to expire.
    """
    offered = _OFFERED.search(" ".join(reason.split()))
    return offered is not None and not offered[1]


def repeated_login_message(settings: KafkaSettings, reason: str) -> str:
    """What they mean where this process has logged in before."""
    return (
        f"Kafka at {', '.join(settings.bootstrap_servers)} refused a login again, as it does within a second of the "
        f"one before, where a token is about to expire; it passes with the next connection ({' '.join(reason.split())})"
    )


def is_transaction_over(name: str) -> bool:
    """Whether an error says that a transaction is another owner's by now, or that there is none."""
    return name in _FENCED or name == "_STATE"


def to_bridge_error(name: str, message: str, needs: str | None = None) -> BridgeError:
    """The one table from librdkafka's error codes to our errors; a code that is not in it may pass.

    Args:
        name: the code's.
        message: what failed where.
        needs: the right that it takes, as Kafka's ACLs name it; told when that is what is missing.
    """
    if needs is not None and name.endswith("_AUTHORIZATION_FAILED"):
        message += f"; the bridge's user needs the right {needs}"
    if name in _FENCED:
        return FencedError(
            f"{message}: another process has opened this transactional id since, or its transaction was open for "
            "longer than kafka.transaction_timeout_ms. What was not committed is published by whoever goes on. If this "
            "comes again and repeated_login_message, a second job with the same `name` is running: stop one of the two"
        )
    if name in _POISON:
        return PoisonError(message)
    if name in _REFUSED:
        return StartupError(message)
    return RetriableError(message)
