"""The rows that the source yields and the sink takes: one Spark row type and its Arrow form.

| column | what |
|---|---|
| `kind` | 0 a change; with the option `control` also 1 and 2, a lane's beginning and end, and 3, its next part's |
| `key` | the base partition key: an Avro body, or JSON text with `payload=json` |
| `value` | the envelope, in the same form |
| `position` | stream id (16 bytes), `cdc$time` (16 bytes), `cdc$batch_seq_no` (4 bytes, big-endian) |
| `last_in_group` | whether no change of the same (stream, `cdc$time`) follows |
| `control` | what a control row says, as JSON; null in changes |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, ByteType, StringType, StructField, StructType

from bridge.encoding import EncodedChange

CHANGE: Final = 0
BEGIN: Final = 1
END: Final = 2
PART: Final = 3

ROW_TYPE: Final = StructType(
    [
        StructField("kind", ByteType(), nullable=False),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("position", BinaryType()),
        StructField("last_in_group", BooleanType()),
        StructField("control", StringType()),
    ]
)

ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("position", pa.binary()),
        pa.field("last_in_group", pa.bool_()),
        pa.field("control", pa.string()),
    ]
)

_ROWS_IN_BATCH: Final = 4000
"""Rows of a record batch: 1,000 to 10,000 are best, 50,000 cost up to half the throughput."""

_BYTES_IN_BATCH: Final = 8 * 1024 * 1024


def control_batch(kind: int, text: str | None) -> pa.RecordBatch:
    """A record batch of one control row."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "kind": kind,
                "key": None,
                "value": None,
                "position": None,
                "last_in_group": None,
                "control": text,
            }
        ],
        schema=ARROW_SCHEMA,
    )


def change_batches(changes: Iterable[EncodedChange]) -> Iterator[pa.RecordBatch]:
    """Changes as record batches of a few thousand rows, or fewer when they are large."""
    keys: list[bytes] = []
    values: list[bytes] = []
    positions: list[bytes] = []
    lasts: list[bool] = []
    size = 0
    for change in changes:
        keys.append(change.key)
        values.append(change.value)
        positions.append(change.position)
        lasts.append(change.last_in_group)
        size += len(change.value) + len(change.key)
        if len(keys) >= _ROWS_IN_BATCH or size >= _BYTES_IN_BATCH:
            yield _batch(keys, values, positions, lasts)
            keys, values, positions, lasts, size = [], [], [], [], 0
    if keys:
        yield _batch(keys, values, positions, lasts)


def _batch(keys: list[bytes], values: list[bytes], positions: list[bytes], lasts: list[bool]) -> pa.RecordBatch:
    count = len(keys)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([CHANGE] * count, pa.int8()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(positions, pa.binary()),
            pa.array(lasts, pa.bool_()),
            pa.nulls(count, pa.string()),
        ],
        schema=ARROW_SCHEMA,
    )
