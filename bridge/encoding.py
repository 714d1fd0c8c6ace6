"""From groups of changes to the bytes that are published. Pure: cells in, Avro bodies out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bridge.errors import PoisonError
from bridge.model.changes import Group, LogLayout
from bridge.model.times import UnixMillis, micros_of
from bridge.poison import likely_cause
from schemas.envelope import TableCodec
from schemas.errors import SchemaError

POSITION_HEADER: Final = "cdc.position"
"""Name of the record header that holds a change's position."""

POSITION_BYTES: Final = 36


@dataclass(frozen=True, slots=True)
class EncodedChange:
    """One change as bytes, not yet framed for the registry.

    Attributes:
        key: Avro body of the base partition key.
        value: Avro body of the envelope.
        position: stream id (16 bytes), `cdc$time` (16 bytes), `cdc$batch_seq_no` (4 bytes, big-endian).
        last_in_group: whether no change of the same group follows.
    """

    key: bytes
    value: bytes
    position: bytes
    last_in_group: bool


def encode_group(
    group: Group, codec: TableCodec, layout: LogLayout, generation_ms: UnixMillis
) -> Iterator[EncodedChange]:
    """The changes of a group as records.

    Raises:
        PoisonError: a cell that its type does not allow; names the change and the column.
    """
    place = group.stream_id + group.timeuuid
    seq_at = layout.batch_seq_no
    for change in group.changes:
        row = change.row
        try:
            key, value = codec.encode(
                row, operation=change.operation, generation_ms=generation_ms, last_in_group=change.last_in_group
            )
        except SchemaError as error:
            raise PoisonError(
                f"stream 0x{group.stream_id.hex()}, {micros_of(group.timeuuid)} us, batch_seq_no "
                f"{int.from_bytes(row[seq_at] or b'', 'big')}: {error}{likely_cause(error)}"
            ) from error
        yield EncodedChange(key, value, place + (row[seq_at] or b""), change.last_in_group)
