"""Streams and tokens: the layout of stream ids, lanes as slices of the token ring, and shards of tokens. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NewType

from bridge.model.times import UnixMillis

Token = NewType("Token", int)
"""A point on the token ring (signed 64-bit)."""

MIN_TOKEN: Final = Token(-(1 << 63))
MAX_TOKEN: Final = Token((1 << 63) - 1)
_WORD: Final = 1 << 64
STREAM_ID_BYTES: Final = 16
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class StreamId:
    """The id of a stream, which is the partition key of the log table.

    Ids are ordered as unsigned bytes, as on the server. Ids older than version 1 hold nothing but the token.

    Attributes:
        raw: 16 bytes.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) < 8:
            raise ValueError(f"a stream id has at least 8 bytes, not {len(self.raw)}: 0x{self.raw.hex()}")

    @classmethod
    def build(cls, token: Token, index: int, random: int) -> StreamId:
        """Return the version 1 id of a token, a vnode index (22 bits) and 38 random bits."""
        low = (random & ((1 << 38) - 1)) << 26 | (index & 0x3FFFFF) << 4 | _VERSION
        return cls((token % _WORD).to_bytes(8, "big") + low.to_bytes(8, "big"))

    @property
    def token(self) -> Token:
        """The stream's token: the first 8 bytes of the id."""
        return Token(int.from_bytes(self.raw[:8], "big", signed=True))

    @property
    def version(self) -> int:
        """The version of the id's format; 1 since ScyllaDB 4.3."""
        return self._low & 0xF

    @property
    def index(self) -> int:
        """The number of the vnode in token order; 0 for tablets."""
        return (self._low >> 4) & 0x3FFFFF

    @property
    def _low(self) -> int:
        return int.from_bytes(self.raw[8:STREAM_ID_BYTES], "big")

    def __str__(self) -> str:
        return f"0x{self.raw.hex()}"


Streams = Mapping[StreamId, UnixMillis]
"""Streams, each with the start of the generation that opened it."""


@dataclass(frozen=True, slots=True)
class TokenRange:
    """A slice `(after, until]` of the token ring that does not wrap round.

    Attributes:
        after: exclusive; None for the beginning of the ring, because the lowest token may itself be in the slice.
        until: inclusive.
    """

    after: Token | None
    until: Token

    def __contains__(self, token: object) -> bool:
        return isinstance(token, int) and (self.after is None or token > self.after) and token <= self.until


def lane_range(lane: int, lanes: int) -> TokenRange:
    """Return the slice of the ring that a lane reads.

    Together, the slices of all lanes hold every token once.

    Args:
        lane: number of the lane, from 0.
        lanes: number of lanes.

    Raises:
        ValueError: there is no such lane.
    """
    if not 0 <= lane < lanes:
        raise ValueError(f"lane {lane} does not exist among {lanes} lanes")
    span = _WORD
    after = None if lane == 0 else Token(MIN_TOKEN + span * lane // lanes - 1)
    return TokenRange(after, Token(MIN_TOKEN + span * (lane + 1) // lanes - 1))


def shard_of(token: Token, shards: int, ignore_msb: int) -> int:
    """Return the shard that owns a token.

    Args:
        token: the token.
        shards: number of shards of the node.
        ignore_msb: ignored bits of the sharding function (12 is ScyllaDB's default).
    """
    unbiased = (token + (1 << 63)) % _WORD
    return (((unbiased << ignore_msb) % _WORD) * shards) >> 64


def first_token_of_shard(after: Token, until: Token, shard: int, shards: int, ignore_msb: int) -> Token | None:
    """Return the first token of a range that a shard owns; None if it owns none of them.

    Args:
        after: the token before the range.
        until: the last token of the range, which may wrap round the ring.
        shard: the shard.
        shards: number of shards of the node.
        ignore_msb: ignored bits of the sharding function.
    """
    start = (after + 1 + (1 << 63)) % _WORD
    length = (until - after) % _WORD or _WORD
    period = _WORD >> ignore_msb
    # The first position inside a period that the shard owns.
    within = -(-(shard << (64 - ignore_msb)) // shards)
    base = start - start % period
    candidate = start if shard_of(Token(start - (1 << 63)), shards, ignore_msb) == shard else base + within
    if candidate < start:
        candidate += period
    if candidate % _WORD == 0:
        candidate += 1  # no key has the lowest token
    if candidate - start >= length:
        return None
    return Token((candidate % _WORD) - (1 << 63))
