"""One change with the rows of the CDC log that make it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.log.cell_readers import LogRow


@dataclass(frozen=True, slots=True)
class LogChange:
    """One change with all its log rows. A row is its raw cells in the order of the log's columns.

    Attributes:
        row: the delta, or the start row of a range delete.
        operation: the delta's ``cdc$operation``.
        generation_ms: start of the CDC generation, ms since the Unix epoch.
        last_in_group: whether no change of the same (stream, time) follows.
        range_end: the end row of a range delete.
        before: the pre-image of the same row, if there is one.
        after: the post-image of the same row, if there is one.
        more: further deltas of the same row in its group, for shapes that join them into one change.
    """

    row: LogRow
    operation: int
    generation_ms: int
    last_in_group: bool
    range_end: LogRow | None = None
    before: LogRow | None = None
    after: LogRow | None = None
    more: Sequence[LogRow] = ()

    @property
    def deltas(self) -> Sequence[LogRow]:
        """All deltas of the change, in order."""
        return (self.row, *self.more)
