"""What a task says of the lane that it has published, in words that travel with Spark's own report of a micro-batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import canonical_json
from bridge.monitoring import counters
from bridge.monitoring.counters import Counted


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane has published its part of a micro-batch.

    Attributes:
        table: `keyspace.table`.
        lane: its number.
        cursor: where the lane stands now.
        counted: what the task's process has counted since its last report, of whatever lane.
        poison: why the first of the task's dead letters is one; None without any.
    """

    table: str
    lane: int
    cursor: Cursor
    counted: Counted
    poison: str | None = None

    def to_json(self) -> str:
        """As it travels."""
        return canonical_json(
            {
                "v": 1,
                "table": self.table,
                "lane": self.lane,
                "cursor": self.cursor.to_json(),
                "counted": counters.to_json(self.counted),
                "poison": self.poison,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises BridgeError when this is not what `to_json` gave."""
        try:
            value: Any = json.loads(text)
        except ValueError as error:
            raise BridgeError(f"a lane's report of {len(text)} characters is no JSON") from error
        match value:
            case {
                "v": 1,
                "table": str(table),
                "lane": int(lane),
                "cursor": cursor,
                "counted": list(counted),
                "poison": str() | None as poison,
            }:
                return cls(table, lane, Cursor.from_json(cursor), counters.from_json(counted), poison)
        raise BridgeError(f"not a lane's report: {text[:200]!r}")
