"""Translates the error codes of librdkafka, by their names, into the bridge's errors. Imports no client."""

from __future__ import annotations

import re
from typing import Final

from bridge.adapters import tls
from bridge.config.document import KafkaSettings
from bridge.errors import AccessError, BridgeError, FencedError, RetriableError, StartupError, UnpublishableError

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
_UNPUBLISHABLE: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG"})
_UNKNOWN: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"})
# A request for offsets fails with the last one if no leader is known.
_MOVING: Final = frozenset({"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "_NOENT"})

_OFFERED: Final = re.compile(r"broker's supported mechanisms: ?([\w,-]*)")
"""A broker's answer if it does not accept the mechanism."""
_TOKENLESS: Final = "Failed to acquire SASL OAUTHBEARER token"
_BY_TLS: Final = re.compile(r"\bSSL\b|certificate", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"\bissuer\b|self[- ]signed|unable to verify|CAfile|CA cert", re.IGNORECASE)
"""libcurl's messages for a certificate of an unknown authority."""


def is_moving(name: str) -> bool:
    """Whether a partition has no leader, or a new leader that the client does not know yet."""
    return name in _MOVING


def is_unpublishable(name: str) -> bool:
    """Whether Kafka or its client can't store a record: it is too large or malformed."""
    return name in _UNPUBLISHABLE


def is_unknown(name: str) -> bool:
    """Whether a topic does not exist."""
    return name in _UNKNOWN


def is_unknown_or_hidden(name: str) -> bool:
    """Whether a topic does not exist, or our user lacks the right to see it."""
    return name in _UNKNOWN or name.endswith("_AUTHORIZATION_FAILED")


def is_access(name: str) -> bool:
    """Whether an error is about a login or a TLS handshake."""
    return name in _ACCESS


def access_error(settings: KafkaSettings, name: str, reason: str) -> AccessError:
    """The error for a failed login or TLS handshake; its message names the setting at fault.

    Args:
        settings: how the client reaches Kafka.
        name: name of the error code.
        reason: librdkafka's message.
    """
    address, flat = ", ".join(settings.bootstrap_servers), " ".join(reason.split())
    if name == "_SSL":
        problem = tls.explain_tls_error(flat, settings.tls, "kafka.tls") or f"TLS failed; see kafka.tls ({flat})"
        return AccessError(f"Kafka at {address}: {problem}")
    if _TOKENLESS in flat and settings.sasl.token_endpoint_url is not None and _BY_TLS.search(flat):
        setting = "token_endpoint_ca_file" if _AUTHORITY.search(flat) else "token_endpoint_url"
        return AccessError(f"Kafka at {address} gets no token: TLS failed; see kafka.sasl.{setting} ({flat})")
    if (offered := _OFFERED.search(flat)) is not None:
        if offered[1]:
            problem = f"does not take {settings.sasl.mechanism} there, only {offered[1]}; see kafka.sasl.mechanism"
        else:
            problem = "takes no login there; leave kafka.sasl out, or name the port of a listener that takes one"
        return AccessError(f"Kafka at {address} {problem}")
    return AccessError(f"Kafka at {address} refuses the login; see {settings.sasl.credentials} ({flat})")


def is_no_login_reply(reason: str) -> bool:
    """Whether a broker answered that its listener accepts no logins.

    Kafka gives the same answer if a connection logs in again within a second of its login, for example with a token
    that is about to expire.
    """
    offered = _OFFERED.search(" ".join(reason.split()))
    return offered is not None and not offered[1]


def repeated_login_message(settings: KafkaSettings, reason: str) -> str:
    """The message for a listener that refuses logins although it has accepted one of this process."""
    return (
        f"Kafka at {', '.join(settings.bootstrap_servers)} refused a second login within a second of the first, which "
        f"it does if a token is about to expire; the next connection succeeds ({' '.join(reason.split())})"
    )


def is_transaction_over(name: str) -> bool:
    """Whether a transaction belongs to another owner of the transactional id, or does not exist."""
    return name in _FENCED or name == "_STATE"


def to_bridge_error(name: str, message: str, needs: str | None = None) -> BridgeError:
    """The bridge's error for an error code of librdkafka; RetriableError for an unknown code.

    Args:
        name: name of the code.
        message: what failed, and where.
        needs: the right that the call needs, as Kafka's ACLs name it; added to the message if that right is missing.
    """
    if needs is not None and name.endswith("_AUTHORIZATION_FAILED"):
        message += f"; the bridge's user needs the right {needs}"
    if name in _FENCED:
        return FencedError(
            f"{message}: another process has opened this transactional id since, or its transaction was open for "
            "longer than kafka.transaction_timeout_ms. The id's next owner publishes what was not committed. If this "
            "happens again and again, a second job with the same `name` is running: stop one of the two"
        )
    if name in _UNPUBLISHABLE:
        return UnpublishableError(message)
    if name in _REFUSED:
        return StartupError(message)
    return RetriableError(message)
