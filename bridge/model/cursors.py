"""Where a table's reading stands: cursors, windows, lane layouts, and the two formats that are kept.

Two formats leave the process and are versioned: Spark's offset (`StreamOffset`) and the progress record in Kafka
(`LaneProgress`). Both are canonical JSON: sorted keys, no blanks, integers only. Spark compares offsets as text, so
another key order would be another offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Self

from bridge.errors import BridgeError
from bridge.model.streams import TokenRange, lane_range
from bridge.model.times import UnixMicros, UnixMillis, lower_bound, micros_of, millis_to_micros, sort_key

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """A position of a table: every change before it is done. Ordered by generation first, then by time.

    A generation may be published after its start, so time alone may step back when one is entered; a cursor never
    does.
    """

    generation_ms: UnixMillis
    time_us: UnixMicros

    @classmethod
    def at_start_of(cls, generation_ms: UnixMillis) -> Self:
        """The cursor of a generation of which nothing is done yet."""
        return cls(generation_ms, millis_to_micros(generation_ms))

    def to_json(self) -> list[int]:
        """Generation in ms and time in us."""
        return [self.generation_ms, self.time_us]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The cursor that `to_json` gave; raises BridgeError for anything else."""
        match value:
            case [int(generation_ms), int(time_us)]:
                return cls(UnixMillis(generation_ms), UnixMicros(time_us))
        raise BridgeError(f"not a cursor: {value!r}; expected [generation in ms, time in us]")

    def __str__(self) -> str:
        return f"(generation {self.generation_ms}, {self.time_us} us)"


@dataclass(frozen=True, slots=True, order=True)
class GroupPosition:
    """The place of a group in the order of its lane: `cdc$time` as the server orders it, then the stream id."""

    key: bytes
    stream_id: bytes
    timeuuid: bytes

    @classmethod
    def of(cls, stream_id: bytes, timeuuid: bytes) -> Self:
        """The position of a group by its stream id and `cdc$time` (16 raw bytes each)."""
        return cls(sort_key(timeuuid), stream_id, timeuuid)

    @property
    def time_us(self) -> UnixMicros:
        """The group's write timestamp in us."""
        return micros_of(self.timeuuid)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the token ring is cut into lanes, and since which cursor that holds.

    Two layouts with the same number of lanes are different ones when another lay between them.
    """

    lanes: int
    since: Cursor

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError(f"a layout has at least one lane, not {self.lanes}")

    def token_range(self, lane: int) -> TokenRange:
        """The slice of the ring that a lane works."""
        return lane_range(lane, self.lanes)

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"lanes": self.lanes, "since": self.since.to_json()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The layout that `to_json` gave; raises BridgeError for anything else."""
        match value:
            case {"lanes": int(lanes), "since": since}:
                return cls(lanes, Cursor.from_json(since))
        raise BridgeError(f"not a lane layout: {value!r}")


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open span `[start_us, end_us)` of `cdc$time` in one generation.

    `end_us` None is the very end of a closed generation: whatever its streams still hold.
    """

    generation_ms: UnixMillis
    start_us: UnixMicros
    end_us: UnixMicros | None

    def __post_init__(self) -> None:
        if self.end_us is not None and self.end_us <= self.start_us:
            raise ValueError(f"an empty window: [{self.start_us}, {self.end_us}) us")

    @property
    def start(self) -> Cursor:
        """The cursor from which the window reads."""
        return Cursor(self.generation_ms, self.start_us)

    @property
    def lower_timeuuid(self) -> bytes:
        """Inclusive."""
        return lower_bound(self.start_us)

    @property
    def upper_timeuuid(self) -> bytes | None:
        """Exclusive; None when there is no bound."""
        return None if self.end_us is None else lower_bound(self.end_us)

    def __str__(self) -> str:
        end = "its very end" if self.end_us is None else f"{self.end_us} us"
        return f"generation {self.generation_ms}, [{self.start_us} us, {end})"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One micro-batch as it is planned, and replayed: its window, its lanes, and the cursor when it is done."""

    window: Window
    layout: Layout
    next: Cursor

    def __post_init__(self) -> None:
        if self.next <= self.window.start:
            raise ValueError(f"a micro-batch that does not move the cursor on: {self.window.start} -> {self.next}")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """A position of the streaming query: the cursor reached, and the micro-batch that reaches it.

    As JSON: `{"batch":{"end_us":1700000010000000,"generation_ms":1699999000000,"layout":{"lanes":2,
    "since":[1699999000000,1699999000000000]},"start_us":1700000000000000},"next":[1699999000000,1700000010000000],
    "v":1}`; `batch` is null in the very first offset.
    """

    next: Cursor
    batch: PlannedBatch | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON; `canonical_json` makes the text."""
        batch = None
        if self.batch is not None:
            window = self.batch.window
            batch = {
                "generation_ms": window.generation_ms,
                "start_us": window.start_us,
                "end_us": window.end_us,
                "layout": self.batch.layout.to_json(),
            }
        return {"v": FORMAT_VERSION, "next": self.next.to_json(), "batch": batch}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The offset of a decoded JSON document.

        Raises:
            BridgeError: it is of another version or another shape.
        """
        match value:
            case {"v": 1, "next": position, "batch": None}:
                return cls(Cursor.from_json(position), None)
            case {
                "v": 1,
                "next": position,
                "batch": {
                    "generation_ms": int(generation_ms),
                    "start_us": int(start_us),
                    "end_us": (int() | None) as end_us,
                    "layout": layout,
                },
            }:
                window = Window(
                    UnixMillis(generation_ms),
                    UnixMicros(start_us),
                    None if end_us is None else UnixMicros(end_us),
                )
                reached = Cursor.from_json(position)
                return cls(reached, PlannedBatch(window, Layout.from_json(layout), reached))
        raise BridgeError(
            f"not an offset of version {FORMAT_VERSION}: {value!r}; was the checkpoint made by another release?"
        )


@dataclass(frozen=True, slots=True)
class LaneProgress:
    """The committed cursor of a lane, as its partition of the progress topic holds it.

    Everything before `cursor` is published, and of what follows everything up to and including the group `done`.

    As JSON: `{"cursor":[1699999000000,1700000010000000],"done":null,"lane":0,"layout":{"lanes":2,
    "since":[1699999000000,1699999000000000]},"v":1}`, `done` being `[stream id in hex, timeuuid in hex]` when a
    transaction ended inside a window.
    """

    lane: int
    layout: Layout
    cursor: Cursor
    done: GroupPosition | None = None

    def to_bytes(self) -> bytes:
        """The record's value."""
        done = None if self.done is None else [self.done.stream_id.hex(), self.done.timeuuid.hex()]
        return canonical_json(
            {
                "v": FORMAT_VERSION,
                "lane": self.lane,
                "layout": self.layout.to_json(),
                "cursor": self.cursor.to_json(),
                "done": done,
            }
        ).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """Raises BridgeError when the record is of another version or another shape."""
        try:
            value = json.loads(raw)
        except ValueError as error:
            raise BridgeError(f"a progress record is no JSON: {raw[:80]!r}") from error
        match value:
            case {"v": 1, "lane": int(lane), "layout": layout, "cursor": cursor, "done": done}:
                position = None
                if done is not None:
                    position = GroupPosition.of(bytes.fromhex(done[0]), bytes.fromhex(done[1]))
                return cls(lane, Layout.from_json(layout), Cursor.from_json(cursor), position)
        raise BridgeError(f"a progress record is not of version {FORMAT_VERSION}: {raw[:200]!r}")


def canonical_json(value: object) -> str:
    """JSON text that is equal for equal values: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
