"""Pages of a log in memory, with rows in the wire's format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.raw_rows import RawRows
from bridge.model.streams import StreamId
from schemas.cql.types import CqlType


def raw(rows: Sequence[Cells], width: int) -> RawRows:
    """Return rows in the body of a result, behind other bytes."""
    parts = [b"columns", len(rows).to_bytes(4, "big")]
    for row in rows:
        for cell in row:
            parts += [b"\xff" * 4] if cell is None else [len(cell).to_bytes(4, "big"), cell]
    return RawRows(b"".join(parts), len(parts[0]), width)


class RawLog:
    """A log in memory, whose pages have `page_rows` rows."""

    def __init__(self, layout: LogLayout, rows: Mapping[StreamId, Sequence[Cells]], page_rows: int) -> None:
        self._layout, self._rows, self._page_rows = layout, rows, page_rows

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        start = int.from_bytes(paging_state or b"", "big")
        end = start + self._page_rows
        rows, columns = self._rows[stream], self._layout.columns
        state = end.to_bytes(4, "big") if end < len(rows) else None
        future: Future[Page] = Future()
        future.set_result(Page(columns, raw(rows[start:end], len(columns)), state, self._layout.types))
        return future

    @property
    def columns(self) -> tuple[str, ...]:
        return self._layout.columns

    @property
    def types(self) -> tuple[CqlType, ...]:
        return self._layout.types

    def streams_of_rows(self, streams: Sequence[StreamId], window: Window, *, page_rows: int) -> Future[Page]:
        rows: list[Cells] = [
            (one.raw,) for one in streams for _ in self.page(one, window, page_rows=page_rows).result().rows
        ]
        state = b"more" if len(rows) >= page_rows else None
        future: Future[Page] = Future()
        future.set_result(Page(("cdc$stream_id",), raw(rows[:page_rows], 1), state, ()))
        return future
