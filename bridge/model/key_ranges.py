"""Which tokens' keys a stream holds, as far as the cluster tells it (spec sections 4.3 and 4.4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from bridge.model.streams import MAX_TOKEN, StreamId, Token, first_token_of_shard, shard_of

_WORD: Final = 1 << 64
_IGNORED_BITS: Final = (12, *(bits for bits in range(64) if bits != 12))
"""ScyllaDB's default, which hardly anybody changes, first: no table that clients may read tells it."""


class KeyRange:
    """The tokens `(after, until]`, going round the ring, that some streams share out by shard.

    ScyllaDB makes each shard's stream with the first of the range's tokens that the shard owns, so the streams tell how
    they were shared out. Where they do not fit that (old clusters with too many streams left some out), all that is
    known is the range; and without its beginning, nothing.
    """

    def __init__(self, after: Token | None, until: Token, streams: Sequence[StreamId]) -> None:
        """Take a range.

        Args:
            after: the token before it; None if that is not known.
            until: its last token.
            streams: all that its keys may be in, at least one.
        """
        self._after = after
        self._until = until
        self._tokens = sorted(stream.token for stream in streams)

    def holds(self, stream: StreamId, token: Token) -> bool | None:
        """Whether a key with this token belongs into one of the streams; None when that can't be told."""
        span = self._span
        if span is None:
            return None
        first, length = span
        if (token - first) % _WORD >= length:
            return False
        if self._by_shard is None:
            return True
        ignore_msb, firsts = self._by_shard
        return firsts[shard_of(token, len(firsts), ignore_msb)] == stream.token

    @cached_property
    def _span(self) -> tuple[int, int] | None:
        """The first token and how many there are; None where the beginning is not known."""
        after = self._after
        if after is None:
            if self._by_shard is None or len(self._tokens) == 1:
                return None
            after = self._first_before
        return after + 1, (self._until - after) % _WORD or _WORD

    @property
    def _first_before(self) -> Token:
        # The range's first token is owned by some shard, whose stream has it.
        first = max(self._tokens, key=lambda token: (self._until - token) % _WORD)
        return Token((first - 1 + (1 << 63)) % _WORD - (1 << 63))

    @cached_property
    def _by_shard(self) -> tuple[int, list[Token]] | None:
        """Ignored bits of the sharding function, and the token of each shard's stream; None where they do not fit."""
        after = self._first_before if self._after is None else self._after
        shards = len(self._tokens)
        for ignore_msb in _IGNORED_BITS if shards > 1 else _IGNORED_BITS[:1]:
            made = (first_token_of_shard(after, self._until, shard, shards, ignore_msb) for shard in range(shards))
            firsts = [self._until if token is None else token for token in made]
            if sorted(firsts) == self._tokens:
                return ignore_msb, firsts
        return None


def ranges_of_vnodes(sets: Iterable[tuple[Token, Sequence[StreamId]]]) -> dict[StreamId, KeyRange]:
    """The range of each stream of some neighbouring vnodes of a generation.

    Args:
        sets: of each vnode its last token and its streams, going up the ring; when it comes round, the first again.
    """
    found: dict[StreamId, KeyRange] = {}
    after: Token | None = None
    for until, streams in sets:
        range_ = KeyRange(after, until, streams)
        for stream in streams:
            found[stream] = range_
        after = until
    return found


def ranges_of_tablets(streams: Iterable[StreamId]) -> dict[StreamId, KeyRange]:
    """The range of each stream of a whole stream set: a tablet's stream has the tablet's last token."""
    ordered = sorted(streams, key=lambda stream: stream.token)
    after = MAX_TOKEN
    found: dict[StreamId, KeyRange] = {}
    for stream in ordered:
        found[stream] = KeyRange(after, stream.token, (stream,))
        after = stream.token
    return found
