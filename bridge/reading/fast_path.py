"""The fast path: rows that are a group by themselves are encoded page by page, in compiled loops.

A plain row is the only row of its group, and has an operation that the compiled loops (`schemas.compiled.page_encoder`)
support. It becomes a record as soon as its page arrives, before the streams are merged: by a loop if there is one for
the row's form, else by itself. All other rows stay cells. They are merged with the records, and then encoded on the
general path: `bridge.encoding.grouping` and `bridge.encoding.group_encoder`. Both paths give the same bytes. So the
choice of path only affects the cost, and may differ between two attempts at a micro-batch.
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
from bridge.reading.lane_merge import Entry, keep_rows
from schemas.compiled.page_encoder import PageEncoder
from schemas.log.timeuuid import TIMEUUID_BYTES

_INT: Final = Struct(">i")
_RECORD_LENGTH: Final = 4
"""The length of a record's entry."""
_ROW_LENGTH: Final = 2
"""The length of a row's entry."""

_LOOPS_TRIED: Final = 3
"""How many loops are tried before a row's form is looked up; the lookup takes as long as three loops that do not match.
"""

_MAX_MISSES: Final = 8
"""The loops cost more than they save once this many more forms were looked up than found by a loop. For example, of
updates that set any of 30 columns hardly two have the same form. Then the loops are tried with every n-th row only."""
_RETRY_EVERY: Final = 32

_UNCHECKED_RUN: Final = 1 << 30
"""The most rows of one loop if no keys are checked: no limit in practice."""


class FastPath:
    """Encodes the plain rows of one part of a lane's micro-batch as their pages arrive.

    Args:
        page_encoder: the table's loops.
        layout: where the columns lie in a row.
        opened: the generation that opened each stream, by stream id.
        check: compares the keys of some rows with their streams; None for no check.
    """

    def __init__(
        self, page_encoder: PageEncoder, layout: LogLayout, opened: Mapping[bytes, UnixMillis], check: KeyCheck | None
    ) -> None:
        self._page_encoder = page_encoder
        self._opened = opened
        self._check = check
        self._max_run = _UNCHECKED_RUN if check is None else check.every
        self._keep_rows = keep_rows(layout)
        self._time_at = layout.time
        self._misses = 0

    def encode_page(self, stream: StreamId, page: Page) -> list[Entry]:
        """The entries of a page's rows, in their order: records of plain rows, cells of the others."""
        rows = page.rows
        if not isinstance(rows, RawRows):
            return self._keep_rows(stream, page)
        body, width, at, left = rows.body, rows.width, rows.at, len(rows)
        encoder, stream_id = self._page_encoder, stream.raw
        generation_ms = self._opened[stream_id]
        start = _INT.pack(len(stream_id)) + stream_id + _INT.pack(TIMEUUID_BYTES)
        source, loops = encoder.source_prefix(generation_ms, stream_id), encoder.loops
        # The group of the last row may continue on the next page.
        alone = left - (page.paging_state is not None)
        found: list[Entry] = []
        began, done = at, 0
        while left:
            cells, behind, known = None, at, False
            if self._misses < _MAX_MISSES or not self._misses % _RETRY_EVERY:
                most = min(alone, self._max_run)
                for number, loop in enumerate(loops[:_LOOPS_TRIED]):
                    done, end = loop(body, at, most, start, stream_id, source, found.append)
                    if done:
                        if number:
                            encoder.move_to_front(number)
                        known = True
                        break
                else:
                    cells, behind = parse_row(body, width, at)
                    if alone and encoder.find_loop(cells):
                        done, end = loops[0](body, at, most, start, stream_id, source, found.append)
            self._misses = 0 if done > 1 else max(0, min(self._misses, _MAX_MISSES) - 1) if known else self._misses + 1
            if not done:
                if cells is None:
                    cells, behind = parse_row(body, width, at)
                key = sort_key(cells[self._time_at] or b"")
                one = encoder.encode_row(cells, generation_ms) if alone else None
                if one is None:
                    if found and found[-1][0] == key and len(found[-1]) == _RECORD_LENGTH:
                        # The last record's group goes on, although its row had the flag for the end of the group.
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
        """The first row with this sort key, from a place on."""
        while True:
            cells, at = parse_row(body, width, at)
            if sort_key(cells[self._time_at] or b"") == key:
                return cells


def encode_chunks(
    chunks: Iterable[list[Entry]], encode_rows: Callable[[Iterator[Cells]], Iterator[EncodedChange]]
) -> Iterator[EncodedChange | EncodedRun]:
    """The changes of a lane in its order: records in runs, the changes of other rows one by one.

    Args:
        chunks: entries in lane order.
        encode_rows: the general path: encodes adjacent rows in lane order. The last row ends its group.
    """
    sections = _sections(chunks)
    section = next(sections, None)

    def rows() -> Iterator[Cells]:
        nonlocal section
        while section is not None and len(section[0]) != _RECORD_LENGTH:
            for entry in section:
                yield entry[1]  # type: ignore[misc]  # all entries of the section are rows
            section = next(sections, None)

    while section is not None:
        if len(section[0]) == _RECORD_LENGTH:
            yield EncodedRun(section)  # type: ignore[arg-type]  # all entries of the section are records
            section = next(sections, None)
        else:
            yield from encode_rows(rows())


def _sections(chunks: Iterable[list[Entry]]) -> Iterator[list[Entry]]:
    """Split chunks where records follow rows or rows follow records."""
    for chunk in chunks:
        lengths = bytes(map(len, chunk))
        at, end = 0, len(chunk)
        while at < end:
            other = _OTHER_LENGTH[lengths[at]]
            until = lengths.find(other, at)
            until = end if until < 0 else until
            yield chunk[at:until]
            at = until


_OTHER_LENGTH: Final = {_RECORD_LENGTH: bytes((_ROW_LENGTH,)), _ROW_LENGTH: bytes((_RECORD_LENGTH,))}
