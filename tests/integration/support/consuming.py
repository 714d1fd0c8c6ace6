"""Topics as a plain consumer has them: confluent-kafka and its AvroDeserializer, which knows the registry alone."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sandbox.stack.stack import LocalStack


def committed(stack: LocalStack, topic: str) -> list[Message]:
    """Every committed record of a topic, partition by partition or mixed, each partition in its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.kafka,
            "group.id": "tests",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(30)
            assert message is not None, "no end of partition within 30 s"
            error = message.error()
            if error is None:
                found.append(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
        return found
    finally:
        consumer.close()


class Deserializer:
    """Keys and values as confluent-kafka decodes them."""

    def __init__(self, stack: LocalStack) -> None:
        self._deserialize = AvroDeserializer(SchemaRegistryClient({"url": stack.registry}))

    def key(self, message: Message) -> Any:
        return self._of(message, message.key(), MessageField.KEY)

    def value(self, message: Message) -> Any:
        return self._of(message, message.value(), MessageField.VALUE)

    def _of(self, message: Message, body: Any, field: str) -> Any:
        return self._deserialize(body, SerializationContext(str(message.topic()), field))
