"""The shape ``delta``: what the change did, as the log says it; see ``schemas.record_schemas``."""

from __future__ import annotations

from typing import Final

from schemas.avro.records import Records
from schemas.log.change_records import LogChange, LogRecords

NAME: Final = "Envelope"
"""Of the value's record."""


def fields(records: Records) -> list[object]:
    """Return the fields of the value's schema, in order."""
    return [
        records.operation(),
        records.primary_key(),
        *records.range(),
        records.columns(),
        records.empty_columns(),
        records.ttl(),
        records.source(),
    ]


def value(log: LogRecords, change: LogChange) -> dict[str, object]:
    """Return the values of the fields."""
    # Looked at in the order of the fields, so that of several malformed cells the first is named.
    symbol = log.symbol(change)
    empty: list[str] = []
    return {
        "op": symbol,
        "key": log.primary_key(change, symbol, empty),
        **log.range(change),
        "columns": log.columns(change.row, symbol, empty),
        "empty_columns": empty,
        "ttl": log.ttl(change.row),
        "source": log.source(change),
    }
