"""Where the fast path and the general one part: rows that are a group by themselves are encoded page by page, in loops.

A plain row is the only one of its group, and of an operation that such a loop (`schemas.compiled.page_encoder`) may
know. It becomes a record when its page arrives, before the streams are merged: in a loop if there is one for its form,
else by itself. All other rows stay cells, are merged with the records, and go by way of `bridge.encoding.grouping` and
`bridge.encoding.group_encoder`. Both ways give the same bytes, so which row takes which way is a matter of cost
alone, and may differ from one attempt at a micro-batch to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from struct import Struct
from typing import Final

from bridge.encoding.group_encoder import EncodedChange, EncodedRun
from bridge.encoding.key_check import KeyCheck
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.raw_rows import RawRows, parse_row
from bridge.model.streams import StreamId
from bridge.model.times import UnixMillis, sort_key
from bridge.reading.lane_merge import Entry, as_rows
from schemas.compiled.page_encoder import PageEncoder
from schemas.log.timeuuid import TIMEUUID_BYTES

_INT: Final = Struct(">i")
_PLAIN: Final = 4
"""Parts of a plain record's entry; that of a row has two."""

_LOOPS_TRIED: Final = 3
"""Before a row's form is looked up, which takes as long as so many loops that do not know it."""

_MISSES: Final = 8
"""When so many more rows' forms had to be looked up than were among those that were tried, loops cost more than they
bring: of an update that sets any of 30 columns no form comes twice. They are then tried with one row in so many:"""
_TRIED_AGAIN_AFTER: Final = 32

_MOST_UNCHECKED: Final = 1 << 30


class PlainRows:
    """Encodes the plain rows of one part of a lane's micro-batch as their pages come in."""

    def __init__(
        self, page_encoder: PageEncoder, layout: LogLayout, opened: Mapping[bytes, UnixMillis], check: KeyCheck | None
    ) -> None:
        """Take what does not depend on a page.

        Args:
            page_encoder: the table's loops.
            layout: what the cells are.
            opened: the generation that opened each stream.
            check: holds some of the rows' keys against their stream; None where none is.
        """
        self._page_encoder = page_encoder
        self._opened = opened
        self._check = check
        self._most = _MOST_UNCHECKED if check is None else check.every
        self._as_rows = as_rows(layout)
        self._time_at = layout.time
        self._missed = 0

    def entries(self, stream: StreamId, page: Page) -> list[Entry]:
        """A page's rows in their order, plain ones as records."""
        rows = page.rows
        if not isinstance(rows, RawRows):
            return self._as_rows(stream, page)
        body, width, at, left = rows.body, rows.width, rows.at, len(rows)
        stream_id = stream.raw
        start = _INT.pack(len(stream_id)) + stream_id + _INT.pack(TIMEUUID_BYTES)
        generation_ms = self._opened[stream_id]
        source = self._page_encoder.source_prefix(generation_ms, stream_id)
        loops = self._page_encoder.loops
        # Rows of the last one's group may follow on the next page.
        alone = left - (page.paging_state is not None)
        found: list[Entry] = []
        began, done = at, 0
        while left:
            cells, behind, known = None, at, False
            if self._missed < _MISSES or not self._missed % _TRIED_AGAIN_AFTER:
                most = min(alone, self._most)
                for number, loop in enumerate(loops[:_LOOPS_TRIED]):
                    done, end = loop(body, at, most, start, stream_id, source, found.append)
                    if done:
                        if number:
                            self._page_encoder.move_to_front(number)
                        known = True
                        break
                else:
                    cells, behind = parse_row(body, width, at)
                    if alone and self._page_encoder.find_loop(cells):
                        done, end = loops[0](body, at, most, start, stream_id, source, found.append)
            if done > 1:
                self._missed = 0
            elif known:
                self._missed = max(0, min(self._missed, _MISSES) - 1)
            else:
                self._missed += 1
            if not done:
                if cells is None:
                    cells, behind = parse_row(body, width, at)
                key = sort_key(cells[self._time_at] or b"")
                one = self._page_encoder.encode_row(cells, generation_ms) if alone else None
                if one is None:
                    if found and found[-1][0] == key and len(found[-1]) == _PLAIN:
                        # Its group goes on, against the log's own word.
                        found[-1] = key, self._row_at(key, body, width, began)
                    found.append((key, cells))
                    at, left, alone = behind, left - 1, alone - 1
                    continue
                found.append((key, *one))
                done, end = 1, behind
            if self._check is not None and self._check.is_due(done):
                self._check.check_row(stream_id, parse_row(body, width, at)[0])
            began, at, left, alone, done = at, end, left - done, alone - done, 0
        return found

    def _row_at(self, key: bytes, body: bytes, width: int, at: int) -> Cells:
        """The first row of that time from a place on."""
        while True:
            cells, at = parse_row(body, width, at)
            if sort_key(cells[self._time_at] or b"") == key:
                return cells


def encoded(
    chunks: Iterable[list[Entry]], general: Callable[[Iterator[Cells]], Iterator[EncodedChange]]
) -> Iterator[EncodedChange | EncodedRun]:
    """The changes of a lane in its order: plain ones in runs, those of other rows one by one.

    Args:
        chunks: entries in lane order.
        general: makes changes of rows that lie together in lane order; groups end with them.
    """
    sections = _sections(chunks)
    section = next(sections, None)

    def rows() -> Iterator[Cells]:
        nonlocal section
        while section is not None and len(section[0]) != _PLAIN:
            for entry in section:
                yield entry[1]  # type: ignore[misc]  # they are rows' entries all
            section = next(sections, None)

    while section is not None:
        if len(section[0]) == _PLAIN:
            yield EncodedRun(section)  # type: ignore[arg-type]  # they are plain records' entries all
            section = next(sections, None)
        else:
            yield from general(rows())


def _sections(chunks: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
    """Chunks cut where entries of one kind follow those of the other."""
    for chunk in chunks:
        kinds = bytes(map(len, chunk))
        at, end = 0, len(chunk)
        while at < end:
            other = _OTHER[kinds[at]]
            until = kinds.find(other, at)
            until = end if until < 0 else until
            yield chunk[at:until]
            at = until


_OTHER: Final = {_PLAIN: b"\x02", 2: bytes((_PLAIN,))}
