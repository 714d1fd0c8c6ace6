"""Turns a lane's encoded changes into Kafka records: frames, headers and partitions."""

from __future__ import annotations

import json
from collections.abc import Callable

from bridge.config.document import BridgeConfig
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedChange, EncodedRun
from bridge.engine.refused_records import RefusedRecords
from bridge.errors import StartupError, TooLargeError
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.reading.schema_change import Changes
from bridge.reading.table_capture import Schemas
from schemas.errors import IncompatibleSchemaError
from schemas.wire.subjects import Part

FrameHeader = Callable[[str, Part, str], bytes]
"""Topic, key or value, Avro schema -> the bytes that precede each record of that schema."""


class LaneOutput:
    """Frames the changes of one lane's part of a micro-batch, and passes them to the lane's publisher."""

    def __init__(
        self,
        config: BridgeConfig,
        task: LaneTask,
        publisher: LanePublisher,
        frame_header: FrameHeader,
        partition_count: Callable[[str], int],
    ) -> None:
        """Prepare; this asks neither Kafka nor the registry.

        Args:
            config: of the job.
            task: the lane's part of the micro-batch.
            publisher: of the lane.
            frame_header: gives a schema's frame header; called with the first change of a schema.
            partition_count: gives a topic's number of partitions; called at most once.
        """
        self._task = task
        self._publisher = publisher
        self._frame_header = frame_header
        self._partition_count = partition_count
        table = config.table(task.keyspace, task.table)
        self._topic = config.topic_of(table)
        self._refused = RefusedRecords(task, publisher, config.dead_letter_topic_of(table))
        self._has_position = "position" in config.output_of(table).headers
        self._schemas: Schemas | None = None
        self._frames: tuple[bytes, bytes] | None = None
        self._refusal: str | None = None
        self._partitions = 0
        self._part = 0

    @property
    def dead_letter_reason(self) -> str | None:
        """The error in the first dead letter; None while there is none."""
        return self._refused.first_reason

    def switch_to(self, part: int, schemas: Schemas) -> None:
        """Expect changes of the micro-batch's part number `part`, encoded under `schemas`."""
        if part != self._part:
            self._publisher.enter(part)
            self._part = part
        if schemas != self._schemas:
            self._schemas, self._frames, self._refusal = schemas, None, None

    def publish(self, changes: Changes) -> None:
        """Publish changes, tombstones and dead letters.

        Raises:
            UnpublishableError: a broker refuses a record; or one exceeds Kafka's limit, and dead letters are off.
            StartupError: the registry refuses a schema, and there is no dead-letter topic.
            BridgeError: the registry or Kafka fails.
        """
        for change in changes:
            if isinstance(change, EncodedRun):
                self._publish_run(change)
            elif change.is_dead_letter:
                assert change.value is not None
                self._refused.publish_letter(change.value, change.position)
            else:
                self._publish_change(change)

    def _publish_change(self, change: EncodedChange) -> None:
        frames = self._frames or self._find_frames()
        if frames is None:
            self._replace_unregistered(change)
            return
        headers = {POSITION_HEADER: change.position} if self._has_position else {}
        if change.headers is not None:
            headers |= {name: one.encode() for name, one in json.loads(change.headers).items()}
        partition = None if change.placement is None else self._partition(change.placement)
        framed = None if change.value is None else frames[1] + change.value
        try:
            self._publisher.publish(self._topic, frames[0] + change.key, framed, change.position, headers, partition)
        except TooLargeError as error:
            self._replace_too_large(change.key, change.value, change.position, error)

    def _publish_run(self, run: EncodedRun) -> None:
        frames = self._frames or self._find_frames()
        if frames is None:
            for change in run.changes():
                self._replace_unregistered(change)
            return
        self._publisher.publish_run(
            self._topic,
            frames,
            run,
            POSITION_HEADER if self._has_position else None,
            lambda at, error: self._replace_too_large(*run.records[at][1:], error),
        )

    def _replace_unregistered(self, change: EncodedChange) -> None:
        assert self._schemas is not None
        assert self._refusal is not None
        self._refused.replace_unregistered(change, self._schemas, self._refusal)

    def _replace_too_large(self, key: bytes, value: bytes | None, position: bytes, error: TooLargeError) -> None:
        assert self._schemas is not None
        self._refused.replace_too_large(key, value, position, self._schemas, error)

    def _find_frames(self) -> tuple[bytes, bytes] | None:
        """Return the frame headers of keys and values; None when the registry refuses a schema."""
        # Only with the first change, so that a lane without changes does not depend on the registry.
        if self._frames is None and self._refusal is None:
            assert self._schemas is not None
            try:
                self._frames = (
                    self._frame_header(self._topic, "key", self._schemas.key),
                    self._frame_header(self._topic, "value", self._schemas.value),
                )
            except StartupError as error:
                if self._refused.topic is None or not isinstance(error.__cause__, IncompatibleSchemaError):
                    raise
                self._refusal = str(error)
        return self._frames

    def _partition(self, placement: int) -> int:
        if not self._partitions:
            self._partitions = self._partition_count(self._topic)
        return placement % self._partitions
