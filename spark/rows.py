"""The rows that the source yields and the sink takes: one Spark row type and its Arrow form.

| column | what |
|---|---|
| `kind` | 0 a change, 5 a dead letter; with `control` blocks in their place, 6, and control rows |
| `key` | the record's key: an Avro body, or JSON text with `payload=json`; empty in dead letters |
| `value` | the value, in the same form; null in tombstones; JSON text in dead letters |
| `position` | stream id (16 bytes), `cdc$time` (16 bytes), `cdc$batch_seq_no` (4 bytes, big-endian) |
| `last_in_group` | whether no record of the same (stream, `cdc$time`) follows |
| `text` | what a control row says, or a change's further headers, as JSON; null for none |
| `placement` | modulo the topic's partitions the record's partition; null where its key decides |

A block is one row for thousands of changes: the JVM makes a row of its own of each of these, twice, and that cost more
than all else it does. Its `value` is for the sink alone.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import BinaryType, BooleanType, ByteType, IntegerType, StringType, StructField, StructType

from bridge.encoding import EncodedChange, EncodedRun

CHANGE: Final = 0
BEGIN: Final = 1
END: Final = 2
PART: Final = 3
"""The changes behind it are of the micro-batch's next part, see `bridge.model.cursors.PlannedBatch.parts`."""
SCHEMA: Final = 4
"""The changes behind it have other schemas than those before, see `bridge.control.Schemas`."""
DEAD_LETTER: Final = 5
BLOCK: Final = 6
"""Many changes, see `block_of`."""

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

_ROWS_IN_BATCH: Final = 4000
"""Changes of a record batch: 1,000 to 10,000 are best, 50,000 cost up to half the throughput."""

_BYTES_IN_BATCH: Final = 8 * 1024 * 1024

_WITHOUT_REFERENCES: Final = 2
"""The version of marshal's format that does not look for objects which occur twice: half the time."""


def control_batch(kind: int, text: str | None) -> pa.RecordBatch:
    """A record batch of one control row."""
    row = dict.fromkeys(ARROW_SCHEMA.names) | {"kind": kind, "text": text}
    return pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)


def change_batches(changes: Iterable[EncodedChange | EncodedRun], *, blocks: bool = False) -> Iterator[pa.RecordBatch]:
    """Changes as record batches of a few thousand of them, or fewer when they are large.

    Args:
        changes: in their order.
        blocks: whether a batch is one row, a block; else each change is a row.
    """
    held: list[EncodedChange] = []
    size = 0
    for change in changes:
        if isinstance(change, EncodedRun):
            if held:
                yield _block(zip(*held, strict=True)) if blocks else _batch(held)
                held, size = [], 0
            for run in change.pieces(_ROWS_IN_BATCH, _BYTES_IN_BATCH):
                yield _block(run) if blocks else _batch(list(run.changes()))
            continue
        held.append(change)
        key, value = change[0], change[1]
        size += len(key) if value is None else len(key) + len(value)
        if len(held) >= _ROWS_IN_BATCH or size >= _BYTES_IN_BATCH:
            yield _block(zip(*held, strict=True)) if blocks else _batch(held)
            held, size = [], 0
    if held:
        yield _block(zip(*held, strict=True)) if blocks else _batch(held)


def _block(columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    # By far the fastest way for many small objects from one process to another of the same interpreter, which source
    # and sink always have: Spark gives all Python workers of a session the same.
    plain: Any = tuple(columns)
    row = dict.fromkeys(ARROW_SCHEMA.names) | {"kind": BLOCK, "value": marshal.dumps(plain, _WITHOUT_REFERENCES)}
    return pa.RecordBatch.from_pylist([row], schema=ARROW_SCHEMA)


Columns: TypeAlias = tuple[Sequence[Any], ...]
"""Columns of changes, in the order of `EncodedChange`'s attributes."""


def block_of(value: bytes) -> EncodedRun | Columns:
    """The changes of a block."""
    columns = marshal.loads(value)  # noqa: S302  # made by `_block`, in this very job
    found: Columns = columns
    return EncodedRun(*columns) if len(found) == len(EncodedRun._fields) else found


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
