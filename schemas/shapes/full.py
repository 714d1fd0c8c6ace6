"""The shape ``full``: the shape ``delta``, and the row before and after the change from the log's images."""

from __future__ import annotations

from typing import Final

from schemas.avro.records import Records
from schemas.log.change_records import LogChange, LogRecords
from schemas.shapes import delta

NAME: Final = "Envelope"
"""Of the value's record."""


def fields(records: Records) -> list[object]:
    """Return the fields of the value's schema, in order."""
    return [*delta.fields(records), *records.images()]


def value(log: LogRecords, change: LogChange) -> dict[str, object]:
    """Return the values of the fields."""
    record = delta.value(log, change)
    symbol = str(record["op"])
    before, after = log.before(change, symbol), log.after(change, symbol)
    return {
        **record,
        "before": before.row,
        "before_unknown": before.unknown,
        "before_empty": before.empty,
        "after": after.row,
        "after_empty": after.empty,
    }
