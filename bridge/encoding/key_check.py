"""Checks that the key of a change belongs into the change's stream. Pure.

If a key's token does not map to the stream, either the server or the bridge has mixed up streams, and the key's changes
may come out of order. The check counts and reports mismatches, but does not stop: the change is what the log holds.
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
"""The interval in changes when only a sample is checked."""


@dataclass(frozen=True, slots=True)
class MisplacedKey:
    """A change whose key does not belong into its stream.

    It holds neither the key nor its token, so that logs do not: a short key can be found by trying tokens.
    """

    position: Position

    def __str__(self) -> str:
        return f"{self.position.describe()}: the token of the key does not belong into this stream"


class KeyCheck:
    """Checks the changes of one part of a lane's micro-batch.

    Attributes:
        checked: number of keys that were compared with their stream.
        misplaced: number of keys that do not belong into their stream.
        every: one of so many changes is checked.
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
        """Create a check.

        Args:
            layout: the layout of the log rows.
            ranges: returns the token range of each stream; called once, for the first change that is checked.
            token_of: returns the token of a serialized partition key.
            report: called for each mismatch.
            every: one of so many changes is checked, beginning with the first.
        """
        self._layout = layout
        self._fetch_ranges = ranges
        self._ranges: Mapping[StreamId, KeyRange] | None = None
        self._known: dict[bytes, tuple[StreamId, KeyRange | None]] = {}
        self._token_of = token_of
        self._report = report
        self.every = every
        self._until_next = 1
        self.checked = 0
        self.misplaced = 0

    def check_groups(self, groups: Iterable[Group]) -> Iterator[Group]:
        """Yield the groups unchanged, each after its changes were checked."""
        for group in groups:
            for change in group.changes:
                self._until_next -= 1
                if not self._until_next:
                    self._until_next = self.every
                    self.check_row(group.stream_id, change.row)
            yield group

    def is_due(self, count: int) -> bool:
        """Count some changes (at most `every`) and return whether one of them is to be checked."""
        self._until_next -= count
        if self._until_next > 0:
            return False
        self._until_next += self.every
        return True

    def check_row(self, stream_id: bytes, row: Cells) -> None:
        """Check the key of a log row."""
        stream, range_ = self._known.get(stream_id) or self._find_range(stream_id)
        key = [cell for at in self._layout.partition_key if (cell := row[at]) is not None]
        # A key column is null in rows from before it was renamed, so their token is not known.
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
            self._report(MisplacedKey(Position(stream_id, row[self._layout.time] or b"", seq_no)))

    def _find_range(self, stream_id: bytes) -> tuple[StreamId, KeyRange | None]:
        if self._ranges is None:
            self._ranges = self._fetch_ranges()
        stream = StreamId(stream_id)
        self._known[stream_id] = found = stream, self._ranges.get(stream)
        return found
