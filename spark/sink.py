"""The sink `scylla-cdc-kafka`: takes the source's rows, each partition a lane, and publishes them transactionally."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bridge.config import BridgeConfig
from bridge.connections import asking_registry
from bridge.control import Begin
from bridge.encoding import POSITION_HEADER
from bridge.errors import BridgeError
from bridge.lane_publisher import LanePublisher
from bridge.publishing import LaneTask
from schemas import subjects, wire_format
from schemas.subjects import Subject
from spark import rows, worker


@dataclass(frozen=True, slots=True)
class LaneWritten(WriterCommitMessage):
    """What a lane's task did; what counts was committed to Kafka already."""

    task: LaneTask | None
    published: int


class KafkaLanesSink(DataSource):
    """The registered sink; its one option `config` is a `BridgeConfig` as JSON."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._config = BridgeConfig.model_validate_json(options["config"])

    @classmethod
    def name(cls) -> str:
        """What `format` takes."""
        return "scylla-cdc-kafka"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """The writer of a query; called once a micro-batch."""
        return KafkaLanesWriter(self._config)


class KafkaLanesWriter(DataSourceStreamArrowWriter):
    """Writes each partition in Kafka transactions of its lane.

    Nothing is left for the driver to commit: only the producer that began a transaction can, and the lane's cursor in
    Kafka, not Spark's verdict on the task, says what was published.
    """

    def __init__(self, config: BridgeConfig) -> None:
        self._config = config

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish one lane's part of a micro-batch; see `bridge.lane_publisher`."""
        worker.settle_memory()
        batches = _with_rows(iterator)
        first = next(batches, None)
        if first is None:
            # A query's very first micro-batch may have no window: Spark then writes one empty partition. Should rows
            # have been filtered away instead, the lane's cursor stays and the next window is refused as a gap.
            return LaneWritten(None, 0)
        begin = _begin(first)
        task = begin.task
        place = (self._config, task.keyspace, task.table, task.lane)
        publisher = worker.publisher(*place)
        try:
            publisher.start(task, fresh=_is_retry())
            self._publish(publisher, begin, first.slice(1), batches)
        except BaseException:
            # Also for a killed task: whatever happened, only Kafka knows how far the transaction got.
            worker.drop_publisher(*place)
            raise
        return LaneWritten(task, publisher.published)

    def _publish(
        self, publisher: LanePublisher, begin: Begin, rest: pa.RecordBatch, batches: Iterator[pa.RecordBatch]
    ) -> None:
        task = begin.task
        topic = self._config.topic_of(self._config.table(task.keyspace, task.table))
        key_header = value_header = b""
        ended = False
        part = 0
        for batch in _chain(rest, batches):
            kinds = batch.column(0).to_pylist()
            keys, values, positions = (batch.column(index).to_pylist() for index in (1, 2, 3))
            for kind, key, value, position in zip(kinds, keys, values, positions, strict=True):
                if kind == rows.END:
                    ended = True
                    continue
                if kind == rows.PART:
                    part += 1
                    publisher.enter(part)
                    continue
                if not key_header:
                    # With the first change: a lane that has none need not reach the registry.
                    key_header = self._header(subjects.key_subject(topic), begin.key_schema)
                    value_header = self._header(subjects.value_subject(topic), begin.value_schema)
                publisher.publish(
                    topic,
                    key_header + key,
                    None if value is None else value_header + value,
                    position,
                    [(POSITION_HEADER, position)],
                )
        if not ended:
            raise BridgeError(f"{task}: the input partition ends without its end row; nothing of it is committed")
        publisher.finish()

    def _header(self, subject: Subject, avro_schema: str) -> bytes:
        schema_id = asking_registry(lambda: worker.registry(self._config).register(subject, avro_schema))
        return wire_format.header(schema_id)


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


def _is_retry() -> bool:
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
