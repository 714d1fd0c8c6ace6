"""The two formats that outlive a process: Spark's offset and the progress record in Kafka. Pure.

Both hold a version. Both are canonical JSON: sorted keys, no blanks, integers only. Spark compares offsets as text, so
another key order would be another offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import LanePosition
from bridge.model.table_facts import TableFacts
from bridge.model.times import UnixMicros, UnixMillis

OFFSET_VERSION: Final = 1
PROGRESS_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """An offset of the streaming query: a cursor, and the micro-batch that ends there.

    As JSON: `{"batch":{"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"start":[1699999000000,
    1700000000000000]},"next":[1699999000000,1700000010000000],"turn":7,"v":1}`. `batch` is null in the first offset of
    a query.

    Attributes:
        next: the cursor.
        batch: the micro-batch that ends at `next`; None in the first offset.
        turn: number of the offset in the checkpoint. If the progress in Kafka requires the same micro-batch again, only
            `turn` makes its offset a new one for Spark.
    """

    next: Cursor
    batch: PlannedBatch | None
    turn: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `canonical_json`."""
        batch = None
        if self.batch is not None:
            batch = {"start": self.batch.start.to_json(), "layout": self.batch.layout.to_json()}
        return {"v": OFFSET_VERSION, "next": self.next.to_json(), "batch": batch, "turn": self.turn}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the offset of a decoded JSON document.

        Raises:
            BridgeError: the document has another version or shape, or contradicts itself.
        """
        try:
            return cls._parse(value)
        except ValueError as error:
            raise BridgeError(f"an offset contradicts itself: {error}: {value!r}") from error

    @classmethod
    def _parse(cls, value: object) -> Self:
        match value:
            case {"v": 1, "next": position, "batch": None, "turn": int(turn)}:
                return cls(Cursor.from_json(position), None, turn)
            case {"v": 1, "next": position, "batch": {"start": start, "layout": layout}, "turn": int(turn)}:
                reached = Cursor.from_json(position)
                return cls(reached, PlannedBatch(Cursor.from_json(start), reached, Layout.from_json(layout)), turn)
        raise BridgeError(
            f"not an offset of version {OFFSET_VERSION}: {value!r}; was the checkpoint made by another release?"
        )


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """The committed progress of a lane, as the lane's partition of the progress topic holds it.

    Everything before `cursor` is published. Of the micro-batch that begins there, every group up to and including
    `done` is published. A job that has lost Spark's checkpoint takes `batch` from here and finishes exactly this
    micro-batch on all lanes.

    As JSON: `{"batch":[[1699999000000,1700000000000000],[1699999000000,1700000010000000]],"done":null,"from":
    1699990000000,"lane":0,"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"owner":"bridge-0/17/5f0c",
    "v":2}`. `batch` holds the cursors at both ends of the micro-batch; they are equal if a layout was written. `done`
    is `[part, stream id in hex, timeuuid in hex]` if a transaction ended inside the micro-batch.

    Attributes:
        lane: number of the lane, from 0.
        layout: the layout of the lanes.
        cursor: the cursor that the lane has reached.
        batch: the last micro-batch of which anything was committed; None before the first one of the layout.
        done: the last committed group; None if the whole micro-batch is committed.
        owner: fencing token of the table's owner; only the owner's plans are carried out.
        entered_from_ms: the generation that was read before the cursor's; None if the reading began in the cursor's.
        first: whether nothing of the table was published yet, under this or an earlier layout (`"first":true`).
        edge_us: the retention edge (us) at the table's first start: changes written before it may have expired. Given
            only if the reading began at the edge or earlier, and `batch` is None or the table's first (`"edge"`).
        facts: what is known about the table apart from its cursor; None, and no `"facts"`, when nothing is.
    """

    lane: int
    layout: Layout
    cursor: Cursor
    batch: PlannedBatch | None = None
    done: LanePosition | None = None
    owner: str = ""
    entered_from_ms: UnixMillis | None = None
    first: bool = False
    edge_us: UnixMicros | None = None
    facts: TableFacts | None = None

    def __post_init__(self) -> None:
        if self.batch is None:
            if self.done is not None:
                raise ValueError(f"lane {self.lane} is inside a micro-batch that the record does not name")
        elif self.batch.layout != self.layout:
            raise ValueError(f"lane {self.lane}: its micro-batch has another layout")
        elif self.cursor != (self.batch.next if self.done is None else self.batch.start):
            raise ValueError(f"lane {self.lane}: {self.cursor} is not the cursor of its micro-batch")

    @classmethod
    def completed(
        cls,
        lane: int,
        batch: PlannedBatch,
        entered_from_ms: UnixMillis | None = None,
        *,
        edge_us: UnixMicros | None = None,
    ) -> Self:
        """Return the progress of a lane that has committed a whole micro-batch.

        `entered_from_ms` and `edge_us` are those of the lane's progress before it.
        """
        before_ms = batch.start.generation_ms
        entered = entered_from_ms if batch.next.generation_ms == before_ms else before_ms
        return cls(lane, batch.layout, batch.next, batch, entered_from_ms=entered, edge_us=edge_us)

    @classmethod
    def inside(
        cls,
        lane: int,
        batch: PlannedBatch,
        done: LanePosition,
        entered_from_ms: UnixMillis | None = None,
        *,
        edge_us: UnixMicros | None = None,
    ) -> Self:
        """Return the progress of a lane that has committed a micro-batch up to the group `done`.

        `entered_from_ms` and `edge_us` are those of the lane's progress before it.
        """
        return cls(lane, batch.layout, batch.start, batch, done, entered_from_ms=entered_from_ms, edge_us=edge_us)

    def to_bytes(self) -> bytes:
        """Return the value of the progress record."""
        start, end = (self.cursor, self.cursor) if self.batch is None else (self.batch.start, self.batch.next)
        return canonical_json(
            {
                "v": PROGRESS_VERSION,
                "lane": self.lane,
                "layout": self.layout.to_json(),
                "batch": [start.to_json(), end.to_json()],
                "done": None if self.done is None else self.done.to_json(),
                "owner": self.owner,
                "from": self.entered_from_ms,
                **({"first": True} if self.first else {}),
                **({} if self.edge_us is None else {"edge": self.edge_us}),
                **({} if self.facts is None else {"facts": self.facts.to_json()}),
            }
        ).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Return the progress in a record's value.

        Raises:
            BridgeError: the record has another version or shape, or contradicts itself.
        """
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BridgeError(f"a progress record is not JSON: {raw[:80]!r}") from error
        try:
            return cls._parse(value)
        except ValueError as error:
            raise BridgeError(f"a progress record contradicts itself: {error}: {raw[:200]!r}") from error

    @classmethod
    def _parse(cls, value: object) -> Self:
        match value:
            case {
                "v": 2,
                "lane": int(lane),
                "layout": layout,
                "batch": [start, end],
                "done": done,
                "owner": str(owner),
                "from": int() | None as before_ms,
                **others,
            }:
                parsed, first, last = Layout.from_json(layout), Cursor.from_json(start), Cursor.from_json(end)
                entered_from_ms = None if before_ms is None else UnixMillis(before_ms)
                edge = others.get("edge")
                edge_us = UnixMicros(edge) if type(edge) is int else None
                facts = TableFacts.from_json(others["facts"]) if "facts" in others else None
                if first == last:
                    is_first = others.get("first") is True
                    return cls(lane, parsed, last, None, None, owner, entered_from_ms, is_first, edge_us, facts)
                batch = PlannedBatch(first, last, parsed)
                at = last if done is None else first
                position = None if done is None else LanePosition.from_json(done)
                return cls(lane, parsed, at, batch, position, owner, entered_from_ms, edge_us=edge_us, facts=facts)
        raise BridgeError(f"a progress record is not of version {PROGRESS_VERSION}: {str(value)[:200]}")


def canonical_json(value: object) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
