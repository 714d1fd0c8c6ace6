"""What is written of a change that can't be carried: why, where it stands, and its raw cells. Pure.

A dead letter is a JSON document::

    {"v": 1, "keyspace": "shop", "table": "orders", "generation_ms": 1795249090552,
     "stream_id": "ced0...", "time": "1c21a6de-...", "batch_seq_no": 0, "error": "...",
     "rows": [{"cdc$operation": "01", "pk": "00000007", ...}]}

Cells are hex of CQL's serialized values, as the log has them; null cells are left out. `batch_seq_no` is null where the
whole group is at fault. A change whose schema the registry refuses, or whose record is too large for Kafka, has Avro
bodies in hex and their schemas instead of `generation_ms` and `rows`: `key`, `value` (null in a tombstone),
`key_schema`, `value_schema`. A letter that would be too large itself has none of its cells, nor the value and its
schema, but `omitted_bytes`, the size that it would have; where even its key is too large, it goes without that, too. A
tombstone's keeps its null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from bridge.model.log_rows import Cells, LogLayout
from bridge.model.position import Position
from bridge.model.times import UnixMillis

FORMAT_VERSION: Final = 1
_ROWS_AND_VALUE: Final = frozenset({"rows", "value", "value_schema"})
_KEY: Final = frozenset({"key", "key_schema"})


def dead_letter(
    table: tuple[str, str],
    layout: LogLayout,
    rows: Sequence[Cells],
    generation_ms: UnixMillis,
    error: str,
    *,
    whole_group: bool,
) -> bytes:
    """The document as UTF-8.

    Args:
        table: keyspace and name of the base table.
        layout: what the cells are.
        rows: the log rows at fault, of one group, at least one.
        generation_ms: the generation of their stream.
        error: what is wrong with them.
        whole_group: whether they are all rows of their group.
    """
    keyspace, name = table
    first = rows[0]
    seq = int.from_bytes(first[layout.batch_seq_no] or b"", "big")
    return json.dumps(
        {
            "v": FORMAT_VERSION,
            "keyspace": keyspace,
            "table": name,
            "generation_ms": generation_ms,
            "stream_id": (first[layout.stream_id] or b"").hex(),
            "time": str(UUID(bytes=first[layout.time])),
            "batch_seq_no": None if whole_group else seq,
            "error": error,
            "rows": [_cells(row, layout) for row in rows],
        },
        ensure_ascii=False,
    ).encode()


def refused_change(
    table: tuple[str, str], position: bytes, key: bytes, value: bytes | None, schemas: tuple[str, str], error: str
) -> bytes:
    """The document of a change whose schema or record is refused, as UTF-8.

    Args:
        table: keyspace and name of the base table.
        position: stream id (16 bytes), `cdc$time` (16 bytes), `cdc$batch_seq_no` (4 bytes).
        key: Avro body of the record's key.
        value: Avro body of its value; None for a tombstone.
        schemas: of key and value, as JSON text.
        error: why the registry refuses one of them, or Kafka the record.
    """
    keyspace, name = table
    place = Position.from_bytes(position)
    key_schema, value_schema = schemas
    return json.dumps(
        {
            "v": FORMAT_VERSION,
            "keyspace": keyspace,
            "table": name,
            "stream_id": place.stream_id.hex(),
            "time": str(UUID(bytes=place.timeuuid)),
            "batch_seq_no": place.batch_seq_no,
            "error": error,
            "key": key.hex(),
            "value": None if value is None else value.hex(),
            "key_schema": key_schema,
            "value_schema": value_schema,
        },
        ensure_ascii=False,
    ).encode()


def shortened(letter: bytes) -> Iterator[bytes]:
    """The same dead letter, smaller and smaller, down to one that says why and where alone.

    What is left out lies in the log for as long as that keeps it.
    """
    document = json.loads(letter) | {"omitted_bytes": len(letter)}
    for left_out in (_ROWS_AND_VALUE, _ROWS_AND_VALUE | _KEY) if "key" in document else (_ROWS_AND_VALUE,):
        left = {name: value for name, value in document.items() if value is None or name not in left_out}
        yield json.dumps(left, ensure_ascii=False).encode()


def _cells(row: Cells, layout: LogLayout) -> dict[str, str]:
    return {name: cell.hex() for name, cell in zip(layout.columns, row, strict=True) if cell is not None}
