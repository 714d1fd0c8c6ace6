"""The two formats that outlive a process: Spark's offset and the progress record in Kafka. Pure.

Both carry a version. Both are canonical JSON: sorted keys, no blanks, integers only. Spark compares offsets as text, so
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
from bridge.model.times import UnixMicros, UnixMillis

OFFSET_VERSION: Final = 1
PROGRESS_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position of the streaming query: the cursor reached, and the micro-batch that reaches it.

    As JSON: `{"batch":{"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"start":[1699999000000,
    1700000000000000]},"next":[1699999000000,1700000010000000],"turn":7,"v":1}`; `batch` is null in the very
    first offset.

    Attributes:
        turn: counts the checkpoint's offsets. Should the same micro-batch have to be worked again, because Kafka says
            so, its offset still differs from the last one; Spark would see nothing new else.
    """

    next: Cursor
    batch: PlannedBatch | None
    turn: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `canonical_json` makes the text."""
        batch = None
        if self.batch is not None:
            batch = {"start": self.batch.start.to_json(), "layout": self.batch.layout.to_json()}
        return {"v": OFFSET_VERSION, "next": self.next.to_json(), "batch": batch, "turn": self.turn}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The offset of a decoded JSON document.

        Raises:
            BridgeError: it is of another version or another shape.
        """
        try:
            return cls._from_json(value)
        except ValueError as error:
            raise BridgeError(f"an offset contradicts itself: {error}: {value!r}") from error

    @classmethod
    def _from_json(cls, value: object) -> Self:
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
    """What of a lane is committed, as its partition of the progress topic holds it.

    Everything before `cursor` is published, and of what follows everything up to and including the group `done`. The
    record keeps the micro-batch that it belongs to, so that a job that has lost Spark's checkpoint finishes that very
    micro-batch on the lanes that have not.

    As JSON: `{"batch":[[1699999000000,1700000000000000],[1699999000000,1700000010000000]],"done":null,"from":
    1699990000000,"lane":0,"layout":{"lanes":2,"since":[1699999000000,1699999000000000]},"owner":"bridge-0/17/5f0c",
    "v":2}`, `batch` being the cursors at both of its ends (equal ones where a layout was laid), `done` being `[part,
    stream id in hex, timeuuid in hex]` when a transaction ended inside the micro-batch.

    Attributes:
        batch: the last micro-batch of which anything was committed; None before the layout's first.
        done: the last committed group, if that is not the whole micro-batch.
        owner: who has taken the table over last; only its plans are carried out.
        entered_from_ms: the generation that was read before the cursor's; None when the reading began in that one.
        first: whether nothing of the table was published yet, under this layout or an earlier one; then there is
            `"first":true`, too.
        edge_us: before which write time changes may have expired when the table's very first lanes were laid, if they
            were laid there or behind it, and `batch` is None or its very first; otherwise None, with no `"edge"`.
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

    def __post_init__(self) -> None:
        if self.batch is None:
            if self.done is not None:
                raise ValueError(f"lane {self.lane} stands inside a micro-batch that is not named")
        elif self.batch.layout != self.layout:
            raise ValueError(f"lane {self.lane}: its micro-batch is of another layout")
        elif self.cursor != (self.batch.next if self.done is None else self.batch.start):
            raise ValueError(f"lane {self.lane}: {self.cursor} is not where its micro-batch has got it")

    @classmethod
    def completed(
        cls,
        lane: int,
        batch: PlannedBatch,
        entered_from_ms: UnixMillis | None = None,
        *,
        edge_us: UnixMicros | None = None,
    ) -> Self:
        """Of a lane that has committed the whole of a micro-batch; `entered_from_ms` as it was before."""
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
        """Of a lane that has committed a micro-batch up to a group; `entered_from_ms` as it was before."""
        return cls(lane, batch.layout, batch.start, batch, done, entered_from_ms=entered_from_ms, edge_us=edge_us)

    def to_bytes(self) -> bytes:
        """The record's value."""
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
            }
        ).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Raises BridgeError when the record is of another version or another shape."""
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise BridgeError(f"a progress record is no JSON: {raw[:80]!r}") from error
        try:
            return cls._from_json(value)
        except ValueError as error:
            raise BridgeError(f"a progress record contradicts itself: {error}: {raw[:200]!r}") from error

    @classmethod
    def _from_json(cls, value: object) -> Self:
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
                laid, first, last = Layout.from_json(layout), Cursor.from_json(start), Cursor.from_json(end)
                entered_from_ms = None if before_ms is None else UnixMillis(before_ms)
                edge = others.get("edge")
                # Jobs of before wrote `true`, wherever the table had begun.
                edge_us = UnixMicros(edge) if type(edge) is int else None
                if first == last:
                    is_first = others.get("first") is True
                    return cls(lane, laid, last, None, None, owner, entered_from_ms, is_first, edge_us)
                batch = PlannedBatch(first, last, laid)
                at = last if done is None else first
                position = None if done is None else LanePosition.from_json(done)
                return cls(lane, laid, at, batch, position, owner, entered_from_ms, edge_us=edge_us)
        raise BridgeError(f"a progress record is not of version {PROGRESS_VERSION}: {str(value)[:200]}")


def canonical_json(value: object) -> str:
    """JSON text that is equal for equal values: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
