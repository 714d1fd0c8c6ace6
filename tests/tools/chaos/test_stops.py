"""A run under faults fails when a job gives a table up that should go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.errors import FencedError, is_hopeless
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.transaction_size import TransactionSize
from tests.chaos.stops import Stops
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

TABLES = ("ks.orders", "ks.lines")
LOST = (
    "2026-01-01T00:00:00.000Z ERROR spark.job.supervisor: ks.orders stops: lane 1: the cursor lies before the window\n"
)
REPLACED = (
    "2026-01-01T00:00:00.000Z ERROR spark.job.supervisor: ks.orders stops: ks.orders lane 1 of 2: its progress is that "
    "of another lane layout\n"
)
OTHERS = (
    "2026-01-01T00:00:00.000Z INFO spark.job: SIGTERM: stopping\n"
    "2026-01-01T00:00:00.000Z ERROR spark.job.supervisor: ks.orders has stopped: lane 1: the cursor lies before\n"
    "2026-01-01T00:00:00.000Z WARNING spark.job.supervisor: ks.orders: it stops: Kafka is away (failure 1)\n"
    "2026-01-01T00:00:00.000Z ERROR spark.job.supervisor: other.orders stops: it is none of ours\n"
)


def at(time_us: int) -> Cursor:
    return Cursor(UnixMillis(1), UnixMicros(time_us))


def test_table_that_stops_is_told_once(tmp_path: Path) -> None:
    """Any job's message counts, with any reason, and in any pieces of the log."""
    stops, logs = Stops(TABLES), [tmp_path / "one.log", tmp_path / "two.log"]
    assert stops.new(logs) == []
    logs[0].write_text(OTHERS)
    logs[1].write_text(LOST[:90])
    assert stops.new(logs) == []
    with logs[1].open("a") as log:
        log.write(LOST[90:])
    assert stops.new(logs) == [LOST.rstrip()]
    assert stops.new(logs) == []
    with logs[0].open("a") as log:
        log.write(REPLACED)
    assert stops.new(logs) == [REPLACED.rstrip()]


@pytest.mark.parametrize("since_us", [10, 12, 20])
def test_whose_layout_is_replaced_goes_on(since_us: int) -> None:
    """The log says that the table has another owner before lanes are read, and this is not a reason to stop."""
    broker, start = Broker(), at(10)
    older, newer = Layout(2, start), Layout(3, at(since_us))

    def publisher(owner: str) -> LanePublisher:
        return LanePublisher(
            lambda: Client(broker, "id"),
            lambda: broker.markers.get(0),
            progress_topic=PROGRESS,
            owner=owner,
            most_records=10,
            size=TransactionSize(10**9, 60.0),
        )

    was = LaneProgress(0, older, start)
    publisher("older").write_progress(was, instead_of=None)
    publisher("newer").write_progress(LaneProgress(0, newer, newer.since), instead_of=replace(was, owner="older"))
    with pytest.raises(FencedError) as caught:
        publisher("older").start(LaneTask("ks", "t", 0, PlannedBatch(start, at(15), older)), fresh=True)
    assert not is_hopeless(type(caught.value))
