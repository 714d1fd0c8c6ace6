"""Cursors: how far a table is read. Pure.

From one generation to the next, some streams close, some open and the rest are kept. A cursor says how far the streams
of its generation are read, and that all streams that closed before are read completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import total_ordering
from typing import Final, Self

from bridge.errors import BridgeError
from bridge.model.times import UnixMicros, UnixMillis, millis_to_micros

_YEAR_10000_US: Final = 253_402_300_800_000_000
"""No valid time reaches it, so a greater number shows that a text is no cursor."""


@dataclass(frozen=True, slots=True)
class CatchUp:
    """How far the opened streams of a generation are read while they lag behind its kept streams.

    Attributes:
        after_ms: the generation before, in ms; it does not have the opened streams.
        time_us: all changes of the opened streams before this time (us) are published.
    """

    after_ms: UnixMillis
    time_us: UnixMicros


@total_ordering
@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a table is read: every change before the cursor is published.

    Cursors are ordered by generation first and by time second. A generation may be published after its start, so the
    time may step back when the next generation is entered. The cursor itself never steps back.

    Attributes:
        generation_ms: the generation (start in ms). All streams that closed before it are read completely.
        time_us: the streams of this generation are read up to this time (us).
        catch_up: if given, the opened streams of this generation are read only up to `catch_up.time_us`.
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
        """Return the cursor of a generation of which nothing is read yet."""
        return cls(generation_ms, millis_to_micros(generation_ms))

    @property
    def reached_us(self) -> UnixMicros:
        """The time (us) up to which every stream of the generation is read."""
        return self.time_us if self.catch_up is None else self.catch_up.time_us

    def to_json(self) -> list[int]:
        """Return `[generation in ms, time in us]`, and then `after_ms` and `time_us` of `catch_up` if it is given."""
        plain = [self.generation_ms, self.time_us]
        return plain if self.catch_up is None else [*plain, self.catch_up.after_ms, self.catch_up.time_us]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the cursor of a value that `to_json` returned.

        Raises:
            BridgeError: the value is no cursor.
            ValueError: the opened streams are not behind the others.
        """
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
