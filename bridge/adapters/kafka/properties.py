"""Makes librdkafka's properties from the settings. Reads secrets, but imports no client."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

from bridge.adapters.tls import client_context
from bridge.config.document import KafkaSettings
from bridge.config.sasl import SaslSettings
from bridge.config.secret import Secret
from bridge.config.tls import TlsSettings
from bridge.errors import AccessError

_log = logging.getLogger(__name__)

_CLIENT_LIMIT_BYTES: Final = 1_000_000
"""librdkafka's default for `message.max.bytes`, and its largest batch."""
_MIN_BYTES: Final = 1_000
"""The smallest value that librdkafka accepts for either."""
_MAX_BYTES: Final = 1_000_000_000
"""The largest value that librdkafka accepts for `message.max.bytes`."""
QUEUE_KIB: Final = 16 * 1024
"""The producer's queue: small, because slow brokers must take all of it before the transaction times out."""

OPAQUE_TOKEN_LIFE_S: Final = 300.0
"""After this many seconds a token without an expiry time is read again."""


def client_properties(settings: KafkaSettings) -> dict[str, Any]:
    """The properties of every client; they contain secrets and must not be logged.

    Raises:
        StartupError: a secret or a TLS file can't be read or used.
    """
    protocol = ("SASL_" if settings.sasl.mechanism else "") + ("SSL" if settings.tls.enabled else "PLAINTEXT")
    return {
        "client.id": "scylla-cdc-bridge",
        "reconnect.backoff.max.ms": 2000,
        "logger": logging.getLogger("librdkafka"),
        **settings.properties,
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "security.protocol": protocol,
        **_tls(settings.tls),
        **_sasl(settings.sasl),
    }


def max_record_bytes(settings: KafkaSettings, topics_limit: int | None) -> int:
    """The largest record that the producer accepts, in bytes before compression.

    Args:
        settings: may set `message.max.bytes`, also above the topics' limit, because compression makes records smaller.
        topics_limit: the smallest `max.message.bytes` of the topics; None if it is not known.
    """
    own = settings.properties.get("message.max.bytes")
    return int(own) if own is not None else min(_MAX_BYTES, max(_MIN_BYTES, topics_limit or _CLIENT_LIMIT_BYTES))


def producer_properties(
    settings: KafkaSettings, transactional_id: str, topics_limit: int | None = None
) -> dict[str, Any]:
    """The properties of the producer of a transactional id; they contain secrets and must not be logged.

    Args:
        settings: how to reach Kafka.
        transactional_id: the id.
        topics_limit: the smallest `max.message.bytes`, in bytes, of the topics; None if it is not known.

    Raises:
        StartupError: a secret or a TLS file can't be read or used.
    """
    largest_bytes = max_record_bytes(settings, topics_limit)
    queue_kib = int(settings.properties.get("queue.buffering.max.kbytes", QUEUE_KIB))
    return {
        # A topic's limit applies to whole batches, and librdkafka does not split a refused batch.
        "batch.size": max(_MIN_BYTES, min(_CLIENT_LIMIT_BYTES, topics_limit or _CLIENT_LIMIT_BYTES)),
        "queue.buffering.max.messages": 200_000,
        **client_properties(settings),
        "message.max.bytes": largest_bytes,
        # librdkafka reports a record larger than the queue as a full queue; the producer would retry it for ever.
        "queue.buffering.max.kbytes": max(queue_kib, -(-largest_bytes // 1024)),
        # Only failures are reported: a callback for each delivered record would cost more than its delivery.
        "delivery.report.only.error": True,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "enable.idempotence": True,
        "acks": "all",
        # The hash of the Java clients; with another hash, co-partitioned topics would not match.
        "partitioner": "murmur2_random",
        "compression.type": settings.compression,
        "linger.ms": settings.linger_ms,
    }


def _tls(tls: TlsSettings) -> dict[str, Any]:
    if not tls.enabled:
        return {}
    # Check the files here: librdkafka's error for a bad file names neither the setting nor the file.
    client_context(tls, "kafka.tls")
    found: dict[str, Any] = {
        "enable.ssl.certificate.verification": True,
        "ssl.endpoint.identification.algorithm": "https",
    }
    if tls.ca_file is not None:
        found["ssl.ca.location"] = str(tls.ca_file)
    if tls.client_certificate_file is not None:
        found["ssl.certificate.location"] = str(tls.client_certificate_file)
        found["ssl.key.location"] = str(tls.client_key_file or tls.client_certificate_file)
        if tls.client_key_password is not None:
            found["ssl.key.password"] = tls.client_key_password.reveal("kafka.tls.client_key_password")
    return found


def _sasl(sasl: SaslSettings) -> dict[str, Any]:
    if sasl.mechanism is None:
        return {}
    found: dict[str, Any] = {"sasl.mechanism": sasl.mechanism}
    extensions = {name: str(value) for name, value in sasl.extensions.items()}
    if sasl.token is not None:
        found["oauth_cb"] = _token_source(sasl.token, extensions)
    elif sasl.token_endpoint_url is not None:
        assert sasl.client_secret is not None
        found |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": str(sasl.token_endpoint_url),
            "sasl.oauthbearer.client.id": sasl.client_id,
            "sasl.oauthbearer.client.secret": sasl.client_secret.reveal("kafka.sasl.client_secret"),
        }
        if sasl.scope is not None:
            found["sasl.oauthbearer.scope"] = sasl.scope
        if extensions:
            found["sasl.oauthbearer.extensions"] = ",".join(f"{name}={value}" for name, value in extensions.items())
        if sasl.token_endpoint_ca_file is not None:
            found["https.ca.location"] = str(sasl.token_endpoint_ca_file)
    else:
        assert sasl.password is not None
        found |= {"sasl.username": sasl.username, "sasl.password": sasl.password.reveal("kafka.sasl.password")}
    return found


def _token_source(token: Secret, extensions: dict[str, str]) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    # If the token can't be used, fail here: an error in the client's thread is harder to understand.
    read_token(token)

    def provide(_config: str) -> tuple[str, float, str, dict[str, str]]:
        try:
            text, end_s = read_token(token)
        except AccessError as error:
            # Log it here: the client only reports that its callback raised an error.
            _log.error("%s", error)  # the message is complete; a traceback adds nothing
            raise
        return text, end_s, "", extensions

    return provide


def read_token(token: Secret, clock: Callable[[], float] = time.time) -> tuple[str, float]:
    """Read a bearer token.

    Args:
        token: where the token is.
        clock: seconds since the epoch.

    Returns:
        The token, and its expiry in s since the epoch: its claim `exp` (RFC 7519), or five minutes from now without it.

    Raises:
        AccessError: the token is empty, contains other characters than visible ASCII, or has expired.
        StartupError: the token can't be read.
    """
    text = token.reveal("kafka.sasl.token").strip()
    if not text or not all("!" <= character <= "~" for character in text):
        raise AccessError("kafka.sasl.token: a token is one or more visible ASCII characters")
    end_s = _expiry_s(text)
    now_s = clock()
    if end_s is None:
        return text, now_s + OPAQUE_TOKEN_LIFE_S
    if end_s <= now_s:
        raise AccessError(
            f"kafka.sasl.token: the token has expired {now_s - end_s:.0f} s ago; whatever writes it has to renew it"
        )
    return text, end_s


def _expiry_s(token: str) -> float | None:
    """The claim `exp` of a JSON Web Token; None for another token. Kafka verifies the token's signature."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    end_s = claims.get("exp") if isinstance(claims, dict) else None
    return float(end_s) if isinstance(end_s, int | float) else None
