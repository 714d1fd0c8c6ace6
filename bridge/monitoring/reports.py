"""The report of a task on the lane that it has published; it travels in Spark's progress of the micro-batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from bridge.errors import BridgeError
from bridge.model import counters
from bridge.model.counters import CountersByLane
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import canonical_json


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane has published its part of a micro-batch.

    Attributes:
        table: `keyspace.table`.
        lane: the number of the lane.
        cursor: the lane's cursor after the micro-batch.
        counted: what the task's process has counted since its last report, for any lane.
        dead_letter_reason: why the first of the task's dead letters is one; None if there are none.
    """

    table: str
    lane: int
    cursor: Cursor
    counted: CountersByLane
    dead_letter_reason: str | None = None

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return canonical_json(
            {
                "v": 1,
                "table": self.table,
                "lane": self.lane,
                "cursor": self.cursor.to_json(),
                "counted": counters.to_json(self.counted),
                "dead_letter_reason": self.dead_letter_reason,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the report that `to_json` returned as text.

        Raises:
            BridgeError: the text has another form.
        """
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise BridgeError(f"a lane's report of {len(text)} characters is not JSON") from error
        match value:
            case {
                "v": 1,
                "table": str(table),
                "lane": int(lane),
                "cursor": cursor,
                "counted": list(counted),
                "dead_letter_reason": str() | None as reason,
            }:
                return cls(table, lane, Cursor.from_json(cursor), counters.from_json(counted), reason)
        raise BridgeError(f"not a lane's report: {text[:200]!r}")
