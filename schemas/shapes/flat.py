"""The shape ``flat``: the row's columns and a few fields that begin with ``__``, for sinks that need one level.

The columns hold the row after the change: from the post-image, or from the pre-image and the change. ``__unavailable``
lists the columns whose values the log does not have; for an unknown operation without a post-image these are all. In
deletes the columns hold the row before the change if there is a pre-image, else the key.

The record is not named ``Envelope``, because Debezium's sinks treat records of that name as not flat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import ClassVar, Final

from schemas.avro.records import Records
from schemas.log.change_records import LogRecords
from schemas.log.column_cells import Branch
from schemas.log.log_change import LogChange
from schemas.log.operations import WITH_COLUMNS
from schemas.shapes.base import Effect, LogOptions, Shape, absent_postimages

_FIELDS: Final[tuple[tuple[str, object, str], ...]] = (
    ("__op", "string", "What happened: insert, update, static_update, row_delete, ..."),
    ("__deleted", "boolean", "Whether what the key or `__range` stands for was removed."),
    ("__timestamp_us", "long", "The write timestamp in microseconds since the Unix epoch."),
    ("__batch_seq_no", "int", "Place among the changes of one stream and write timestamp."),
    ("__ttl_mixed", "boolean", "Whether parts of what was written have different times to live, or some have none."),
)
_NULLABLE_FIELDS: Final[tuple[tuple[str, object, str], ...]] = (
    ("__ttl", "long", "Time to live in seconds of what was written; null without one, or where it differs."),
    ("__range", "string", "The rows that a range delete removes, as JSON: {start, end}, see the shape delta."),
    ("__unavailable", "string", "JSON list of columns that read as null because the log does not tell their value."),
)
RESERVED: Final = frozenset(name for name, _, _ in (*_FIELDS, *_NULLABLE_FIELDS))
"""Names of fields of this shape, which no column may have."""

_UNTOUCHED: Final = "without post-images __unavailable lists the columns that a change does not touch"


class FlatShape(Shape):
    """The shape ``flat``."""

    name = "flat"
    summary = "is the row's columns with a few `__` fields"
    record_name = "Value"
    by_row = True
    default_key = "primary_key"
    keys_only = "a record has the row only if there is a post-image"
    preimages: ClassVar = {
        "false": Effect(f"a delete has only the key, and {_UNTOUCHED}", is_loss=True),
        "true": Effect(_UNTOUCHED, is_loss=True),
        "full": Effect("the log has the whole row before each change", is_loss=False),
    }
    postimages: ClassVar = {
        False: Effect(
            "a record combines the pre-image and the change, and __unavailable lists the columns that "
            "neither of them gives",
            is_loss=True,
        ),
        True: Effect("a record has the whole row", is_loss=False),
    }

    def fields(self, records: Records) -> list[object]:
        """Return the fields of the value's schema, in order.

        Raises:
            OutputError: a column has the name of a field in `RESERVED`.
        """
        return [
            *records.whole_row_fields(RESERVED),
            *({"name": name, "type": kind, "doc": doc} for name, kind, doc in _FIELDS),
            *(
                {"name": name, "type": ["null", kind], "default": None, "doc": doc}
                for name, kind, doc in _NULLABLE_FIELDS
            ),
        ]

    def value(self, log: LogRecords, change: LogChange) -> dict[str, object]:
        """Return the values of the fields."""
        symbol = log.symbol(change)
        upsert = symbol in WITH_COLUMNS
        empty: list[str] = []
        key = log.primary_key(change, symbol, empty)
        row = log.rows.row_after(change, symbol) if upsert else log.rows.before(change, symbol)
        unavailable = [*empty, *log.rows.unavailable(row, symbol)]
        source = log.source(change)
        ttl, ttl_mixed = log.ttl_of(change)
        return {
            **key,
            **row.columns,
            "__op": symbol,
            "__deleted": not upsert,
            "__timestamp_us": source["timestamp_us"],
            "__batch_seq_no": source["batch_seq_no"],
            "__ttl_mixed": ttl_mixed,
            "__ttl": ttl,
            "__range": _range_text(log.range(change).get("range")),
            "__unavailable": ("string", json.dumps(unavailable, ensure_ascii=False)) if unavailable else None,
        }

    def advice(self, options: LogOptions) -> Iterator[str]:
        """Yield which images are missing."""
        yield from super().advice(options)
        yield from absent_postimages(self.name, options)


FLAT = FlatShape()


def _range_text(found: object) -> Branch | None:
    return None if found is None else ("string", json.dumps(_json_value(found), ensure_ascii=False, allow_nan=False))


def _json_value(node: object) -> object:
    """Return a value for JSON: without names of union branches, bytes as hex, numbers that JSON lacks as text."""
    # Only union branches are tuples. A sequence pattern of two items would also match a list of two texts.
    if isinstance(node, tuple):
        return _json_value(node[1])
    match node:
        case dict():
            return {name: _json_value(one) for name, one in node.items()}
        case list():
            return [_json_value(one) for one in node]
        case bytes():
            return node.hex()
        case float() if not math.isfinite(node):
            return "NaN" if math.isnan(node) else "Infinity" if node > 0 else "-Infinity"
    return node
