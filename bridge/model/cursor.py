"""How far a table is read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import Final, Self

from bridge.errors import BridgeError
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros

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
