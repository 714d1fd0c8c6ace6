"""librdkafka's properties from the settings. Pure, but for reading secrets; no import of the client."""

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

CLIENTS_LIMIT_BYTES: Final = 1_000_000
"""librdkafka's own `message.max.bytes`, and its largest batch."""
_FEWEST_BYTES: Final = 1_000
"""The least that librdkafka takes for either."""
_MOST_BYTES: Final = 1_000_000_000
"""The most that it takes for `message.max.bytes`."""
QUEUE_KIB: Final = 16 * 1024
"""What is queued is not sent yet, but has to be before the transaction times out: little, for slow brokers."""

OPAQUE_TOKEN_LIFE_S: Final = 300.0
"""After how long a token that does not tell its end is read again."""


def client_properties(settings: KafkaSettings) -> dict[str, Any]:
    """What every client has, secrets and all: never to be logged.

    Raises:
        StartupError: a secret or a file of TLS can't be read or used.
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


def most_record_bytes(settings: KafkaSettings, topics_limit: int | None) -> int:
    """The largest record that is tried, before compression: as the settings say, else as much as the topics take.

    Args:
        settings: may set `message.max.bytes`, trusting in compression.
        topics_limit: the smallest `max.message.bytes` of the topics; None where it is not known.
    """
    own = settings.properties.get("message.max.bytes")
    return int(own) if own is not None else min(_MOST_BYTES, max(_FEWEST_BYTES, topics_limit or CLIENTS_LIMIT_BYTES))


def producer_properties(
    settings: KafkaSettings, transactional_id: str, topics_limit: int | None = None
) -> dict[str, Any]:
    """What the producer of a transactional id has; `topics_limit` as above, errors as `client_properties`."""
    largest_bytes = most_record_bytes(settings, topics_limit)
    queue_kib = int(settings.properties.get("queue.buffering.max.kbytes", QUEUE_KIB))
    return {
        # A topic holds its limit against whole batches, and librdkafka does not split one that was refused.
        "batch.size": max(_FEWEST_BYTES, min(CLIENTS_LIMIT_BYTES, topics_limit or CLIENTS_LIMIT_BYTES)),
        "queue.buffering.max.messages": 200_000,
        **client_properties(settings),
        "message.max.bytes": largest_bytes,
        # A record that is larger than the queue is told from a full queue by nothing, and would be tried for ever.
        "queue.buffering.max.kbytes": max(queue_kib, -(-largest_bytes // 1024)),
        # Of delivered records nothing is to be told: a callback for each would cost more than its delivery.
        "delivery.report.only.error": True,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": settings.transaction_timeout_ms,
        "enable.idempotence": True,
        "acks": "all",
        # Java clients partition like this; another hash would tear co-partitioned topics apart.
        "partitioner": "murmur2_random",
        "compression.type": settings.compression,
        "linger.ms": settings.linger_ms,
    }


def _tls(tls: TlsSettings) -> dict[str, Any]:
    if not tls.enabled:
        return {}
    # librdkafka's words for a bad file name neither the setting nor the file.
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
    read_token(token)  # what is wrong with it is better said here than by a thread of the client's

    def give(_config: str) -> tuple[str, float, str, dict[str, str]]:
        try:
            text, end_s = read_token(token)
        except AccessError as error:
            # The client only says that its callback raised.
            _log.error("%s", error)  # its message says all there is
            raise
        return text, end_s, "", extensions

    return give


def read_token(token: Secret, clock: Callable[[], float] = time.time) -> tuple[str, float]:
    """A token and when it ends, in s since the epoch: as its claim `exp` (RFC 7519) says, else in five minutes.

    Raises:
        AccessError: it is empty, can't be sent, or has ended.
        StartupError: it can't be read.
    """
    text = token.reveal("kafka.sasl.token").strip()
    if not text or not all("!" <= character <= "~" for character in text):
        raise AccessError("kafka.sasl.token: a token is one or more visible ASCII characters")
    end_s = _end_of(text)
    now_s = clock()
    if end_s is None:
        return text, now_s + OPAQUE_TOKEN_LIFE_S
    if end_s <= now_s:
        raise AccessError(
            f"kafka.sasl.token: the token has expired {now_s - end_s:.0f} s ago; whatever writes it has to renew it"
        )
    return text, end_s


def _end_of(token: str) -> float | None:
    """The claim `exp` of a JSON Web Token, or None. Whether the token is genuine is Kafka's business."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    end_s = claims.get("exp") if isinstance(claims, dict) else None
    return float(end_s) if isinstance(end_s, int | float) else None
