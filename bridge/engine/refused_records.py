"""What happens to a record that Kafka or the schema registry refuses.

| who refuses | when | what happens |
|---|---|---|
| the Kafka client | the record is over the limit of its topic | a dead letter takes its place in the same transaction |
| the schema registry | a schema is not compatible with its subject | a dead letter takes the place of each change |
| a broker | the batch is already sent | the transaction is aborted and the table stops, with `UnpublishableError` |

Without a dead-letter topic, the first two stop the table as well. A broker's refusal always does: it names no record,
and the transaction that would hold a dead letter is lost (`bridge.adapters.kafka.client_events.DeliveryErrors`).
"""

from __future__ import annotations

import json

from bridge.encoding.dead_letter import rejected_record_letter, shorter_letters
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedChange
from bridge.errors import TooLargeError, UnpublishableError
from bridge.model.position import Position
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.reading.table_capture import Schemas


class RefusedRecords:
    """Publishes dead letters in place of what is refused, in the lane's own transactions.

    Attributes:
        topic: the dead-letter topic; None if there is none.
        first_reason: the error in the first dead letter; None while there is none.
    """

    def __init__(self, task: LaneTask, publisher: LanePublisher, topic: str | None) -> None:
        """Prepare; this asks Kafka nothing.

        Args:
            task: the lane's part of the micro-batch.
            publisher: of the lane.
            topic: the dead-letter topic; None if there is none.
        """
        self.topic = topic
        self.first_reason: str | None = None
        self._task = task
        self._publisher = publisher

    def replace_unregistered(self, change: EncodedChange, schemas: Schemas, reason: str) -> None:
        """Publish a dead letter in place of a change whose schema the registry refuses, for `reason`."""
        self.publish_letter(self._letter(change.key, change.value, change.position, schemas, reason), change.position)

    def replace_too_large(
        self, key: bytes, value: bytes | None, position: bytes, schemas: Schemas, error: TooLargeError
    ) -> None:
        """Publish a dead letter in place of a change whose record is over Kafka's limit.

        Raises:
            UnpublishableError: there is no dead-letter topic.
        """
        reason = f"{self._task.table_name}: {Position.from_bytes(position).describe()}: {error}"
        if self.topic is None:
            raise UnpublishableError(f"{reason}, or set publishing.dead_letter_topic") from error
        self.publish_letter(self._letter(key, value, position, schemas, reason), position)

    def publish_letter(self, letter: bytes, position: bytes) -> None:
        """Publish a dead letter (JSON text), shortened until Kafka's limit permits it.

        Raises:
            TooLargeError: even its shortest form is over the limit.
        """
        assert self.topic is not None
        if self.first_reason is None:
            self.first_reason = json.loads(letter)["error"]
        headers = {POSITION_HEADER: position}
        shorter = shorter_letters(letter)
        while True:
            try:
                self._publisher.publish(self.topic, None, letter, position, headers, None)
            except TooLargeError:
                if (less := next(shorter, None)) is None:
                    raise
                letter = less
            else:
                return

    def _letter(self, key: bytes, value: bytes | None, position: bytes, schemas: Schemas, reason: str) -> bytes:
        table = (self._task.keyspace, self._task.table)
        return rejected_record_letter(table, position, key, value, (schemas.key, schemas.value), reason)
