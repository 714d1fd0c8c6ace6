"""How topics are made where others make them, too: a stand-in for the client alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from bridge.adapters import kafka
from bridge.adapters.kafka import KafkaAdmin
from bridge.config import KafkaSettings


def test_topic_that_another_job_makes_just_now_grows_all_the_same() -> None:
    """It was not there, could not be made, and has one partition of four."""
    admin = KafkaAdmin.__new__(KafkaAdmin)
    partitions = {"orders": 0}

    def lost(_timeout: float) -> None:
        partitions["orders"] = 1
        raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))

    def grown(new: list[Any]) -> dict[str, Any]:
        partitions["orders"] = new[0].new_total_count
        return {"orders": SimpleNamespace(result=lambda _timeout: None)}

    stand_in: Any = admin
    kafka._Client.__init__(stand_in, KafkaSettings(bootstrap_servers=("a:1",)))
    stand_in.partitions = partitions.__getitem__
    stand_in._client = SimpleNamespace(
        create_topics=lambda *_, **__: {"orders": SimpleNamespace(result=lost)}, create_partitions=grown
    )
    assert admin.ensure_topic("orders", 4, {}, grow=True)
    assert partitions == {"orders": 4}
