"""Micro-batches: what one reads, from cursor to cursor, and on which lanes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from bridge.errors import BridgeError
from bridge.model.cursor import Cursor
from bridge.model.streams import TokenRange, lane_range
from bridge.model.times import UnixMicros, UnixMillis, lower_bound


@dataclass(frozen=True, slots=True)
class Layout:
    """How the token ring is divided into lanes, from a cursor on.

    Two layouts with the same number of lanes differ if another layout was used between them.

    Attributes:
        lanes: number of lanes, at least one.
        since: the cursor from which the layout is used.
    """

    lanes: int
    since: Cursor

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError(f"a layout has at least one lane, not {self.lanes}")

    def token_range(self, lane: int) -> TokenRange:
        """Return the slice of the token ring that a lane reads."""
        return lane_range(lane, self.lanes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"lanes": self.lanes, "since": self.since.to_json()}

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the layout of a value that `to_json` returned.

        Raises:
            BridgeError: the value is no layout.
            ValueError: it has no lane.
        """
        match value:
            case {"lanes": int(lanes), "since": since}:
                return cls(lanes, Cursor.from_json(since))
        raise BridgeError(f"not a lane layout: {value!r}")


@dataclass(frozen=True, slots=True)
class Window:
    """A half-open span `[start_us, end_us)` of `cdc$time`, in us.

    Attributes:
        start_us: inclusive.
        end_us: exclusive; None reads closed streams completely.
    """

    start_us: UnixMicros
    end_us: UnixMicros | None

    def __post_init__(self) -> None:
        if self.end_us is not None and self.end_us <= self.start_us:
            raise ValueError(f"an empty window: [{self.start_us}, {self.end_us}) us")

    @property
    def lower_timeuuid(self) -> bytes:
        """The inclusive bound as a timeuuid."""
        return lower_bound(self.start_us)

    @property
    def upper_timeuuid(self) -> bytes | None:
        """The exclusive bound as a timeuuid; None if there is no bound."""
        return None if self.end_us is None else lower_bound(self.end_us)

    def __str__(self) -> str:
        end = "its very end" if self.end_us is None else f"{self.end_us} us"
        return f"[{self.start_us} us, {end})"


class Role(StrEnum):
    """Which streams a selection holds, compared between a generation and the one before it."""

    ALL = "all"
    """All streams of the generation."""
    KEPT = "kept"
    """Streams that both generations have."""
    OPENED = "opened"
    """Streams that only the later generation has."""
    CLOSED = "closed"
    """Streams that only the earlier generation has."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Streams named by generation and role, so that a plan stays small however many streams there are.

    Attributes:
        generation_ms: the generation (start in ms).
        role: which of its streams.
        before_ms: the generation before it, with which it is compared; None for `Role.ALL` only.
    """

    generation_ms: UnixMillis
    role: Role = Role.ALL
    before_ms: UnixMillis | None = None

    def __post_init__(self) -> None:
        if (self.before_ms is None) != (self.role is Role.ALL):
            raise ValueError(f"a comparison needs two generations: {self!r}")

    @property
    def newest_generation_ms(self) -> UnixMillis:
        """The newest generation (start in ms) that has these streams."""
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
    """A part of a micro-batch: streams and the window to read of them."""

    selection: Selection
    window: Window

    def __str__(self) -> str:
        return f"{self.selection}, {self.window}"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A planned micro-batch. A replay reads the same, because the two cursors determine what is read.

    Attributes:
        start: the cursor before the micro-batch.
        next: the cursor after it.
        layout: the lanes that read it.
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
        """The one or two parts to read. No two parts share a stream, so no two parts share a key.

        Inside a generation there is one part with all streams. While the opened streams catch up, there are two: the
        opened streams and the kept ones.

        From one generation to the next, one part reads the closed streams completely and the other reads the kept
        streams up to the next cursor. The following micro-batch reads the opened streams, after every lane has
        committed this one.
        """
        start, end = self.start, self.next
        now = end.generation_ms
        if start.generation_ms != now:
            closed = Part(Selection(now, Role.CLOSED, start.generation_ms), Window(start.time_us, None))
            return (closed, *_part_if_any(Selection(now, Role.KEPT, start.generation_ms), start.time_us, end.time_us))
        if start.catch_up is None:
            return _part_if_any(Selection(now), start.time_us, end.time_us)
        before = start.catch_up.after_ms
        return (
            *_part_if_any(Selection(now, Role.OPENED, before), start.catch_up.time_us, end.reached_us),
            *_part_if_any(Selection(now, Role.KEPT, before), start.time_us, end.time_us),
        )

    @property
    def kept_window(self) -> Window:
        """The window of the kept streams; that of the closed or opened streams if no others are read."""
        return self.parts[-1].window

    @property
    def longest_us(self) -> int:
        """The length of the longest window with an end, in us; 0 if there is none."""
        start, end = self.start, self.next
        if start.catch_up is None and start.generation_ms == end.generation_ms:
            return max(end.time_us - start.time_us, 0)
        windows = [part.window for part in self.parts]
        return max((window.end_us - window.start_us for window in windows if window.end_us is not None), default=0)

    def __str__(self) -> str:
        return "; ".join(map(str, self.parts))


def _part_if_any(selection: Selection, start_us: UnixMicros, end_us: UnixMicros) -> tuple[Part, ...]:
    return (Part(selection, Window(start_us, end_us)),) if end_us > start_us else ()
