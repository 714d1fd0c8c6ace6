"""Where a table's reading stands: cursors, micro-batches and their parts, lane layouts, and the two kept formats.

Two formats leave the process and are versioned: Spark's offset (`StreamOffset`) and the progress record in Kafka
(`LaneProgress`). Both are canonical JSON: sorted keys, no blanks, integers only. Spark compares offsets as text, so
another key order would be another offset.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import total_ordering
from typing import Any, Final, Self

from bridge.errors import BridgeError
from bridge.model.streams import TokenRange, lane_range
from bridge.model.times import UnixMicros, UnixMillis, lower_bound, micros_of, millis_to_micros, sort_key

OFFSET_VERSION: Final = 1
PROGRESS_VERSION: Final = 2

_YEAR_10000_US: Final = 253_402_300_800_000_000
"""What no calendar here reaches."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How far the streams that a generation opened are read, while they lag behind those that went on through it.

    Attributes:
        after_ms: the generation before; the opened streams are those that it did not have.
        time_us: everything of theirs before this is done.
    """

    after_ms: UnixMillis
    time_us: UnixMicros


@total_ordering
@dataclass(frozen=True, slots=True)
class Cursor:
    """A position of a table: every change before it is done.

    That is: all streams that were closed on the way to `generation_ms` are read to their very end, and the streams of
    that generation up to `time_us`; but those that it opened only up to `catch_up.time_us`, if that is given.

    Ordered by generation first, then by time: a generation may be published after its start, so time alone may step
    back when one is entered. A cursor never does.
    """

    generation_ms: UnixMillis
    time_us: UnixMicros
    catch_up: CatchUp | None = None

    def __post_init__(self) -> None:
        if self.catch_up is not None and not (
            self.catch_up.after_ms < self.generation_ms and self.catch_up.time_us < self.time_us
        ):
            raise ValueError(f"streams of generation {self.generation_ms} can't catch up like this: {self.catch_up}")

    @classmethod
    def at_start_of(cls, generation_ms: UnixMillis) -> Self:
        """The cursor of a generation of which nothing is done yet."""
        return cls(generation_ms, millis_to_micros(generation_ms))

    @property
    def reached_us(self) -> UnixMicros:
        """The time before which every stream of the generation is done."""
        return self.time_us if self.catch_up is None else self.catch_up.time_us

    def to_json(self) -> list[int]:
        """Generation in ms and time in us; then, while streams catch up, the generation before and their time."""
        plain = [self.generation_ms, self.time_us]
        return plain if self.catch_up is None else [*plain, self.catch_up.after_ms, self.catch_up.time_us]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The cursor that `to_json` gave; raises BridgeError for anything else."""
        match value:
            case [*numbers] if not all(isinstance(one, int) and 0 <= one < _YEAR_10000_US for one in numbers):
                pass
            case [int(generation_ms), int(time_us)]:
                return cls(UnixMillis(generation_ms), UnixMicros(time_us))
            case [int(generation_ms), int(time_us), int(after_ms), int(opened_us)]:
                catch_up = CatchUp(UnixMillis(after_ms), UnixMicros(opened_us))
                return cls(UnixMillis(generation_ms), UnixMicros(time_us), catch_up)
        raise BridgeError(f"not a cursor: {value!r}; expected [generation in ms, time in us]")

    def __lt__(self, other: Cursor) -> bool:
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, int, int]:
        return self.generation_ms, self.time_us, self.reached_us

    def __str__(self) -> str:
        if self.catch_up is None:
            return f"(generation {self.generation_ms}, {self.time_us} us)"
        return f"(generation {self.generation_ms}, {self.time_us} us, its own streams {self.catch_up.time_us} us)"


@dataclass(frozen=True, slots=True, order=True)
class GroupPosition:
    """The place of a group in the order of its part: `cdc$time` as the server orders it, then the stream id."""

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


@dataclass(frozen=True, slots=True, order=True)
class LanePosition:
    """The place of a group in a lane's micro-batch: its part's number, then its place there."""

    part: int
    group: GroupPosition

    def to_json(self) -> list[Any]:
        """The part's number, the stream id and the timeuuid in hex."""
        return [self.part, self.group.stream_id.hex(), self.group.timeuuid.hex()]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """The position that `to_json` gave; raises BridgeError for anything else."""
        match value:
            case [int(part), str(stream_id), str(timeuuid)]:
                return cls(part, GroupPosition.of(bytes.fromhex(stream_id), bytes.fromhex(timeuuid)))
        raise BridgeError(f"not a group's position: {value!r}")


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
    """A half-open span `[start_us, end_us)` of `cdc$time`.

    `end_us` None is the very end of closed streams: whatever they still hold.
    """

    start_us: UnixMicros
    end_us: UnixMicros | None

    def __post_init__(self) -> None:
        if self.end_us is not None and self.end_us <= self.start_us:
            raise ValueError(f"an empty window: [{self.start_us}, {self.end_us}) us")

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
        return f"[{self.start_us} us, {end})"


class Role(StrEnum):
    """Which streams of a generation are meant, seen from the one before or after it."""

    ALL = "all"
    """Those of the generation."""
    KEPT = "kept"
    """Those that it has in common with the generation before it."""
    OPENED = "opened"
    """Those that the generation before it did not have."""
    CLOSED = "closed"
    """Those that only the generation before it had."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Streams by name, however many they are.

    Attributes:
        generation_ms: the generation.
        before_ms: the one that it is compared with; None exactly for `Role.ALL`.
    """

    generation_ms: UnixMillis
    role: Role = Role.ALL
    before_ms: UnixMillis | None = None

    def __post_init__(self) -> None:
        if (self.before_ms is None) != (self.role is Role.ALL):
            raise ValueError(f"a comparison needs two generations: {self!r}")

    @property
    def read_as_ms(self) -> UnixMillis:
        """The newest generation whose streams these are."""
        if self.role is Role.CLOSED:
            assert self.before_ms is not None
            return self.before_ms
        return self.generation_ms

    def __str__(self) -> str:
        if self.role is Role.ALL:
            return f"generation {self.generation_ms}"
        return f"streams {self.role} from generation {self.before_ms} to {self.generation_ms}"


@dataclass(frozen=True, slots=True)
class Part:
    """Some streams and what of them to read."""

    selection: Selection
    window: Window

    def __str__(self) -> str:
        return f"{self.selection}, {self.window}"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """One micro-batch as it is planned, and replayed: the cursors at both of its ends, and its lanes.

    What is read follows from the two cursors alone: see `parts`.
    """

    start: Cursor
    next: Cursor
    layout: Layout

    def __post_init__(self) -> None:
        if self.next <= self.start:
            raise ValueError(f"a micro-batch that does not move the cursor on: {self.start} -> {self.next}")
        if self.start.catch_up is not None and self.next.generation_ms != self.start.generation_ms:
            raise ValueError(f"a generation is left before its own streams have caught up: {self.start}")

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is read: streams that no two parts share, so keys that no two parts share.

        Inside a generation all its streams, or, while those that it opened catch up, these and the others by
        themselves. From one generation to the next the closed streams to their very end, and the others as far as the
        next cursor says; the opened streams come with the next micro-batch, when these are committed on every lane.
        """
        start, end = self.start, self.next
        now = end.generation_ms
        if start.generation_ms != now:
            closed = Part(Selection(now, Role.CLOSED, start.generation_ms), Window(start.time_us, None))
            return (closed, *_part(Selection(now, Role.KEPT, start.generation_ms), start.time_us, end.time_us))
        if start.catch_up is None:
            return _part(Selection(now), start.time_us, end.time_us)
        before = start.catch_up.after_ms
        return (
            *_part(Selection(now, Role.OPENED, before), start.catch_up.time_us, end.reached_us),
            *_part(Selection(now, Role.KEPT, before), start.time_us, end.time_us),
        )

    @property
    def going_on(self) -> Window:
        """The window of the streams that go on through it; of the closed or opened ones where no others are read."""
        return self.parts[-1].window

    @property
    def longest_us(self) -> int:
        """The length of its longest window, in us; one to the very end has none."""
        windows = [part.window for part in self.parts]
        return max((window.end_us - window.start_us for window in windows if window.end_us is not None), default=0)

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))


def _part(selection: Selection, start_us: UnixMicros, end_us: UnixMicros) -> tuple[Part, ...]:
    return (Part(selection, Window(start_us, end_us)),) if end_us > start_us else ()


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
