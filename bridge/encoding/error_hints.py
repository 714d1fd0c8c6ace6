"""What probably happened to a record that can't be carried, and how to go on. Pure."""

from __future__ import annotations

from schemas.errors import CellError, LostKeyError, SchemaError
from schemas.log.columns import META_PREFIX

_RENAMED = (
    ". A key column is null in rows from before it was renamed (ALTER TABLE ... RENAME): the log lost its values, and "
    "these changes can't be told from each other any more. To go on behind them, delete the table's progress topic and "
    "its checkpoint, and set the table's start to the time of the RENAME"
)


def likely_cause(error: SchemaError) -> str:
    """A sentence to append to an error's message; empty when nothing is known.

    Every log row has the partition key, and what is done to a row has its whole clustering key (spec section 2.1), so
    only a rename takes them away (spec section 7).
    """
    if isinstance(error, LostKeyError):
        return _RENAMED
    if not isinstance(error, CellError) or error.raw is not None or error.column is None:
        return ""
    return "" if error.column.startswith(META_PREFIX) else _RENAMED
