"""Publishing a lane: each record exactly once. tests/tools/chaos lets a process die at each step."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bridge.errors import BridgeError, DataLossError, FencedError, LayoutError, RetriableError
from bridge.model.counters import LaneCounters
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from bridge.publishing.start_decision import decide_start
from tests.chaos.fault_points import IN_PRODUCER, FaultError, Point
from tests.unit.bridge.fake_kafka import Broker
from tests.unit.bridge.publishing.lane_fakes import (
    CLOSING,
    LAYOUT,
    SINCE,
    G,
    at,
    batch,
    expected,
    first_start,
    make,
    position,
    work,
)


@pytest.mark.parametrize("seed", range(25))
def test_random_attempts_of_many_processes(seed: int) -> None:
    """Crashes at random steps, zombies that wake up, windows that are replayed: each record comes once."""
    rng = random.Random(seed)
    broker = Broker()
    first_start(broker)
    zombies: list[LanePublisher] = []
    publisher, end = make(broker, most_records=rng.choice([1, 4, 50])), 0
    while end < 60:
        start, end = end, end + rng.randint(1, 15)
        task, fresh = batch(start, end), False
        while True:
            broker.crash_at = rng.choice([None, None, *IN_PRODUCER])
            try:
                work(publisher, task, fresh=fresh)
            except FaultError:
                zombies.append(publisher)
                publisher, fresh = make(broker, most_records=rng.choice([1, 4, 50])), rng.random() < 0.5
                continue
            if rng.random() < 0.2:  # Spark has not noticed, and replays the window
                publisher, fresh = make(broker), True
                continue
            break
        broker.crash_at = None
        for zombie in zombies[-2:]:
            with pytest.raises((FencedError, AssertionError)):
                haunt(zombie)
    assert broker.committed["topic"] == expected(end)


def haunt(zombie: LanePublisher) -> None:
    """Go on as if nothing had happened."""
    zombie.publish("topic", b"key", b"zombie", position(10**6, 0), {})
    zombie.finish()


def test_held_id_is_kept_from_batch_to_batch() -> None:
    """A process whose cursor is the window's start does not open its id again."""
    broker = Broker()
    first_start(broker)
    publisher = make(broker)
    for start in range(0, 30, 10):
        work(publisher, batch(start, start + 10), fresh=False)
    assert broker.epochs["id"] == 1
    assert broker.committed["topic"] == expected(30)


def test_process_that_missed_batches_opens_the_id_anew() -> None:
    """A lane may have been in another process meanwhile."""
    broker = Broker()
    first_start(broker)
    here, there = make(broker), make(broker)
    work(here, batch(0, 10), fresh=False)
    work(there, batch(10, 20), fresh=False)
    work(here, batch(20, 30), fresh=False)
    assert broker.committed["topic"] == expected(30)


def test_window_without_changes_moves_the_cursor() -> None:
    """The cursor is committed even when there is nothing to publish."""
    broker = Broker()
    first_start(broker)
    publisher = make(broker)
    publisher.start(batch(0, 10), fresh=False)
    assert publisher.finish() == replace(LaneProgress.completed(0, batch(0, 10).batch), owner="job")
    assert "topic" not in broker.committed


def test_committed_window_costs_no_transaction() -> None:
    """A replay of a finished window neither publishes nor commits."""
    broker = Broker()
    first_start(broker)
    work(make(broker), batch(0, 10), fresh=False)
    before = broker.transactions
    work(make(broker), batch(0, 10), fresh=True)
    assert broker.transactions == before
    assert broker.committed["topic"] == expected(10)


def test_transactions_end_between_groups() -> None:
    """A full transaction ends with its group, and the progress record names that group."""
    broker = Broker()
    first_start(broker)
    publisher = make(broker, most_records=1)
    publisher.start(batch(0, 10), fresh=False)
    for seq in range(3):
        publisher.publish("topic", b"k", b"a", position(3, seq), {})
    assert "topic" not in broker.committed
    publisher.publish("topic", b"k", b"b", position(4, 0), {})
    assert len(broker.committed["topic"]) == 3
    done = LaneProgress.from_bytes(broker.markers[0]).done
    assert done is not None
    assert done.group.time_us == 3


PARTS = [[(30, 0), (40, 0), (40, 1), (40, 2)], [(11, 0), (30, 0)]]


def work_parts(publisher: LanePublisher, *, fresh: bool) -> None:
    publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=fresh)
    for part, places in enumerate(PARTS):
        if part:
            publisher.enter(part)
        for time_us, seq in places:
            publisher.publish("topic", b"k", b"%d/%d.%d" % (part, time_us, seq), position(time_us, seq), {})
    publisher.finish()


@pytest.mark.parametrize("most_records", [1, 2, 3, 1000])
@pytest.mark.parametrize("point", IN_PRODUCER)
def test_parts_are_published_one_after_the_other(point: Point, most_records: int) -> None:
    """A later part may begin at an earlier time. After a crash the rest is published."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    broker.crash_at = point
    with pytest.raises(FaultError):
        work_parts(make(broker, most_records=most_records), fresh=False)
    work_parts(make(broker, most_records=most_records), fresh=True)
    wanted = [b"%d/%d.%d" % (part, *place) for part, places in enumerate(PARTS) for place in places]
    assert [value for _, value in broker.committed["topic"]] == wanted
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == CLOSING.next


def test_parts_come_in_their_order() -> None:
    """A part that comes again would count as published."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    publisher = make(broker)
    publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=False)
    publisher.enter(1)
    with pytest.raises(BridgeError, match="part 1 follows part 1"):
        publisher.enter(1)


def test_lost_progress_stops_before_anything_is_written() -> None:
    """Without a committed cursor nothing is published."""
    broker = Broker()
    with pytest.raises(DataLossError):
        make(broker).start(batch(0, 10), fresh=False)
    assert broker.committed == {}


def test_replaced_layout_stops_the_old_job() -> None:
    """A job is fenced at its next window when another one has written a newer lane layout."""
    broker = Broker()
    first_start(broker)
    old = make(broker)
    work(old, batch(0, 10), fresh=False)
    newer = Layout(4, Cursor(G, UnixMicros(10)))
    standing = LaneProgress.from_bytes(broker.markers[0])
    make(broker).write_progress(LaneProgress(0, newer, newer.since), instead_of=standing)
    with pytest.raises(FencedError):
        work(old, batch(10, 20), fresh=False)
    with pytest.raises(LayoutError, match="another lane layout"):
        work(make(broker), batch(10, 20), fresh=True)
    assert broker.committed["topic"] == expected(10)


def test_two_jobs_do_not_split_the_lanes_of_a_table_between_their_plans() -> None:
    """A task of the former owner publishes nothing, although it opens the id after the new owner.

    Both jobs plan from the same cursor to different ends. Lanes at both ends could never be brought level again.
    """
    broker = Broker()
    layout = Layout(2, SINCE)
    first = [LaneProgress(lane, layout, SINCE) for lane in range(2)]
    for lane, at_first in enumerate(first):
        make(broker, lane=lane, owner="older").write_progress(at_first, instead_of=None)
    for lane, at_first in enumerate(first):
        standing = replace(at_first, owner="older")
        make(broker, lane=lane, owner="newer").write_progress(standing, instead_of=standing)
    older, newer = (
        [LaneTask("ks", "t", lane, PlannedBatch(SINCE, at(end), layout)) for lane in range(2)] for end in (10, 15)
    )
    work(make(broker, lane=0, owner="newer"), newer[0], fresh=False)
    with pytest.raises(
        FencedError, match=r"another job of the same name \(newer\) has taken it over from this one \(older\)"
    ):
        work(make(broker, lane=1, owner="older"), older[1], fresh=True)
    work(make(broker, lane=1, owner="newer"), newer[1], fresh=True)
    found = {lane: LaneProgress.from_bytes(raw) for lane, raw in broker.markers.items()}
    assert decide_start(found, 2, None).cursor == at(15)
    assert broker.committed["topic"] == expected(15) * 2


def test_progress_of_another_job_is_not_overwritten() -> None:
    """A layout is written only over the progress that it was decided from."""
    broker = Broker()
    first_start(broker)
    decided_from = LaneProgress.from_bytes(broker.markers[0])
    work(make(broker), batch(0, 10), fresh=False)
    layout = Layout(4, SINCE)
    with pytest.raises(RetriableError, match="another job"):
        make(broker).write_progress(LaneProgress(0, layout, SINCE), instead_of=decided_from)
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == Cursor(G, UnixMicros(10))


def test_committed_records_are_counted() -> None:
    """Counts are those of committed records, over several transactions and after a crash."""
    broker = Broker()
    first_start(broker)
    total = LaneCounters()
    publisher = make(broker, most_records=7, count=total.add)
    work(publisher, batch(0, 10), fresh=False)
    broker.crash_at = "before commit"
    with pytest.raises(FaultError):
        work(publisher, batch(10, 20), fresh=False)
    publisher.close()
    work(make(broker, most_records=7, count=total.add), batch(10, 20), fresh=True)
    sent = expected(20)
    assert broker.committed["topic"] == sent
    assert (total.changes, total.groups, total.aborts) == (len(sent), 20, 1)
    assert total.value_bytes == sum(len(key) + len(value) for key, value in sent)
    assert total.transactions == broker.transactions - 1  # the first start's own is not counted here


def test_tombstones_and_dead_letters_are_no_changes() -> None:
    """A delete is one change, with or without a tombstone behind it. A dead letter is none."""
    total = LaneCounters()
    broker = Broker()
    first_start(broker)
    publisher = make(broker, count=total.add)
    publisher.start(batch(0, 10), fresh=False)
    for key, value in ((b"k", b"v"), (b"k", None), (None, b"letter"), (b"k", b"w")):
        publisher.publish("topic", key, value, position(5, 0), {})
    assert total == LaneCounters()
    publisher.finish()
    assert (total.changes, total.dead_letters, total.groups, total.transactions) == (2, 1, 1, 1)
