"""`python -m bench.path`: CPU time of one change on its way through the bridge's own Python, step by step; no servers.

Synthetic result pages of one lane go both ways, the general one and that of plain rows, in turns: what other
processes do to the caches meets both alike. A step's time is that of the way up to its end less that of the way up to
its beginning. The JVM and the driver's receiving are not in it; `--produce` adds the Kafka client against its own mock
of a broker (which works in this process too, in a thread that is told apart).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from itertools import starmap
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from bench import command, tables
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.adapters.scylla.routing import token_of
from bridge.config.document import BridgeConfig, validate
from bridge.encoding import grouping
from bridge.encoding.group_encoder import EncodedChange, EncodedRun, GroupEncoder
from bridge.encoding.key_check import SAMPLE_EVERY, KeyCheck
from bridge.engine.memory_tuning import tune_memory
from bridge.engine.write_lane import LaneOutput
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.key_ranges import KeyRange
from bridge.model.log_rows import Cells, LogLayout, Page
from bridge.model.micro_batch import Layout, PlannedBatch, Window
from bridge.model.raw_rows import RawRows
from bridge.model.record_form import RecordForm
from bridge.model.streams import MAX_TOKEN, MIN_TOKEN, StreamId, Token
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.protocol import LaneTask
from bridge.reading.fast_path import FastPath, encode_chunks
from bridge.reading.lane_merge import Entry, PageToEntries, keep_rows, read_lane
from bridge.reading.page_budget import max_page_rows
from bridge.reading.schema_change import runs_by_schema
from bridge.reading.table_capture import Schemas
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
"""Share of columns that an update of `sparse` sets: no form comes twice."""
_LIKE: Final = {"sparse": "wide", "mixed": "narrow"}
"""Whose columns they have."""
_COLLECTIONS: Final = ("list<int>", "set<text>", "map<text, bigint>", "frozen<list<text>>")
_GENERATION_MS: Final = UnixMillis(1_700_000_000_000)
_STREAMS: Final = 16
_PAGE_ROWS: Final = 2000
_WINDOW: Final = Window(UnixMicros(0), None)
_FRAME: Final = bytes(5)
_POOL: Final = 256
_PRODUCED: Final = 200_000
_PLAIN_FORM: Final = RecordForm()
_CHECKED: Final = {"sample": SAMPLE_EVERY, "always": 1}
"""As `reading.integrity`."""


def main(argv: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.path", description="CPU time of one change, step by step.")
    command.add_tables(parser, TABLES, TABLES)
    parser.add_argument("--changes", type=command.count, default=40_000, help="changes of each table")
    parser.add_argument("--streams", type=command.count, default=_STREAMS, help="streams of the lane")
    parser.add_argument(
        "--page-rows", type=command.count, help="rows of a page; default: as many as a lane of so many streams asks for"
    )
    parser.add_argument(
        "--integrity", choices=tuple(_CHECKED), default="sample", help="which rows' keys are held against their stream"
    )
    parser.add_argument("--rounds", type=command.count, default=5, help="the least time of so many counts")
    parser.add_argument("--produce", action="store_true", help="also the Kafka client, against its own mock")
    parser.add_argument("--profile", choices=("plain", "general"), help="print where the time of one way goes instead")
    arguments = parser.parse_args(argv)
    for name in arguments.tables:
        every = _CHECKED[arguments.integrity]
        lane = Lane.of(
            name, arguments.changes, streams=arguments.streams, page_rows=arguments.page_rows, check_every=every
        )
        tune_memory()
        if arguments.profile:
            _profile(lane, arguments.profile)
            continue
        found = measure(lane, arguments.rounds)
        if arguments.produce:
            found["produce"] = _produced(lane, arguments.changes)
        print(json.dumps({"table": name, "us_per_change": found}), flush=True)
        print(_text(name, found), file=sys.stderr)
    return 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane's log in memory, and all that is needed to carry it."""

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
        streams: int = _STREAMS,
        page_rows: int | None = None,
        check_every: int = SAMPLE_EVERY,
    ) -> Lane:
        """A log of inserts that fill every column, spread over some streams at even distances in time.

        That of `sparse`, which has the columns of `wide`, is of updates that each set some of them; in that of `mixed`,
        which has those of `narrow`, a stream's rows are inserts and updates in turn. What they fill them with is drawn
        from so many rows. Pages are of as many rows as a lane of so many streams asks for, unless it is said; one row
        in so many is checked.
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
        # Where there are many, most have nothing.
        written = list(log)[: max(1, streams - 1)]
        for at in range(changes):
            stream = random.choice(written)
            cells = random.choice(rows) | {
                STREAM_ID: stream.raw,
                TIME: timeuuid_of(UnixMicros(_GENERATION_MS * 1000 + at * 600), random.randbytes(8)),
                BATCH_SEQ_NO: bytes(4),
                OPERATION: bytes((Operation.UPDATE if name == "mixed" and len(log[stream]) % 2 else operation,)),
                END_OF_BATCH: b"\x01",
                "pk": random.randrange(10_000).to_bytes(4, "big"),
                "ck": random.randrange(1000).to_bytes(4, "big"),
            }
            log[stream].append(tuple(cells.get(column) for column in names))
        page_rows = page_rows or max_page_rows(streams, _PAGE_ROWS)
        pages = {stream: list(_pages(layout, rows, page_rows)) for stream, rows in log.items()}
        return cls(table, TableCodec(table, names), layout, pages, changes, page_rows, check_every)

    def page(
        self, stream: StreamId, window: Window, *, page_rows: int, paging_state: bytes | None = None
    ) -> Future[Page]:
        """A page as if it came just now: what was made of its rows before is not known any more."""
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
        return {stream.raw: _GENERATION_MS for stream in self.pages}

    def chunks(self, take: PageToEntries | None = None) -> Iterator[list[Entry]]:
        """The merged entries."""
        return read_lane(
            self,
            list(self.pages),
            _WINDOW,
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
        """The fast path's way to take a page."""
        return FastPath(self.codec.page_encoder, self.layout, self.opened, check).encode_page

    def all_pages(self) -> Iterator[tuple[StreamId, Page]]:
        """Every page, fresh."""
        for stream, pages in self.pages.items():
            for number in range(len(pages)):
                yield stream, self.page(stream, _WINDOW, page_rows=0, paging_state=number.to_bytes(4, "big")).result()


Changes = Iterator[EncodedChange | EncodedRun]


def general_way(lane: Lane) -> dict[str, Callable[[], Any]]:
    """For each step the way up to its end."""

    def read() -> Iterator[Cells]:
        return (row for chunk in lane.chunks() for _, row in chunk)  # type: ignore[misc]  # pages are not taken

    def changes() -> Changes:
        encoder = GroupEncoder(lane.codec, lane.layout, ("bench", "t"), _PLAIN_FORM)
        for group in lane.check().passing(grouping.groups(read(), lane.layout)):
            yield from encoder.encode(group, _GENERATION_MS)

    return {
        "cells": lambda: _all(page.rows[:1] for _, page in lane.all_pages()),
        "sort keys": lambda: _all(keep_rows(lane.layout)(*each) for each in lane.all_pages()),
        "merge": lambda: _all(lane.chunks()),
        "groups": lambda: _all(grouping.groups(read(), lane.layout)),
        "key check": lambda: _all(lane.check().passing(grouping.groups(read(), lane.layout))),
        "encode": lambda: _all(changes()),
        "publish": lambda: publish(_switching(lane, changes)),
    }


def plain_changes(lane: Lane) -> Callable[[], Changes]:
    """The fast path's changes."""

    def changes() -> Changes:
        def general(of: Iterator[Cells]) -> Iterator[EncodedChange]:
            encoder = GroupEncoder(lane.codec, lane.layout, ("bench", "t"), _PLAIN_FORM)
            for group in grouping.groups(of, lane.layout):
                yield from encoder.encode(group, _GENERATION_MS)

        return encode_chunks(lane.chunks(lane.taking(lane.check())), general)

    return changes


def plain_way(lane: Lane) -> dict[str, Callable[[], Any]]:
    """The same of the fast path."""
    changes = plain_changes(lane)
    return {
        "loops": lambda: _all(starmap(lane.taking(None), lane.all_pages())),
        "key check": lambda: _all(starmap(lane.taking(lane.check()), lane.all_pages())),
        "merge": lambda: _all(lane.chunks(lane.taking(lane.check()))),
        "runs": lambda: _all(changes()),
        "publish": lambda: publish(_switching(lane, changes)),
    }


def measure(lane: Lane, rounds: int) -> dict[str, dict[str, float]]:
    """Us of CPU time a change, for both ways and their steps."""
    ways: dict[str, dict[str, Callable[[], Any]]] = {"general": general_way(lane), "plain": plain_way(lane)}
    least: dict[tuple[str, str], float] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            for step, run in way.items():
                began_s = time.process_time()
                run()
                us = (time.process_time() - began_s) * 1e6 / lane.changes
                least[name, step] = min(us, least.get((name, step), us))
    found: dict[str, dict[str, float]] = {}
    for name, way in ways.items():
        before = 0.0
        found[name] = steps = {}
        for step in way:
            steps[step] = max(0.0, least[name, step] - before)
            before = least[name, step]
        steps["all"] = sum(steps.values())
    return found


def _all(things: Iterable[Any]) -> list[Any]:
    return list(deque(things, maxlen=64))


def _switching(lane: Lane, changes: Callable[[], Changes]) -> Changes:
    handed_on: Any = lane
    for _, run in runs_by_schema(handed_on, lambda _: changes(), lambda: handed_on):
        yield from run


class _NoClient:
    def produce(self, *_: object) -> None:
        pass


class Nowhere(TransactionalProducer):
    """The adapter's producer, over a client that has nothing to do."""

    def __init__(self) -> None:
        """Connect to nothing."""
        self._topics, self._producer = set(), cast("Any", _NoClient())

    def init(self) -> None:
        """Nothing."""

    begin = commit = abort = close = init


def publish(changes: Changes, producer: Any = None) -> None:
    """Publish changes as a task does; the producer does nothing unless one is given."""
    task, config = _task(), _config()
    publisher = LanePublisher(
        lambda: producer or Nowhere(),
        LaneProgress(task.lane, task.batch.layout, task.batch.start, owner="bench").to_bytes,
        progress_topic="progress",
        owner="bench",
        most_records=config.publishing.max_transaction_records,
        most_bytes=config.publishing.max_transaction_bytes,
    )
    publisher.start(task, fresh=False)
    output = LaneOutput(config, task, publisher, lambda *_: _FRAME, lambda _: 1)
    output.switch_to(0, Schemas("", ""))
    output.publish(changes)
    publisher.finish()


def _produced(lane: Lane, changes: int) -> dict[str, float]:
    """Us of CPU time a change that the Kafka client takes, in the calling thread and in its own."""
    config = _config(**{"test.mock.num.brokers": 1})
    producer = TransactionalProducer(config.kafka, "bench", known_topic="progress")
    # Many, because of what opening the id costs.
    times = max(1, _PRODUCED // changes)
    plain = list(plain_changes(lane)()) * times
    changes *= times
    before, began_s = _threads(), time.thread_time()
    publish(iter(plain), producer)
    calling_s, after = time.thread_time() - began_s, _threads()
    own_s = sum(seconds - before.get(name, 0.0) for name, seconds in after.items() if name[0].startswith("rdk:b"))
    return {"publisher and calls": calling_s / changes * 1e6, "client's threads": own_s / changes * 1e6}


def _threads() -> dict[tuple[str, str], float]:
    """CPU seconds of this process's threads by name and id."""
    found = {}
    for folder in Path("/proc/self/task").iterdir():
        name = (folder / "comm").read_text().strip()
        found[name, folder.name] = int((folder / "schedstat").read_text().split()[0]) / 1e9
    return found


def _task() -> LaneTask:
    layout = Layout(1, Cursor.at_start_of(_GENERATION_MS))
    end = Cursor(_GENERATION_MS, UnixMicros(_GENERATION_MS * 1000 + 10**12))
    return LaneTask("bench", "t", 0, PlannedBatch(layout.since, end, layout))


@cache
def _config(**properties: object) -> BridgeConfig:
    return validate(
        {
            "name": "bench",
            "scylla": {"contact_points": ["nowhere:1"]},
            "kafka": {"bootstrap_servers": ["nowhere:1"], "properties": properties},
            "registry": {"url": "http://nowhere:1"},
            "tables": ["bench.t"],
        }
    )


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


def _profile(lane: Lane, way: str) -> None:
    steps = plain_way(lane) if way == "plain" else general_way(lane)
    steps["publish"]()
    profile = cProfile.Profile()
    profile.runcall(steps["publish"])
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def _text(name: str, found: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        f"{name:12} {way:8} " + "  ".join(f"{step} {us:.2f}" for step, us in steps.items())
        for way, steps in found.items()
    )


if __name__ == "__main__":
    sys.exit(main())
