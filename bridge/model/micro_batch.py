"""Micro-batches: what one reads, between which cursors, on how many lanes. Pure."""

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
