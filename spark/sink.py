"""The sink `scylla-cdc-kafka`: takes the source's rows, each partition a lane, and publishes them transactionally."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bridge import activity, logs, registration
from bridge.config import BridgeConfig
from bridge.connections import asking_registry_midway
from bridge.control import Begin, Schemas, end_from_json
from bridge.dead_letters import refused_change, without_bodies
from bridge.encoding import POSITION_HEADER, EncodedRun
from bridge.errors import BridgeError, FencedError, PoisonError, StartupError, TooLargeError
from bridge.lane_publisher import LanePublisher
from bridge.model.times import micros_of
from bridge.monitoring import mailbox
from bridge.monitoring.figures import Counted, LaneFigures, tally
from bridge.monitoring.mailbox import BatchReport, LaneReached
from bridge.publishing import LaneTask
from schemas import wire_format
from schemas.errors import IncompatibleSchemaError
from schemas.subjects import Part
from spark import rows, worker

_log = logging.getLogger(__name__)

CONFIG_OPTION: Final = "config"
MAILBOX_OPTION: Final = "mailbox"
ACTIVITY_OPTION: Final = "activity"
OWNER_OPTION: Final = "owner"


@dataclass(frozen=True, slots=True)
class LaneWritten(WriterCommitMessage):
    """What a lane's task did; what counts was committed to Kafka already.

    Attributes:
        task: None when the partition was empty.
        counted: what the task's processes have counted since their last report.
        poison: why the first of the task's dead letters is one; None without any.
    """

    task: LaneTask | None
    counted: Counted
    poison: str | None = None


class KafkaLanesSink(DataSource):
    """The registered sink.

    Its option `config` is a `BridgeConfig` as JSON; `owner` is who has taken the table's lanes over (see
    `bridge.lane_publisher`); `mailbox`, if set, is where reports of what was done go, and `activity` where the planner
    is told of changes (`bridge.activity`).
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._config = BridgeConfig.model_validate_json(options[CONFIG_OPTION])
        self._owner = options[OWNER_OPTION]
        self._mailbox = options.get(MAILBOX_OPTION)
        self._activity = options.get(ACTIVITY_OPTION)

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "scylla-cdc-kafka"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a query; called once a micro-batch."""
        return KafkaLanesWriter(self._config, self._owner, self._mailbox, self._activity)


class KafkaLanesWriter(DataSourceStreamArrowWriter):
    """Writes each partition in Kafka transactions of its lane.

    Nothing is left for the driver to commit: only the producer that began a transaction can, and the lane's cursor in
    Kafka, not Spark's verdict on the task, says what was published.
    """

    def __init__(self, config: BridgeConfig, owner: str, mailbox: str | None, activity: str | None = None) -> None:
        self._config = config
        self._owner = owner
        self._mailbox = mailbox
        self._activity = activity

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report what was done; there is nothing to commit."""
        self._report(messages, committed=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Report what was done by those tasks that succeeded; there is nothing to undo."""
        self._report(messages, committed=False)

    def _report(self, messages: list[WriterCommitMessage | None], *, committed: bool) -> None:
        logs.ensure()
        written = [message for message in messages if isinstance(message, LaneWritten)]
        tasks = [one.task for one in written if one.task is not None]
        counted = [one for message in written for one in message.counted]
        if self._activity is not None:
            tables = {_table(at) for at in tasks}
            if any(figures.log_rows for table, _, figures in counted if table in tables):
                activity.note(self._activity)
        for message in written:
            self._warn_of_dead_letters(message)
        if self._mailbox is not None:
            reached = tuple(LaneReached(_table(at), at.lane, at.batch.next) for at in tasks)
            mailbox.send(self._mailbox, BatchReport(committed, reached, counted))

    def _warn_of_dead_letters(self, written: LaneWritten) -> None:
        task, poison = written.task, written.poison
        if task is None or poison is None:
            return
        topic = self._config.dead_letter_topic_of(self._config.table(task.keyspace, task.table))
        _log.warning("%s: changes became dead letters in topic %s; the first: %s", _table(task), topic, poison)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish one lane's part of a micro-batch; see `bridge.lane_publisher`."""
        logs.ensure()
        worker.settle_memory()
        batches = _with_rows(iterator)
        first = next(batches, None)
        if first is None:
            # A query's very first micro-batch may have no window: Spark then writes one empty partition. Should rows
            # have been filtered away instead, the lane's cursor stays and the next window is refused as a gap.
            return LaneWritten(None, tally.take())
        begin = _begin(first)
        task = begin.task
        place = (self._config, task.keyspace, task.table, task.lane)
        publisher = worker.publisher(*place, self._owner)
        try:
            publisher.start(task, fresh=worker.is_retry())
            poison = self._publish(publisher, begin, first.slice(1), batches)
        except BaseException as error:
            if isinstance(error, FencedError):
                tally.add(_table(task), task.lane, LaneFigures(fencings=1))
            # Also for a killed task: whatever happened, only Kafka knows how far the transaction got.
            worker.drop_publisher(*place)
            worker.drop_topic_sizes(self._config)
            raise
        return LaneWritten(task, tally.take(), poison)

    def _publish(
        self, publisher: LanePublisher, begin: Begin, rest: pa.RecordBatch, batches: Iterator[pa.RecordBatch]
    ) -> str | None:
        lane = LaneRows(self._config, begin, publisher)
        for batch in _chain(rest, batches):
            lane.take(batch)
        if not lane.ended:
            raise BridgeError(f"{begin.task}: the input partition ends without its end row; nothing of it is committed")
        publisher.finish()
        return lane.poison


class LaneRows:
    """Frames one lane's rows, and hands them to its publisher.

    Attributes:
        ended: whether the end row has come.
        poison: why the first dead letter is one; None so far.
    """

    def __init__(self, config: BridgeConfig, begin: Begin, publisher: LanePublisher) -> None:
        self._config = config
        self._task = begin.task
        self._publisher = publisher
        self._schemas = begin.schemas
        table = config.table(begin.task.keyspace, begin.task.table)
        self._topic = config.topic_of(table)
        self._dead_letters = config.dead_letter_topic_of(table)
        self._has_position = "position" in config.output_of(table).headers
        self._key_header = self._value_header = b""
        self._refusal: str | None = None
        self._partitions = 0
        self._part = 0
        self.ended = False
        self.poison: str | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """Publish what a batch holds, and do as its control rows say."""
        kinds, values, texts = (batch.column(index).to_pylist() for index in (0, 2, 5))
        for kind, value, text in zip(kinds, values, texts, strict=True):
            if kind == rows.BLOCK:
                self._take_block(rows.block_of(value))
            elif kind == rows.SCHEMA:
                self.switch(Schemas.from_json(text))
            elif kind == rows.PART:
                self._part += 1
                self._publisher.enter(self._part)
            elif kind != rows.END:
                raise BridgeError(f"the sink takes the source's rows with `control` only; kind {kind} is none of these")
            else:
                self.ended = True
                tally.absorb(end_from_json(text))

    def _take_block(self, block: EncodedRun | rows.Columns) -> None:
        if isinstance(block, EncodedRun):
            self.publish_run(block)
            return
        for key, value, position, _last, text, placement, is_dead_letter in zip(*block, strict=True):
            if is_dead_letter:
                self.bury(value, position)
            else:
                self.publish(key, value, position, text, placement)

    def switch(self, schemas: Schemas) -> None:
        """Go on under other schemas."""
        self._schemas = schemas
        self._key_header = self._value_header = b""
        self._refusal = None

    def publish(
        self, key: bytes, value: bytes | None, position: bytes, text: str | None, placement: int | None
    ) -> None:
        """Publish a change or a tombstone."""
        if not self._key_header and self._refusal is None:
            self._look_up()
        if self._refusal is not None:
            table, schemas = (self._task.keyspace, self._task.table), (self._schemas.key, self._schemas.value)
            self.bury(refused_change(table, position, key, value, schemas, self._refusal), position)
            return
        headers = [(POSITION_HEADER, position)] if self._has_position else []
        if text is not None:
            headers += [(name, one.encode()) for name, one in json.loads(text).items()]
        partition = None if placement is None else self._partition(placement)
        framed = None if value is None else self._value_header + value
        try:
            self._publisher.publish(self._topic, self._key_header + key, framed, position, headers, partition)
        except TooLargeError as error:
            self._bury_too_large(key, value, position, error)

    def _bury_too_large(self, key: bytes, value: bytes | None, position: bytes, error: TooLargeError) -> None:
        words = f"{_table(self._task)}: {_in_words(position)}: {error}"
        if self._dead_letters is None:
            raise PoisonError(f"{words}, or set publishing.dead_letter_topic") from error
        table, schemas = (self._task.keyspace, self._task.table), (self._schemas.key, self._schemas.value)
        self.bury(refused_change(table, position, key, value, schemas, words), position)

    def publish_run(self, run: EncodedRun) -> None:
        """Publish many changes of which each is a group by itself."""
        if not self._key_header and self._refusal is None:
            self._look_up()
        if self._refusal is not None:
            for change in run.changes():
                self.publish(change.key, change.value, change.position, None, None)
            return
        self._publisher.publish_run(
            self._topic,
            [self._key_header + key for key in run.keys],
            [self._value_header + value for value in run.values],
            run.positions,
            POSITION_HEADER if self._has_position else None,
            lambda at, error: self._bury_too_large(run.keys[at], run.values[at], run.positions[at], error),
        )

    def bury(self, letter: bytes, position: bytes) -> None:
        """Publish a dead letter."""
        assert self._dead_letters is not None
        if self.poison is None:
            self.poison = json.loads(letter)["error"]
        headers = [(POSITION_HEADER, position)]
        try:
            self._publisher.publish(self._dead_letters, None, letter, position, headers, None)
        except TooLargeError:
            self._publisher.publish(self._dead_letters, None, without_bodies(letter), position, headers, None)

    def _look_up(self) -> None:
        # With the first change: a lane that has none need not reach the registry.
        try:
            self._key_header = self._header("key", self._schemas.key)
            self._value_header = self._header("value", self._schemas.value)
        except StartupError as error:
            if self._dead_letters is None or not isinstance(error.__cause__, IncompatibleSchemaError):
                raise
            self._refusal = str(error)

    def _header(self, part: Part, avro_schema: str) -> bytes:
        settings, registry = self._config.registry, worker.registry(self._config)
        calls, asked_s, failed = registry.calls, time.perf_counter(), True
        try:
            schema_id = asking_registry_midway(
                lambda: registration.schema_id(registry, settings, self._topic, part, avro_schema)
            )
            failed = False
        finally:
            if registry.calls > calls:
                tally.registry(_table(self._task), self._task.lane, time.perf_counter() - asked_s, failed=failed)
        return wire_format.header(schema_id)

    def _partition(self, placement: int) -> int:
        if not self._partitions:
            self._partitions = worker.topic_sizes(self._config).of(self._topic)
        return placement % self._partitions


def _table(task: LaneTask) -> str:
    return f"{task.keyspace}.{task.table}"


def _in_words(position: bytes) -> str:
    time_us, seq = micros_of(position[16:32]), int.from_bytes(position[32:], "big")
    return f"stream 0x{position[:16].hex()}, {time_us} us, batch_seq_no {seq}"


def _with_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (batch for batch in batches if batch.num_rows)


def _chain(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first.num_rows:
        yield first
    yield from others


def _begin(batch: pa.RecordBatch) -> Begin:
    if batch.column(0)[0].as_py() != rows.BEGIN:
        raise BridgeError(
            "an input partition does not begin with its begin row; was the DataFrame sorted or repartitioned?"
        )
    return Begin.from_json(batch.column(5)[0].as_py())
