"""Where a drain's figures begin."""

from __future__ import annotations

import pytest

from bench.drain import settled
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.position import GroupPosition, LanePosition
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of

G = UnixMillis(1_000)
LAYOUT = Layout(2, Cursor(G, UnixMicros(0)))


def batch(number: int) -> PlannedBatch:
    """A micro-batch of a second."""
    at = UnixMicros(2_000_000 + number * 1_000_000)
    return PlannedBatch(Cursor(G, at), Cursor(G, UnixMicros(at + 1_000_000)), LAYOUT)


def done(lane: int, number: int) -> LaneProgress:
    return LaneProgress.completed(lane, batch(number))


def inside(lane: int, number: int) -> LaneProgress:
    position = LanePosition(0, GroupPosition.of(bytes(16), timeuuid_of(UnixMicros(2_500_000), bytes(8))))
    return LaneProgress.inside(lane, batch(number), position)


@pytest.mark.parametrize(
    ("cursors", "expected"),
    [
        ([(90, done(0, 0)), (100, done(1, 0)), (110, done(0, 1)), (120, done(1, 1))], 100),
        # A transaction that ends inside of the micro-batch is not its end.
        ([(60, inside(0, 0)), (90, done(1, 0)), (95, done(0, 0)), (130, done(0, 1))], 95),
        # The layout, and micro-batches that found nothing, lie before the first record.
        ([(10, LaneProgress(0, LAYOUT, LAYOUT.since)), (40, done(0, 0)), (45, done(1, 0)), (80, done(0, 1))], 80),
    ],
)
def test_figures_begin_where_the_first_micro_batch_is_done_on_every_lane(
    cursors: list[tuple[int, LaneProgress]], expected: int
) -> None:
    """The first one, that is, which published anything: its first record is of 50 ms."""
    assert settled(cursors, 50) == expected
