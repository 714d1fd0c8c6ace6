"""From encoded changes to Kafka records: frames, headers, partitions, and dead letters."""

from __future__ import annotations

import json
import time

from bridge.adapters.connect import call_registry_while_running
from bridge.adapters.registry import registration
from bridge.config.document import BridgeConfig
from bridge.encoding.dead_letter import rejected_record_letter, shorter_letters
from bridge.encoding.group_encoder import POSITION_HEADER, EncodedChange, EncodedRun
from bridge.engine import process_cache
from bridge.errors import PoisonError, StartupError, TooLargeError
from bridge.model.position import Position
from bridge.monitoring.counters import tally
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.protocol import LaneTask
from bridge.reading.schema_change import Changes
from bridge.reading.table_capture import Schemas
from schemas.errors import IncompatibleSchemaError
from schemas.wire import framing
from schemas.wire.subjects import Part


class LaneOutput:
    """Frames the changes of one lane's part of a micro-batch, and hands them to its publisher.

    Attributes:
        poison: why the first dead letter is one; None so far.
    """

    def __init__(self, config: BridgeConfig, task: LaneTask, publisher: LanePublisher) -> None:
        """Say whose; neither Kafka nor the registry is asked yet."""
        self._config = config
        self._task = task
        self._publisher = publisher
        table = config.table(task.keyspace, task.table)
        self._topic = config.topic_of(table)
        self._dead_letters = config.dead_letter_topic_of(table)
        self._has_position = "position" in config.output_of(table).headers
        self._schemas: Schemas | None = None
        self._frames: tuple[bytes, bytes] | None = None
        self._refusal: str | None = None
        self._partitions = 0
        self._part = 0
        self.poison: str | None = None

    def turn_to(self, part: int, schemas: Schemas) -> None:
        """The changes that follow are of the micro-batch's part `part` and under these schemas."""
        if part != self._part:
            self._publisher.enter(part)
            self._part = part
        if schemas != self._schemas:
            self._schemas, self._frames, self._refusal = schemas, None, None

    def take(self, changes: Changes) -> None:
        """Publish changes, tombstones and dead letters.

        Raises:
            PoisonError: a record is over Kafka's limit, and there is no topic for dead letters.
            StartupError: the registry refuses a schema, and there is no topic for dead letters.
            BridgeError: of the registry or of Kafka.
        """
        for change in changes:
            if isinstance(change, EncodedRun):
                self._publish_run(change)
            elif change.is_dead_letter:
                assert change.value is not None
                self._bury(change.value, change.position)
            else:
                self._publish(change)

    def _publish(self, change: EncodedChange) -> None:
        frames = self._frames or self._look_up()
        if frames is None:
            self._bury_refused(change)
            return
        headers = {POSITION_HEADER: change.position} if self._has_position else {}
        if change.headers is not None:
            headers |= {name: one.encode() for name, one in json.loads(change.headers).items()}
        partition = None if change.placement is None else self._partition(change.placement)
        framed = None if change.value is None else frames[1] + change.value
        try:
            self._publisher.publish(self._topic, frames[0] + change.key, framed, change.position, headers, partition)
        except TooLargeError as error:
            self._bury_too_large(change.key, change.value, change.position, error)

    def _publish_run(self, run: EncodedRun) -> None:
        frames = self._frames or self._look_up()
        if frames is None:
            for change in run.changes():
                self._bury_refused(change)
            return
        self._publisher.publish_run(
            self._topic,
            frames,
            run,
            POSITION_HEADER if self._has_position else None,
            lambda at, error: self._bury_too_large(*run.records[at][1:], error),
        )

    def _bury_refused(self, change: EncodedChange) -> None:
        assert self._refusal is not None
        self._bury(self._letter(change.key, change.value, change.position, self._refusal), change.position)

    def _bury_too_large(self, key: bytes, value: bytes | None, position: bytes, error: TooLargeError) -> None:
        words = f"{self._task.keyspace}.{self._task.table}: {Position.from_bytes(position).describe()}: {error}"
        if self._dead_letters is None:
            raise PoisonError(f"{words}, or set publishing.dead_letter_topic") from error
        self._bury(self._letter(key, value, position, words), position)

    def _letter(self, key: bytes, value: bytes | None, position: bytes, why: str) -> bytes:
        assert self._schemas is not None
        table, schemas = (self._task.keyspace, self._task.table), (self._schemas.key, self._schemas.value)
        return rejected_record_letter(table, position, key, value, schemas, why)

    def _bury(self, letter: bytes, position: bytes) -> None:
        assert self._dead_letters is not None
        if self.poison is None:
            self.poison = json.loads(letter)["error"]
        headers = {POSITION_HEADER: position}
        shorter = shorter_letters(letter)
        while True:
            try:
                self._publisher.publish(self._dead_letters, None, letter, position, headers, None)
            except TooLargeError:
                if (less := next(shorter, None)) is None:
                    raise
                letter = less
            else:
                return

    def _look_up(self) -> tuple[bytes, bytes] | None:
        """What stands before keys and values; None where the registry refuses the schemas."""
        # With the first change: a lane that has none need not reach the registry.
        if self._frames is None and self._refusal is None:
            assert self._schemas is not None
            try:
                self._frames = self._header("key", self._schemas.key), self._header("value", self._schemas.value)
            except StartupError as error:
                if self._dead_letters is None or not isinstance(error.__cause__, IncompatibleSchemaError):
                    raise
                self._refusal = str(error)
        return self._frames

    def _header(self, part: Part, avro_schema: str) -> bytes:
        settings, registry = self._config.registry, process_cache.registry(self._config)
        calls, asked_s, failed = registry.calls, time.perf_counter(), True
        try:
            schema_id = call_registry_while_running(
                lambda: registration.schema_id(registry, settings, self._topic, part, avro_schema)
            )
            failed = False
        finally:
            if registry.calls > calls:
                task, took_s = self._task, time.perf_counter() - asked_s
                tally.registry(f"{task.keyspace}.{task.table}", task.lane, took_s, failed=failed)
        return framing.header(schema_id)

    def _partition(self, placement: int) -> int:
        if not self._partitions:
            self._partitions = process_cache.topic_sizes(self._config).of(self._topic)
        return placement % self._partitions
