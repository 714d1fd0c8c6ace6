"""The rows that the source gives to Spark: changes, or reports where tasks publish the changes themselves.

A change's row:

| column | content |
|---|---|
| `kind` | 0 a change, 1 a dead letter |
| `key` | the record's key: an Avro body, or JSON text with `payload=json`; empty in dead letters |
| `value` | the value, in the form of the key; null in tombstones; JSON text in dead letters |
| `position` | stream id (16 bytes), `cdc$time` (16 bytes), `cdc$batch_seq_no` (4 bytes, big-endian) |
| `last_in_group` | whether no record of the same (stream, `cdc$time`) follows |
| `text` | the record's other headers, as JSON; null for none |
| `placement` | the record's partition is this number modulo the topic's partitions; null if the key decides |

A published lane is one row, with the column `report` alone (`bridge.monitoring.reports.LaneReport` as JSON).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, ByteType, IntegerType, StringType, StructField, StructType

from bridge.encoding.group_encoder import EncodedChange, EncodedRun
from bridge.monitoring.reports import LaneReport

CHANGE: Final = 0
DEAD_LETTER: Final = 1

ROW_TYPE: Final = StructType(
    [
        StructField("kind", ByteType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("position", BinaryType()),
        StructField("last_in_group", BooleanType()),
        StructField("text", StringType()),
        StructField("placement", IntegerType()),
    ]
)

ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("position", pa.binary()),
        pa.field("last_in_group", pa.bool_()),
        pa.field("text", pa.string()),
        pa.field("placement", pa.int32()),
    ]
)

REPORT: Final = "report"
REPORT_TYPE: Final = StructType([StructField(REPORT, StringType(), nullable=False)])
_REPORT_SCHEMA: Final = pa.schema([pa.field(REPORT, pa.string(), nullable=False)])

_ROWS_IN_BATCH: Final = 4000
"""Changes in a record batch: 1,000 to 10,000 are best; 50,000 cost up to half of the throughput."""

_BYTES_IN_BATCH: Final = 8 * 1024 * 1024


def report_batch(report: LaneReport) -> pa.RecordBatch:
    """Return a record batch of one report."""
    return pa.RecordBatch.from_pydict({REPORT: [report.to_json()]}, schema=_REPORT_SCHEMA)


def change_batches(changes: Iterable[EncodedChange | EncodedRun]) -> Iterator[pa.RecordBatch]:
    """Yield changes in their order, in record batches of at most 4,000 changes and about 8 MiB of keys and values."""
    held: list[EncodedChange] = []
    size = 0
    for change in changes:
        if isinstance(change, EncodedRun):
            if held:
                yield _batch(held)
                held, size = [], 0
            for run in change.pieces(_ROWS_IN_BATCH, _BYTES_IN_BATCH):
                yield _batch(list(run.changes()))
            continue
        held.append(change)
        key, value = change[0], change[1]
        size += len(key) if value is None else len(key) + len(value)
        if len(held) >= _ROWS_IN_BATCH or size >= _BYTES_IN_BATCH:
            yield _batch(held)
            held, size = [], 0
    if held:
        yield _batch(held)


def _batch(changes: list[EncodedChange]) -> pa.RecordBatch:
    keys, values, positions, lasts, headers, placements, dead = zip(*changes, strict=True)
    count = len(changes)
    kinds = [DEAD_LETTER if one else CHANGE for one in dead] if any(dead) else [CHANGE] * count
    return pa.RecordBatch.from_arrays(
        [
            pa.array(kinds, pa.int8()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(positions, pa.binary()),
            pa.array(lasts, pa.bool_()),
            pa.array(headers, pa.string()),
            pa.array(placements, pa.int32()),
        ],
        schema=ARROW_SCHEMA,
    )
