"""The probable cause of a change that can't be published, and how to continue. Pure."""

from __future__ import annotations

from schemas.errors import CellError, LostKeyError, SchemaError
from schemas.log.columns import META_PREFIX

_RENAMED = (
    ". A key column that was renamed (ALTER TABLE ... RENAME) is null in log rows from before the RENAME: ScyllaDB has "
    "dropped its values, so these changes have no key. To continue behind them, delete the table's progress topic and "
    "its checkpoint, and set the table's start to the time of the RENAME"
)


def likely_cause(error: SchemaError) -> str:
    """Return a sentence to append to an error's message; empty if no cause is known.

    Every log row has the partition key, and a change of a row has its whole clustering key. So a null in a key column
    means that the column was renamed.
    """
    if isinstance(error, LostKeyError):
        return _RENAMED
    if not isinstance(error, CellError) or error.size is not None or error.column is None:
        return ""
    return "" if error.column.startswith(META_PREFIX) else _RENAMED
