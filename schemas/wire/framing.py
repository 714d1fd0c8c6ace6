"""The schema registry's wire format: one zero byte, the schema id, then the Avro body.

The id is 4 bytes, big-endian; registries use positive 32-bit signed numbers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from schemas.errors import FramingError

HEADER_BYTES: Final = 5
_MAGIC: Final = 0
_HEADER: Final = struct.Struct(">BI")
_MAX_SCHEMA_ID: Final = 2**31 - 1


@lru_cache(maxsize=1024)
def header(schema_id: int) -> bytes:
    """Return the 5 bytes before every body of a schema.

    Raises:
        FramingError: the id is not a positive 32-bit number.
    """
    if not 0 < schema_id <= _MAX_SCHEMA_ID:
        raise FramingError(f"schema id {schema_id} is not in 1..{_MAX_SCHEMA_ID}")
    return _HEADER.pack(_MAGIC, schema_id)


def frame(schema_id: int, body: bytes) -> bytes:
    """Return the message that carries a body of a schema."""
    return header(schema_id) + body


def unframe(message: bytes) -> tuple[int, bytes]:
    """Return the schema id and the body of a message.

    Raises:
        FramingError: the message is too short or has another format.
    """
    if len(message) < HEADER_BYTES:
        raise FramingError(f"message of {len(message)} bytes is shorter than its {HEADER_BYTES} byte header")
    magic, schema_id = _HEADER.unpack_from(message)
    if magic != _MAGIC:
        raise FramingError(f"first byte is 0x{magic:02x}, not 0x00: not in the registry's wire format")
    return int(schema_id), message[HEADER_BYTES:]
