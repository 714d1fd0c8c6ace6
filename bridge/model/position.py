"""Places of groups in the order in which a lane publishes them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from bridge.errors import BridgeError
from bridge.model.times import UnixMicros, micros_of, sort_key


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
