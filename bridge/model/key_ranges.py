"""Which tokens a stream serves, as far as the cluster's metadata tables say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from bridge.model.streams import MAX_TOKEN, StreamId, Token, first_token_of_shard, shard_of

_WORD: Final = 1 << 64
_IGNORED_BITS: Final = (12, *(bits for bits in range(64) if bits != 12))
"""Candidates for the ignored bits of the sharding function, ScyllaDB's default first: clients can't read the value."""

_Sharding = tuple[int, list[Token]]


class KeyRange:
    """A token range `(after, until]`, which may wrap round the ring, and the stream group that serves it.

    ScyllaDB gives each shard's stream the first token of the range that the shard owns, so the streams' tokens show the
    sharding. Old clusters left streams out when there were too many. Then the tokens do not match any sharding, and
    only the range is known; if its beginning is not known either, nothing is.
    """

    def __init__(self, after: Token | None, until: Token, streams: Sequence[StreamId]) -> None:
        """Create a range.

        Args:
            after: the token before the range; None if it is not known.
            until: the last token of the range.
            streams: the streams that serve the range, at least one.
        """
        self._after = after
        self._until = until
        self._tokens = sorted(stream.token for stream in streams)

    def holds(self, stream: StreamId, token: Token) -> bool | None:
        """Return whether a stream of the group serves a token; None if that is not known."""
        span = self._span
        if span is None:
            return None
        first, length = span
        if (token - first) % _WORD >= length:
            return False
        if self._by_shard is None or _stream_serves(self._by_shard, stream, token):
            return True
        # Several numbers of ignored bits may give the same first tokens.
        others = (one for one in self._matching_shardings() if one[0] != self._by_shard[0])
        return None if any(_stream_serves(one, stream, token) for one in others) else False

    @cached_property
    def _span(self) -> tuple[int, int] | None:
        """The first token and the number of tokens; None if the beginning is not known."""
        after = self._after
        if after is None:
            if self._by_shard is None or len(self._tokens) == 1:
                return None
            after = self._first_before
        return after + 1, (self._until - after) % _WORD or _WORD

    @property
    def _first_before(self) -> Token:
        # Some shard owns the first token of the range, so one of the streams has it.
        first = max(self._tokens, key=lambda token: (self._until - token) % _WORD)
        return Token((first - 1 + (1 << 63)) % _WORD - (1 << 63))

    @cached_property
    def _by_shard(self) -> _Sharding | None:
        """The ignored bits, and the token of each shard's stream; None if no sharding matches."""
        return next(self._matching_shardings(), None)

    def _matching_shardings(self) -> Iterator[_Sharding]:
        after = self._first_before if self._after is None else self._after
        shards = len(self._tokens)
        for ignore_msb in _IGNORED_BITS if shards > 1 else _IGNORED_BITS[:1]:
            made = (first_token_of_shard(after, self._until, shard, shards, ignore_msb) for shard in range(shards))
            firsts = [self._until if token is None else token for token in made]
            if sorted(firsts) == self._tokens:
                yield ignore_msb, firsts


def _stream_serves(sharding: _Sharding, stream: StreamId, token: Token) -> bool:
    ignore_msb, firsts = sharding
    return firsts[shard_of(token, len(firsts), ignore_msb)] == stream.token


def ranges_of_vnodes(groups: Iterable[tuple[Token, Sequence[StreamId]]]) -> dict[StreamId, KeyRange]:
    """Return the range of each stream of some neighbouring vnodes of a generation.

    Args:
        groups: last token and stream group of each vnode, ascending; if the vnodes cover the ring, the first one is
            repeated at the end.
    """
    found: dict[StreamId, KeyRange] = {}
    after: Token | None = None
    for until, streams in groups:
        range_ = KeyRange(after, until, streams)
        for stream in streams:
            found[stream] = range_
        after = until
    return found


def ranges_of_tablets(streams: Iterable[StreamId]) -> dict[StreamId, KeyRange]:
    """Return the range of each stream of a stream set (all streams of a tablets table at one time).

    The token of a tablet's stream is the last token of the tablet.
    """
    ordered = sorted(streams, key=lambda stream: stream.token)
    after = MAX_TOKEN
    found: dict[StreamId, KeyRange] = {}
    for stream in ordered:
        found[stream] = KeyRange(after, stream.token, (stream,))
        after = stream.token
    return found
