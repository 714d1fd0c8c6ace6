"""Positions: of a change in the log, of a group, and of a group in a lane's micro-batch. Pure.

The bytes of a position are stream id (16), `cdc$time` (16) and `cdc$batch_seq_no` (4, big-endian, signed). The header
`cdc.position` holds them. Code that runs for each change keeps the bytes and slices them with the functions and
constants of this module; `Position` is for messages and documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from bridge.errors import BridgeError
from bridge.model.streams import STREAM_ID_BYTES
from bridge.model.times import UnixMicros, micros_of, sort_key
from schemas.log.timeuuid import TIMEUUID_BYTES

GROUP_BYTES: Final = STREAM_ID_BYTES + TIMEUUID_BYTES
"""A position begins with so many bytes that name its group: stream id and `cdc$time`."""
POSITION_BYTES: Final = GROUP_BYTES + 4


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a change in the log.

    Attributes:
        stream_id: 16 bytes.
        timeuuid: `cdc$time`, 16 bytes.
        batch_seq_no: the change's place in its group.
    """

    stream_id: bytes
    timeuuid: bytes
    batch_seq_no: int

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """The position of its bytes; a damaged log row may lack the last four, which then count as 0."""
        batch_seq_no = int.from_bytes(raw[GROUP_BYTES:], "big", signed=True)
        return cls(raw[:STREAM_ID_BYTES], raw[STREAM_ID_BYTES:GROUP_BYTES], batch_seq_no)

    @classmethod
    def from_header(cls, header: bytes) -> Self | None:
        """The position in a record's header `cdc.position`; None if the header is missing or has another length."""
        return cls.from_bytes(header) if len(header) == POSITION_BYTES else None

    @property
    def time_us(self) -> UnixMicros:
        """The write timestamp in us."""
        return micros_of(self.timeuuid)

    def describe(self) -> str:
        """The position for error messages, with the write timestamp in us."""
        return f"stream 0x{self.stream_id.hex()}, {self.time_us} us, batch_seq_no {self.batch_seq_no}"

    def __str__(self) -> str:
        return f"0x{self.stream_id.hex()}/{UUID(bytes=self.timeuuid)}/{self.batch_seq_no}"


@dataclass(frozen=True, slots=True, order=True)
class GroupPosition:
    """The position of a group, ordered as a lane publishes the groups of one part.

    Attributes:
        key: orders `cdc$time` as the server does (`bridge.model.times.sort_key`).
        stream_id: 16 bytes; orders groups of equal times.
        timeuuid: `cdc$time`, 16 bytes.
    """

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
    """The position of a group in a lane's micro-batch.

    Attributes:
        part: the number of the micro-batch's part, from 0.
        group: the position in that part.
    """

    part: int
    group: GroupPosition

    def to_json(self) -> list[Any]:
        """Return the part's number, and stream id and timeuuid in hex."""
        return [self.part, self.group.stream_id.hex(), self.group.timeuuid.hex()]

    @classmethod
    def from_json(cls, value: object) -> Self:
        """Return the position of a value that `to_json` returned.

        Raises:
            BridgeError: the value has another shape.
            ValueError: stream id or timeuuid is not in hex, or the timeuuid has not 16 bytes.
        """
        match value:
            case [int(part), str(stream_id), str(timeuuid)]:
                return cls(part, GroupPosition.of(bytes.fromhex(stream_id), bytes.fromhex(timeuuid)))
        raise BridgeError(f"not a group's position: {value!r}")


def group_of(position: bytes) -> GroupPosition:
    """Return the group of a change's position bytes; bytes behind the group's are ignored."""
    return GroupPosition.of(position[:STREAM_ID_BYTES], position[STREAM_ID_BYTES:GROUP_BYTES])


def timeuuid_in(position: bytes) -> bytes:
    """Return the `cdc$time` of a change's position bytes."""
    return position[STREAM_ID_BYTES:GROUP_BYTES]


def sort_key_of(position: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a key that orders the position bytes of changes as a lane publishes the changes of one part."""
    timeuuid = position[STREAM_ID_BYTES:GROUP_BYTES]
    return sort_key(timeuuid), position[:STREAM_ID_BYTES], position[GROUP_BYTES:]
