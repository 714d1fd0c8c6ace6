"""What becomes of librdkafka's errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.adapters.kafka import _meaning
from bridge.errors import BridgeError, FencedError, PoisonError, RetriableError, StartupError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._FENCED, FencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, FencedError),
        (KafkaError.MSG_SIZE_TOO_LARGE, PoisonError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, StartupError),
        (KafkaError._TRANSPORT, RetriableError),
    ],
)
def test_errors_by_what_is_done_about_them(code: int, kind: type[BridgeError]) -> None:
    """Each code becomes the class that says who tries again, with the server and the request in its words."""
    with pytest.raises(kind, match=r"Kafka at broker:9092: commit of job\.ks\.t\.0 failed"):  # noqa: SIM117
        with _meaning("broker:9092", "commit of job.ks.t.0"):
            raise KafkaException(KafkaError(code))


def test_fenced_says_what_to_look_for() -> None:
    """Whoever runs a job twice is told so by the one that is fenced."""
    with pytest.raises(FencedError, match="a second job with the same `name` is running: stop one of the two"):  # noqa: SIM117
        with _meaning("broker:9092", "commit"):
            raise KafkaException(KafkaError(KafkaError._FENCED))
