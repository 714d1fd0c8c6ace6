"""Holds each change's key against the stream that it came in. Pure: groups in, the same groups out.

A key in a stream that its token does not map to (spec section 4) may come out of order: the server would have written
it wrongly, or the bridge have mixed streams up. A mismatch is counted and said with the record's position, and stops
nothing: the change itself is what the log holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import Cells, Group, LogLayout
from bridge.model.murmur3 import partition_key_bytes
from bridge.model.position import Position
from bridge.model.streams import StreamId, Token

SAMPLE_EVERY: Final = 64
"""Of so many changes one is checked, where not all of them are."""


@dataclass(frozen=True, slots=True)
class MisplacedKey:
    """A change whose key does not belong into its stream; names no key."""

    position: Position
    token: Token

    def __str__(self) -> str:
        return f"{self.position.describe()}: the key's token {self.token} does not belong into this stream"


class KeyCheck:
    """Checks the changes of one part of a lane's micro-batch.

    Attributes:
        checked: how many keys were compared with their stream.
        misplaced: how many of them do not belong there.
        every: of so many changes one is checked.
    """

    def __init__(
        self,
        layout: LogLayout,
        ranges: Callable[[], Mapping[StreamId, KeyRange]],
        token_of: Callable[[bytes], Token],
        report: Callable[[MisplacedKey], None],
        *,
        every: int,
    ) -> None:
        """Take what the changes are held against.

        Args:
            layout: where the key's columns lie in a row.
            ranges: whose keys the streams hold; asked for once, with the first change.
            token_of: the token of a serialized partition key.
            report: told of each mismatch.
            every: of so many changes one is checked, beginning with the first.
        """
        self._layout = layout
        self._ask_for_ranges = ranges
        self._ranges: Mapping[StreamId, KeyRange] | None = None
        self._met: dict[bytes, tuple[StreamId, KeyRange | None]] = {}
        self._token_of = token_of
        self._report = report
        self.every = every
        self._until_next = 1
        self.checked = 0
        self.misplaced = 0

    def passing(self, groups: Iterable[Group]) -> Iterator[Group]:
        """The groups, each checked before it goes on."""
        for group in groups:
            for change in group.changes:
                self._until_next -= 1
                if not self._until_next:
                    self._until_next = self.every
                    self.look(group.stream_id, change.row)
            yield group

    def is_due(self, count: int) -> bool:
        """Count so many changes, `every` at most; says whether one of them is to be looked at."""
        self._until_next -= count
        if self._until_next > 0:
            return False
        self._until_next += self.every
        return True

    def look(self, stream_id: bytes, row: Cells) -> None:
        """Check one row."""
        stream, range_ = self._met.get(stream_id) or self._meet(stream_id)
        key = [cell for at in self._layout.partition_key if (cell := row[at]) is not None]
        # Rows from before a key column was renamed have lost its value.
        if range_ is None or len(key) < len(self._layout.partition_key):
            return
        token = self._token_of(partition_key_bytes(key))
        fits = range_.holds(stream, token)
        if fits is None:
            return
        self.checked += 1
        if not fits:
            self.misplaced += 1
            seq_no = int.from_bytes(row[self._layout.batch_seq_no] or b"", "big", signed=True)
            self._report(MisplacedKey(Position(stream_id, row[self._layout.time] or b"", seq_no), token))

    def _meet(self, stream_id: bytes) -> tuple[StreamId, KeyRange | None]:
        if self._ranges is None:
            self._ranges = self._ask_for_ranges()
        stream = StreamId(stream_id)
        self._met[stream_id] = found = stream, self._ranges.get(stream)
        return found
