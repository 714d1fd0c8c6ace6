"""Dead letters: documents about changes that can't be published, with reason, position and raw cells. Pure.

A dead letter is a JSON document::

    {"v": 1, "keyspace": "shop", "table": "orders", "generation_ms": 1795249090552,
     "stream_id": "ced0...", "time": "1c21a6de-...", "batch_seq_no": 0, "error": "...",
     "rows": [{"cdc$operation": "01", "pk": "00000007", ...}]}

Cells are CQL's serialized values in hex, as in the log; null cells are left out. `batch_seq_no` is null if the whole
group is at fault.

If the registry refuses a change's schema, or the record is over Kafka's limit before it is sent, the document has
`key`, `value` (null in a tombstone), `key_schema` and `value_schema` in place of `generation_ms` and `rows`. They are
the Avro bodies in hex and their schemas.

A document that is itself too large has `omitted_bytes` (its full size) in place of the cells, or of the value and its
schema. If it is still too large, the key and its schema are left out as well. The null of a tombstone stays.
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
    """Return the document for log rows that can't be encoded, as UTF-8.

    Args:
        table: keyspace and name of the base table.
        layout: the layout of the rows.
        rows: the log rows at fault, at least one, all of one group.
        generation_ms: the generation of their stream (start in ms).
        error: what is wrong with the rows.
        whole_group: whether `rows` are all rows of the group.
    """
    keyspace, name = table
    first = rows[0]
    seq_no = int.from_bytes(first[layout.batch_seq_no] or b"", "big", signed=True)
    return json.dumps(
        {
            "v": FORMAT_VERSION,
            "keyspace": keyspace,
            "table": name,
            "generation_ms": generation_ms,
            "stream_id": (first[layout.stream_id] or b"").hex(),
            "time": str(UUID(bytes=first[layout.time])),
            "batch_seq_no": None if whole_group else seq_no,
            "error": error,
            "rows": [_cells_in_hex(row, layout) for row in rows],
        },
        ensure_ascii=False,
    ).encode()


def rejected_record_letter(
    table: tuple[str, str], position: bytes, key: bytes, value: bytes | None, schemas: tuple[str, str], error: str
) -> bytes:
    """Return the document for a change whose schema the registry rejects, or whose record Kafka rejects, as UTF-8.

    Args:
        table: keyspace and name of the base table.
        position: the change's position (36 bytes).
        key: Avro body of the record's key.
        value: Avro body of its value; None for a tombstone.
        schemas: the Avro schemas of key and value, as JSON text.
        error: why the registry or Kafka rejects it.
    """
    keyspace, name = table
    at = Position.from_bytes(position)
    key_schema, value_schema = schemas
    return json.dumps(
        {
            "v": FORMAT_VERSION,
            "keyspace": keyspace,
            "table": name,
            "stream_id": at.stream_id.hex(),
            "time": str(UUID(bytes=at.timeuuid)),
            "batch_seq_no": at.batch_seq_no,
            "error": error,
            "key": key.hex(),
            "value": None if value is None else value.hex(),
            "key_schema": key_schema,
            "value_schema": value_schema,
        },
        ensure_ascii=False,
    ).encode()


def shorter_letters(letter: bytes) -> Iterator[bytes]:
    """Yield shorter forms of a dead letter, down to one that holds only reason and position.

    The log still has what is left out, as long as it keeps the change.
    """
    document = json.loads(letter) | {"omitted_bytes": len(letter)}
    for omitted in (_ROWS_AND_VALUE, _ROWS_AND_VALUE | _KEY) if "key" in document else (_ROWS_AND_VALUE,):
        kept = {name: value for name, value in document.items() if value is None or name not in omitted}
        yield json.dumps(kept, ensure_ascii=False).encode()


def _cells_in_hex(row: Cells, layout: LogLayout) -> dict[str, str]:
    return {name: cell.hex() for name, cell in zip(layout.columns, row, strict=True) if cell is not None}
