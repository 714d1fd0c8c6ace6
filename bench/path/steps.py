"""The steps of both paths. Each step is a function that runs the path from the page to the end of the step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import starmap
from typing import Any, Final, cast

from bench.path.lane import GENERATION_MS, Lane
from bridge.adapters.kafka.producer import TransactionalProducer
from bridge.config.document import BridgeConfig, validate
from bridge.encoding import grouping
from bridge.encoding.group_encoder import EncodedChange, EncodedRun, GroupEncoder
from bridge.engine.write_lane import LaneOutput
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.log_rows import Cells
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.transaction_size import TransactionSize
from bridge.reading.fast_path import encode_chunks
from bridge.reading.lane_merge import keep_rows
from bridge.reading.schema_change import runs_by_schema
from bridge.reading.table_capture import Schemas
from schemas.options import RecordForm

_FRAME: Final = bytes(5)
_PLAIN_FORM: Final = RecordForm()

Changes = Iterator[EncodedChange | EncodedRun]


def general_path_steps(lane: Lane) -> dict[str, Callable[[], Any]]:
    """The steps of the general path."""

    def read() -> Iterator[Cells]:
        return (row for chunk in lane.chunks() for _, row in chunk)  # type: ignore[misc]  # pages are not taken

    def changes() -> Changes:
        encoder = GroupEncoder(lane.codec, lane.layout, ("bench", "t"), _PLAIN_FORM)
        for group in lane.check().check_groups(grouping.groups(read(), lane.layout)):
            yield from encoder.encode(group, GENERATION_MS)

    return {
        "cells": lambda: _all(page.rows[:1] for _, page in lane.all_pages()),
        "sort keys": lambda: _all(keep_rows(lane.layout)(*each) for each in lane.all_pages()),
        "merge": lambda: _all(lane.chunks()),
        "groups": lambda: _all(grouping.groups(read(), lane.layout)),
        "key check": lambda: _all(lane.check().check_groups(grouping.groups(read(), lane.layout))),
        "encode": lambda: _all(changes()),
        "publish": lambda: publish(_switching(lane, changes)),
    }


def fast_path_changes(lane: Lane) -> Callable[[], Changes]:
    """The fast path's changes."""

    def changes() -> Changes:
        def general(of: Iterator[Cells]) -> Iterator[EncodedChange]:
            encoder = GroupEncoder(lane.codec, lane.layout, ("bench", "t"), _PLAIN_FORM)
            for group in grouping.groups(of, lane.layout):
                yield from encoder.encode(group, GENERATION_MS)

        return encode_chunks(lane.chunks(lane.taking(lane.check())), general)

    return changes


def fast_path_steps(lane: Lane) -> dict[str, Callable[[], Any]]:
    """The steps of the fast path."""
    changes = fast_path_changes(lane)
    return {
        "loops": lambda: _all(starmap(lane.taking(None), lane.all_pages())),
        "key check": lambda: _all(starmap(lane.taking(lane.check()), lane.all_pages())),
        "merge": lambda: _all(lane.chunks(lane.taking(lane.check()))),
        "runs": lambda: _all(changes()),
        "publish": lambda: publish(_switching(lane, changes)),
    }


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
    """The adapter's producer with a client that does nothing."""

    def __init__(self) -> None:
        """Connect to nothing."""
        self._topics, self._producer = set(), cast("Any", _NoClient())

    def init(self) -> None:
        """Nothing."""

    begin = commit = abort = close = init


def publish(changes: Changes, producer: Any = None) -> None:
    """Publish changes as a task does, by default with a producer that does nothing."""
    task, config = _task(), bench_config()
    size = TransactionSize(config.publishing.max_transaction_bytes, config.kafka.transaction_timeout_ms / 1000)
    # As after the first commits of a process, if the brokers are fast.
    size.most_bytes = config.publishing.max_transaction_bytes
    publisher = LanePublisher(
        lambda: producer or Nowhere(),
        LaneProgress(task.lane, task.batch.layout, task.batch.start, owner="bench").to_bytes,
        progress_topic="progress",
        owner="bench",
        most_records=config.publishing.max_transaction_records,
        size=size,
    )
    publisher.start(task, fresh=False)
    output = LaneOutput(config, task, publisher, lambda *_: _FRAME, lambda _: 1)
    output.switch_to(0, Schemas("", ""))
    output.publish(changes)
    publisher.finish()


def _task() -> LaneTask:
    layout = Layout(1, Cursor.at_start_of(GENERATION_MS))
    end = Cursor(GENERATION_MS, UnixMicros(GENERATION_MS * 1000 + 10**12))
    return LaneTask("bench", "t", 0, PlannedBatch(layout.since, end, layout))


@cache
def bench_config(**properties: object) -> BridgeConfig:
    """A configuration that names no real server, with these properties of the Kafka client."""
    return validate(
        {
            "name": "bench",
            "scylla": {"contact_points": ["nowhere:1"]},
            "kafka": {"bootstrap_servers": ["nowhere:1"], "properties": properties},
            "registry": {"url": "http://nowhere:1"},
            "tables": ["bench.t"],
        }
    )
