"""Jobs that start at the same time, step by step; tests/tools/chaos lets them start at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bridge.errors import RetriableError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout
from bridge.model.times import UnixMicros, UnixMillis
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.ownership import LaneOwnership
from bridge.publishing.start_decision import decide_start
from bridge.publishing.table_start import TableStart
from bridge.publishing.transaction_size import TransactionSize
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

BEGIN = Cursor(UnixMillis(1000), UnixMicros(0))


class Job:
    """A job that starts with so many lanes; it calls `before` ahead of each lane that it opens."""

    def __init__(self, broker: Broker, owner: str, lanes: int) -> None:
        self._broker, self._owner, self._wanted = broker, owner, lanes
        self.before: Callable[[int], None] = lambda _lane: None
        self.lanes = LaneOwnership(self._lane, owner, at_once=1)
        self.taken: dict[int, LaneProgress] = {}

    @contextmanager
    def _lane(self, lane: int) -> Iterator[LanePublisher]:
        self.before(lane)
        publisher = LanePublisher(
            lambda: Client(self._broker, f"id{lane}"),
            lambda: self._broker.markers.get(lane),
            progress_topic=PROGRESS,
            owner=self._owner,
            most_records=5,
            size=TransactionSize(10**9, 60.0),
        )
        try:
            yield publisher
        finally:
            publisher.close()

    def decide(self, counted: int) -> TableStart:
        """Acquire as many lanes as were counted, and decide."""
        self.taken = self.lanes.acquire(counted)
        return decide_start(self.taken, self._wanted, BEGIN)

    def assign(self, start: TableStart, counted: int) -> None:
        """Assign the lanes of its layout."""
        since = start.layout.since
        self.lanes.assign({lane: LaneProgress(lane, start.layout, since) for lane in range(counted)}, self.taken)


def start_with(broker: Broker, owner: str, lanes: int, counted: int) -> None:
    job = Job(broker, owner, lanes)
    job.assign(job.decide(counted), counted)


def test_job_that_counted_fewer_lanes_than_there_are_takes_none() -> None:
    """It was slow, or the broker that answered did not know the new partitions: two jobs would write the same keys."""
    broker = Broker()
    start_with(broker, "first", 2, 2)
    start_with(broker, "second", 4, 4)
    before = dict(broker.markers)
    with pytest.raises(
        RetriableError,
        match=r"there are 4 lanes and not 2\. Either another job of the same name has just assigned",
    ):
        Job(broker, "third", 2).decide(2)
    assert broker.markers == before


@pytest.mark.parametrize("there", [0, 2])
def test_job_that_loses_the_table_while_it_assigns_new_lanes_is_refused(there: int) -> None:
    """No owner is checked on a new lane. What the loser has assigned does not damage the next start."""
    broker = Broker()
    if there:
        start_with(broker, "former", there, there)
    slow, fast = Job(broker, "slow", 4), Job(broker, "fast", 3)
    start = slow.decide(4)
    decided: list[TableStart] = []

    def overtake(lane: int) -> None:
        # Before its first new lane, and after the lanes that had an owner.
        if lane == max(there, 1) and not decided:
            decided.append(fast.decide(4))

    slow.before = overtake
    with pytest.raises(
        RetriableError, match="lane 0: another job of the same name has acquired it while the lanes were"
    ):
        slow.assign(start, 4)
    with pytest.raises(RetriableError):
        fast.assign(decided[0], 4)
    again = Job(broker, "again", 3)
    again.assign(again.decide(4), 4)
    layouts = {LaneProgress.from_bytes(raw).layout for raw in broker.markers.values()}
    assert layouts == {Layout(3, BEGIN)}
