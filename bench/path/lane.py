"""A lane's log in memory: synthetic result pages, and what reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from random import Random
from typing import Final

from bench.data import tables
from bridge.adapters.scylla.routing import token_of
from bridge.encoding.key_check import SAMPLE_EVERY, KeyCheck
from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Window
from bridge.model.raw_rows import RawRows
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.reading.fast_path import FastPath
from bridge.reading.lane_merge import Entry, PageToEntries, read_lane
from bridge.reading.page_budget import max_page_rows
from sandbox.scylla.values.nested_values import Draw
from schemas.cql.table import Column, ColumnKind, TableSchema
from schemas.cql.types import is_multi_cell, parse
from schemas.log.columns import (
    BATCH_SEQ_NO,
    END_OF_BATCH,
    META_COLUMNS,
    OPERATION,
    STREAM_ID,
    TIME,
    deleted_elements,
    deleted_flag,
    value_type,
)
from schemas.log.operations import Operation
from schemas.table_codec import TableCodec

TABLES: Final = ("narrow", "mixed", "wide", "collections", "sparse")
_TOUCHED: Final = 0.3
"""Share of columns that an update of `sparse` sets, so that hardly any row form occurs twice."""
_LIKE: Final = {"sparse": "wide", "mixed": "narrow"}
"""Tables with the columns of another one."""
_COLLECTIONS: Final = ("list<int>", "set<text>", "map<text, bigint>", "frozen<list<text>>")
GENERATION_MS: Final = UnixMillis(1_700_000_000_000)
STREAMS: Final = 16
_PAGE_ROWS: Final = 2000
WINDOW: Final = Window(UnixMicros(0), None)
_POOL: Final = 256
CHECKED: Final = {"sample": SAMPLE_EVERY, "always": 1}
"""One row in so many is checked, by the value of `reading.integrity`."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's log in memory, with the readers of the bridge."""

    table: TableSchema
    codec: TableCodec
    layout: LogLayout
    pages: dict[StreamId, list[Page]]
    changes: int
    page_rows: int
    check_every: int

    @classmethod
    def of(
        cls,
        name: str,
        changes: int,
        pool: int = _POOL,
        *,
        streams: int = STREAMS,
        page_rows: int | None = None,
        check_every: int = SAMPLE_EVERY,
    ) -> Lane:
        """Create a log of inserts that fill every column, spread over some streams at even distances in time.

        `sparse` has the columns of `wide` and updates that each set some of them. `mixed` has the columns of `narrow`
        and alternates inserts and updates in each stream.

        Args:
            name: name of the table.
            changes: number of changes.
            pool: number of random rows from which the cells come.
            streams: number of the lane's streams.
            page_rows: rows of a page; None takes the number that a lane with so many streams requests.
            check_every: one row in so many is checked against its stream.
        """
        table = _table(name)
        names = _log_columns(table)
        layout = LogLayout.of(names, *([one.name for one in of] for of in (table.partition_key, table.clustering)))
        random = Random(name)
        draw = Draw(random, extremes=0.0, most=5, nulls=0.0)
        rows = [_values(table, draw, random) for _ in range(pool)]
        operation = Operation.INSERT
        if name == "sparse":
            operation = Operation.UPDATE
            rows = [_some(values, random) for values in rows]
        log: dict[StreamId, list[Cells]] = {
            stream: []
            for stream in sorted(
                StreamId.build(Token(random.randrange(MIN_TOKEN, MAX_TOKEN)), 0, 1) for _ in range(streams)
            )
        }
        _write_rows(log, names, rows, operation, changes, random, alternate=name == "mixed")
        page_rows = page_rows or max_page_rows(streams, _PAGE_ROWS)
        pages = {stream: list(_pages(layout, rows, page_rows)) for stream, rows in log.items()}
        return cls(table, TableCodec(table, names), layout, pages, changes, page_rows, check_every)

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """Return a page as if it had just arrived, without cached results of earlier runs."""
        number = int.from_bytes(paging_state or b"", "big")
        page = self.pages[stream][number]
        found = page.rows
        assert isinstance(found, RawRows)
        fresh = Page(page.columns, RawRows(found.body, 0, found.width), page.paging_state, page.types)
        future: Future[Page] = Future()
        future.set_result(fresh)
        return future

    @property
    def opened(self) -> dict[bytes, UnixMillis]:
        """The generation of each stream."""
        return {stream.raw: GENERATION_MS for stream in self.pages}

    def chunks(self, take: PageToEntries | None = None) -> Iterator[list[Entry]]:
        """The merged entries."""
        return read_lane(
            self,
            list(self.pages),
            WINDOW,
            self.layout,
            page_rows=self.page_rows,
            in_flight=len(self.pages),
            page_to_entries=take,
        )

    def check(self) -> KeyCheck:
        """The comparison of keys with streams."""
        ranges = {stream: KeyRange(MIN_TOKEN, MAX_TOKEN, [stream]) for stream in self.pages}
        return KeyCheck(self.layout, lambda: ranges, token_of, lambda _: None, every=self.check_every)

    def taking(self, check: KeyCheck | None) -> PageToEntries:
        """The fast path's encoder of pages."""
        return FastPath(self.codec.page_encoder, self.layout, self.opened, check).encode_page

    def all_pages(self) -> Iterator[tuple[StreamId, Page]]:
        """Every page, without cached results."""
        for stream, pages in self.pages.items():
            for number in range(len(pages)):
                yield stream, self.page(stream, WINDOW, page_rows=0, paging_state=number.to_bytes(4, "big")).result()


def _write_rows(
    log: dict[StreamId, list[Cells]],
    names: Sequence[str],
    rows: Sequence[dict[str, bytes | None]],
    operation: Operation,
    changes: int,
    random: Random,
    *,
    alternate: bool,
) -> None:
    """Add changes to random streams; `alternate` makes every second one of a stream an update."""
    # One stream stays empty.
    written = list(log)[: max(1, len(log) - 1)]
    for at in range(changes):
        stream = random.choice(written)
        cells = random.choice(rows) | {
            STREAM_ID: stream.raw,
            TIME: timeuuid_of(UnixMicros(GENERATION_MS * 1000 + at * 600), random.randbytes(8)),
            BATCH_SEQ_NO: bytes(4),
            OPERATION: bytes((Operation.UPDATE if alternate and len(log[stream]) % 2 else operation,)),
            END_OF_BATCH: b"\x01",
            "pk": random.randrange(10_000).to_bytes(4, "big"),
            "ck": random.randrange(1000).to_bytes(4, "big"),
        }
        log[stream].append(tuple(cells.get(column) for column in names))


def _table(name: str) -> TableSchema:
    if name in _LIKE:
        return tables.table(_LIKE[name]).table_schema
    if name != "collections":
        return tables.table(name).table_schema
    keys = tables.table("narrow").table_schema
    regular = (Column(f"v{at}", parse(text), ColumnKind.REGULAR) for at, text in enumerate(_COLLECTIONS))
    return TableSchema(tables.KEYSPACE, name, (*keys.partition_key, *keys.clustering, *regular))


def _log_columns(table: TableSchema) -> list[str]:
    names = [one.name for one in table.columns] + [deleted_flag(one.name) for one in table.values]
    names += [deleted_elements(one.name) for one in table.values if is_multi_cell(one.type)]
    return [*META_COLUMNS[:3], *sorted([*names, *META_COLUMNS[3:]])]


def _values(table: TableSchema, draw: Draw, random: Random) -> dict[str, bytes | None]:
    texts = 50 if len(table.values) == 1 else 20
    return {
        one.name: random.randbytes(texts // 2).hex().encode()
        if str(one.type) == "text"
        else draw.value(value_type(one.type))
        for one in table.values
    }


def _some(values: dict[str, bytes | None], random: Random) -> dict[str, bytes | None]:
    return {name: cell for name, cell in values.items() if random.random() < _TOUCHED}


def _pages(layout: LogLayout, log: Sequence[Cells], page_rows: int) -> Iterator[Page]:
    for number, at in enumerate(range(0, max(1, len(log)), page_rows), start=1):
        part = log[at : at + page_rows]
        body = bytearray(len(part).to_bytes(4, "big"))
        for row in part:
            for cell in row:
                body += b"\xff" * 4 if cell is None else len(cell).to_bytes(4, "big") + cell
        state = number.to_bytes(4, "big") if at + page_rows < len(log) else None
        yield Page(layout.columns, RawRows(bytes(body), 0, len(layout.columns)), state, layout.types)
