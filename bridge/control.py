"""The control rows that travel between source and sink, in-band at both ends of each input partition.

The sink's tasks are told nothing about the micro-batch that they write (no batch id, no window), so the source's tasks
say it in the data: a `begin` row before the changes and an `end` row behind them, even when there are none, so that the
lane's cursor moves. A partition without its `end` was not read to its end and must not be committed. The `end` row also
carries what the reading process has counted. A `part` row stands before each further part of the micro-batch, read or
not. When the table's columns change in between, a `schema` row stands before
the first change that was encoded for the new ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Self

from bridge.errors import BridgeError
from bridge.model.cursors import StreamOffset, canonical_json
from bridge.monitoring import figures
from bridge.monitoring.figures import Counted
from bridge.publishing import LaneTask


@dataclass(frozen=True, slots=True)
class Schemas:
    """Under which schemas the changes that follow are encoded.

    Attributes:
        key: Avro schema of the keys, as JSON text.
        value: Avro schema of the values, as JSON text.
    """

    key: str
    value: str

    def to_json(self) -> str:
        """The text of a schema row."""
        return canonical_json({"v": 1, **self.plain()})

    def plain(self) -> dict[str, str]:
        """Plain values, ready for JSON."""
        return {"key_schema": self.key, "value_schema": self.value}

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises BridgeError when the text is no schema row's."""
        match json.loads(text):
            case {"v": 1, "key_schema": str(key), "value_schema": str(value)}:
                return cls(key, value)
        raise BridgeError(f"not a schema row: {text[:200]!r}")


@dataclass(frozen=True, slots=True)
class Begin:
    """What the sink must know before the first change of a lane.

    Attributes:
        task: the lane's part of the micro-batch.
        schemas: of its changes, up to the first schema row.
    """

    task: LaneTask
    schemas: Schemas

    def to_json(self) -> str:
        """The row's text."""
        task = self.task
        return canonical_json(
            {
                "v": 1,
                "keyspace": task.keyspace,
                "table": task.table,
                "lane": task.lane,
                "offset": StreamOffset(task.batch.next, task.batch).to_json(),
                **self.schemas.plain(),
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises BridgeError when the text is no begin row's."""
        match json.loads(text):
            case {
                "v": 1,
                "keyspace": str(keyspace),
                "table": str(table),
                "lane": int(lane),
                "offset": offset,
                "key_schema": str(key),
                "value_schema": str(value),
            }:
                batch = StreamOffset.from_json(offset).batch
                if batch is not None:
                    return cls(LaneTask(keyspace, table, lane, batch), Schemas(key, value))
        raise BridgeError(f"not a begin row: {text[:200]!r}")


def end_to_json(counted: Counted) -> str:
    """The text of an end row: what the reading process has counted since its last one."""
    return canonical_json({"v": 1, "counted": figures.to_json(counted)})


def end_from_json(text: str) -> Counted:
    """Raises BridgeError when the text is no end row's."""
    match json.loads(text):
        case {"v": 1, "counted": list(counted)}:
            return figures.from_json(counted)
    raise BridgeError(f"not an end row: {text[:200]!r}")
