"""Avro bytes of the envelope that do not depend on a table's columns: operations, deletion flags, the source."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final

from schemas.avro.records import ENVELOPE_VERSION, OPERATIONS
from schemas.avro.varints import long_bytes
from schemas.compiled.cell_source import NULL, SET_TO_NULL, decline
from schemas.cql.table import TableSchema
from schemas.log.operations import (
    NO_CHANGES,
    RANGE_DELETE,
    STATIC_UPDATE,
    WITH_COLUMNS,
    WITH_ROW,
    WITHOUT_ROW,
    kind_of,
)

ROW_CHANGE: Final = 0
"""Kind of an operation whose row has a whole clustering key and may touch columns."""

ROW_DELETE: Final = 1
"""Kind of an operation whose row has a whole clustering key and touches no column."""

PARTITION_DELETE: Final = 2
"""Kind of an operation whose row has no clustering key and touches no column."""

UNKNOWN: Final = 3
"""Kind of an operation that this release does not know; its row may have any cells."""

_CACHED_GENERATIONS: Final = 8
_OPERATION_NUMBERS: Final = range(-128, 128)
_IS_SET: Final[dict[bytes | None, bool]] = {None: False, **{bytes((flag,)): flag != 0 for flag in range(256)}}
_CLEARED: Final = {raw: bytes((flag,)) for raw, flag in _IS_SET.items()}
_DELETED: Final = {raw: SET_TO_NULL if flag else NULL for raw, flag in _IS_SET.items()}


def envelope_helpers(table: TableSchema) -> dict[str, object]:
    """Return the helpers that the change function uses besides those of the cells."""
    return {
        "cleared": _CLEARED,
        "deleted": _DELETED,
        "is_set": _IS_SET,
        "operations": known_operations(has_clustering=bool(table.clustering)),
        "source_of": source_writer(table),
        "static_update": operation_symbol_bytes(STATIC_UPDATE),
        "unpack_time": struct.Struct(">IHH8x").unpack,
    }


@cache
def known_operations(*, has_clustering: bool) -> Mapping[int, tuple[bytes, int, bytes]]:
    """Return ``cdc$operation`` -> encoding of ``op``, kind of cells that go with it, encoding of the number.

    Operations that compiled code cannot encode (images, range deletes) are missing.
    """
    known = {}
    for number in _OPERATION_NUMBERS:
        symbol = kind_of(number, has_clustering=has_clustering)
        if number in NO_CHANGES or symbol == RANGE_DELETE:
            continue
        kind = UNKNOWN
        if symbol in WITH_ROW:
            kind = ROW_CHANGE if symbol in WITH_COLUMNS else ROW_DELETE
        elif symbol in WITHOUT_ROW:
            kind = PARTITION_DELETE
        known[number] = (operation_symbol_bytes(symbol), kind, long_bytes(number))
    return known


def operation_symbol_bytes(symbol: str) -> bytes:
    """Return the Avro bytes of a symbol of ``op``."""
    return long_bytes(OPERATIONS.index(symbol))


def source_writer(table: TableSchema) -> Callable[[int], bytes]:
    """Return the writer of the first part of the field ``source``, which is the same for a whole generation.

    The writer takes the start of the generation in ms since the Unix epoch.
    """
    names = [name.encode() for name in (table.keyspace, table.name)]
    fixed = long_bytes(ENVELOPE_VERSION) + b"".join(long_bytes(len(name)) + name for name in names)

    @lru_cache(maxsize=_CACHED_GENERATIONS)
    def source_of(generation_ms: int) -> bytes:
        return fixed + long_bytes(generation_ms) if type(generation_ms) is int else decline()

    return source_of
