"""Publishing a lane: each record once. That it is so whatever dies where, tests/unit/chaos shows point by point."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError, DataLossError, FencedError, LayoutError, RetriableError, TooLargeError
from bridge.model.cursor import Cursor
from bridge.model.kept_formats import LaneProgress
from bridge.model.micro_batch import Layout, PlannedBatch
from bridge.model.times import UnixMicros, UnixMillis, timeuuid_of
from bridge.monitoring.counters import LaneCounters
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.protocol import LaneTask
from bridge.publishing.start_decision import decide_start
from tests.chaos.fault_points import IN_PRODUCER, FaultError, Point, Watched
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client

G = UnixMillis(1000)
SINCE = Cursor(G, UnixMicros(0))
LAYOUT = Layout(1, SINCE)


def at(time_us: int) -> Cursor:
    return Cursor(G, UnixMicros(time_us))


def batch(start: int, end: int, layout: Layout = LAYOUT) -> LaneTask:
    return LaneTask("ks", "t", 0, PlannedBatch(at(start), at(end), layout))


def position(time_us: int, seq: int) -> bytes:
    return bytes(16) + timeuuid_of(UnixMicros(time_us), bytes(8)) + seq.to_bytes(4, "big")


def records(start: int, end: int) -> list[tuple[int, int]]:
    """Groups of one to four records, one each microsecond."""
    return [(time_us, seq) for time_us in range(start, end) for seq in range(1 + time_us % 4)]


def make(
    broker: Broker,
    *,
    lane: int = 0,
    owner: str = "job",
    most_records: int = 1000,
    most_bytes: int = 10**9,
    most_s: float = float("inf"),
    clock: Callable[[], float] = lambda: 0.0,
    count: Callable[[LaneCounters], None] = lambda _: None,
) -> LanePublisher:
    return LanePublisher(
        lambda: Watched(Client(broker, "id" if lane == 0 else f"id{lane}"), PROGRESS, broker.reach),
        lambda: broker.markers.get(lane),
        progress_topic=PROGRESS,
        owner=owner,
        most_records=most_records,
        most_bytes=most_bytes,
        most_s=most_s,
        clock=clock,
        count=count,
    )


def first_start(broker: Broker) -> None:
    make(broker).write_progress(LaneProgress(0, LAYOUT, SINCE), instead_of=None)


def work(publisher: LanePublisher, task: LaneTask, *, fresh: bool) -> None:
    publisher.start(task, fresh=fresh)
    for time_us, seq in records(task.batch.start.time_us, task.batch.next.time_us):
        publisher.publish("topic", b"key", b"%d.%d" % (time_us, seq), position(time_us, seq), {})
    publisher.finish()


def work_in_runs(publisher: LanePublisher, task: LaneTask, sizes: Iterator[int]) -> None:
    """Groups of one record, in runs and one by one in turns; what is too large goes elsewhere."""

    def bury(position: bytes, error: TooLargeError) -> None:
        publisher.publish("dead", None, str(error).encode()[:1], position, {})

    places = list(range(task.batch.start.time_us, task.batch.next.time_us))
    publisher.start(task, fresh=False)
    while places:
        size = next(sizes)
        run, places = places[: size or 1], places[size or 1 :]
        values, positions = [b"v" * (1 + at % 7) for at in run], [position(at, 0) for at in run]
        if size:
            publisher.publish_run(
                *(
                    "topic",
                    (b"k", b"v"),
                    run_of([b"ey"] * len(run), [one[1:] for one in values], positions),
                    "header",
                ),
                too_large=lambda at, error, positions=positions: bury(positions[at], error),  # type: ignore[misc]
            )
            continue
        try:
            publisher.publish("topic", b"key", values[0], positions[0], {})
        except TooLargeError as error:
            bury(positions[0], error)
    publisher.finish()


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    most_records=st.integers(1, 12),
    most_bytes=st.integers(1, 60),
    crash=st.sampled_from([None, *IN_PRODUCER]),
    limit=st.sampled_from([None, 1, 4, 6]),
)
@settings(max_examples=60)
def test_runs_are_published_as_record_after_record(
    sizes: list[int], most_records: int, most_bytes: int, crash: Point | None, limit: int | None
) -> None:
    """The same records, the same transactions, the same figures; and after a crash, only what is left."""
    seen: list[tuple[object, ...]] = []
    for runs in ([0], sizes):
        broker, total = Broker(), LaneCounters()
        first_start(broker)
        broker.crash_at, broker.limit = crash, limit
        task = batch(0, 40)
        for _ in range(2):
            publisher = make(broker, most_records=most_records, most_bytes=most_bytes, count=total.add)
            with suppress(FaultError):
                work_in_runs(publisher, task, cycle(runs))
                break
        seen.append((broker.committed, broker.markers, broker.sizes, total))
        fits, dead = [], []
        for size in (1 + at % 7 for at in range(40)):
            (fits if limit is None or size <= limit else dead).append(size)
        assert [len(value or b"") for _, value in broker.committed.get("topic", [])] == fits
        assert [value for _, value in broker.committed.get("dead", [])] == [b"%d" % size for size in dead]
    assert seen[0] == seen[1]


def expected(end: int) -> list[tuple[bytes, bytes]]:
    return [(b"key", b"%d.%d" % (time_us, seq)) for time_us, seq in records(0, end)]


@pytest.mark.parametrize("seed", range(25))
def test_random_attempts_of_many_processes(seed: int) -> None:
    """Crashes at random steps, zombies that wake up and windows that are replayed: still each record once."""
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
            if rng.random() < 0.2:  # Spark did not learn of it and replays the window
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
    """A process that stands where the window begins need not open its id again."""
    broker = Broker()
    first_start(broker)
    publisher = make(broker)
    for start in range(0, 30, 10):
        work(publisher, batch(start, start + 10), fresh=False)
    assert broker.epochs["id"] == 1
    assert broker.committed["topic"] == expected(30)


def test_process_that_missed_batches_opens_the_id_anew() -> None:
    """A lane that wandered to another process and back is not trusted."""
    broker = Broker()
    first_start(broker)
    here, there = make(broker), make(broker)
    work(here, batch(0, 10), fresh=False)
    work(there, batch(10, 20), fresh=False)
    work(here, batch(20, 30), fresh=False)
    assert broker.committed["topic"] == expected(30)


def test_window_without_changes_moves_the_cursor() -> None:
    """The cursor is committed even when there was nothing to publish."""
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
    """A transaction that is full ends with its group, and the marker says which group that was."""
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


CLOSING = PlannedBatch(at(10), Cursor(UnixMillis(1001), UnixMicros(2_000_000)), LAYOUT)
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
    """A later part may begin at an earlier time; a crash in any of them goes on behind what was committed."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    broker.crash_at = point
    with pytest.raises(FaultError):
        work_parts(make(broker, most_records=most_records), fresh=False)
    work_parts(make(broker, most_records=most_records), fresh=True)
    wanted = [b"%d/%d.%d" % (part, *place) for part, places in enumerate(PARTS) for place in places]
    assert [value for _, value in broker.committed["topic"]] == wanted
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == CLOSING.next


@pytest.mark.parametrize("in_runs", [False, True])
def test_transaction_that_grows_old_between_two_parts_is_committed_with_the_first(in_runs: bool) -> None:
    """The next part's first record may be long in coming: by then nobody could name the group that was done last."""
    broker, clock = Broker(), 0.0
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    publisher = make(broker, most_s=15.0, clock=lambda: clock)
    publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=True)
    publisher.publish("topic", b"k", b"0/30.0", position(30, 0), {})
    clock = 14.9
    publisher.enter(1)
    clock = 15.1
    if in_runs:
        run = run_of([b"k"], [b"1/11.0"], [position(11, 0)])
        publisher.publish_run("topic", (b"", b""), run, None, too_large=lambda _at, error: pytest.fail(str(error)))
    else:
        publisher.publish("topic", b"k", b"1/11.0", position(11, 0), {})
    publisher.finish()
    assert [value for _, value in broker.committed["topic"]] == [b"0/30.0", b"1/11.0"]


def test_attempt_after_a_transaction_inside_the_second_part_repeats_nothing() -> None:
    """Where a run of it ended says the part, too."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    run = run_of([b"k", b"k"], [b"1/11.0", b"1/12.0"], [position(11, 0), position(12, 0)])
    for finishes in (False, True):
        publisher = make(broker, most_records=1)
        publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=True)
        publisher.publish("topic", b"k", b"0/30.0", position(30, 0), {})
        publisher.enter(1)
        publisher.publish_run("topic", (b"", b""), run, None, too_large=lambda _at, error: pytest.fail(str(error)))
        publisher.finish() if finishes else publisher.close()
    assert [value for _, value in broker.committed["topic"]] == [b"0/30.0", b"1/11.0", b"1/12.0"]


def test_parts_come_in_their_order() -> None:
    """A part that comes again would be taken for published."""
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
    """A job whose lanes another job has replaced is fenced at its next window."""
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
    """A task of a job that another one has taken over from publishes nothing, though it opens the id after that one.

    Both plan from the same cursor, to different ends: lanes that stand at both could never be brought level again.
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
        FencedError, match=r"another job named alike \(newer\) has taken it over from this one \(older\)"
    ):
        work(make(broker, lane=1, owner="older"), older[1], fresh=True)
    work(make(broker, lane=1, owner="newer"), newer[1], fresh=True)
    found = {lane: LaneProgress.from_bytes(raw) for lane, raw in broker.markers.items()}
    assert decide_start(found, 2, None).cursor == at(15)
    assert broker.committed["topic"] == expected(15) * 2


def test_progress_of_another_job_is_not_written_over() -> None:
    """A layout is written only over the progress that it was decided from."""
    broker = Broker()
    first_start(broker)
    decided_from = LaneProgress.from_bytes(broker.markers[0])
    work(make(broker), batch(0, 10), fresh=False)
    layout = Layout(4, SINCE)
    with pytest.raises(RetriableError, match="another job"):
        make(broker).write_progress(LaneProgress(0, layout, SINCE), instead_of=decided_from)
    assert LaneProgress.from_bytes(broker.markers[0]).cursor == Cursor(G, UnixMicros(10))


def test_what_was_committed_is_counted() -> None:
    """Over several transactions, a crash and its repetition, the counts are those of what is committed."""
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
    assert total.transactions == broker.transactions - 1  # that of the first start is not counted here


def test_tombstones_and_dead_letters_are_no_changes() -> None:
    """A delete is one change, whether or not a record without a value follows it; a dead letter is none."""
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


def test_transaction_that_is_open_for_long_ends_with_its_group() -> None:
    """However little it holds: a broker that holds us back must not have to abort it."""
    broker, now_s = Broker(), 100.0
    first_start(broker)
    publisher = LanePublisher(
        lambda: Client(broker, "id"),
        lambda: broker.markers.get(0),
        progress_topic=PROGRESS,
        owner="job",
        most_records=1000,
        most_bytes=10**9,
        most_s=15.0,
        clock=lambda: now_s,
    )
    publisher.start(batch(0, 10), fresh=False)
    seen = []
    for time_us, seq, seconds in ((1, 0, 14), (2, 0, 1), (2, 1, 90), (3, 0, 0), (4, 0, 14), (5, 0, 0)):
        publisher.publish("topic", b"key", b"%d.%d" % (time_us, seq), position(time_us, seq), {})
        seen.append(broker.transactions)
        now_s += seconds
    publisher.finish()
    # The first two are of the start; the group at 2 is whole before the transaction ends.
    assert [one - seen[0] for one in seen] == [0, 0, 0, 1, 1, 1]
    assert [value for _, value in broker.committed["topic"]] == [b"1.0", b"2.0", b"2.1", b"3.0", b"4.0", b"5.0"]


@pytest.mark.parametrize("size", [10, 100_000])
def test_long_run_is_cut_where_its_transaction_is_open_for_long(size: int) -> None:
    """The age is looked at every so many records or bytes, as long as one run may be."""
    broker, now_s = Broker(), 0.0
    first_start(broker)

    class Slow(Client):
        """Takes a second for a hundred records, or for a megabyte."""

        def produce(self, topic: str, key: bytes | None, value: bytes | None, *place: Any, **named: Any) -> None:
            nonlocal now_s
            now_s += max(0.01, len(value or b"") / 1e6)
            super().produce(topic, key, value, *place, **named)

    publisher = LanePublisher(
        lambda: Slow(broker, "id"),
        lambda: broker.markers.get(0),
        progress_topic=PROGRESS,
        owner="job",
        most_records=10**6,
        most_bytes=10**9,
        most_s=5.0,
        clock=lambda: now_s,
    )
    publisher.start(batch(0, 2000), fresh=False)
    broker.sizes.clear()
    places = [position(time_us, 0) for time_us in range(2000)]
    run = run_of([b"key"] * 2000, [bytes(size)] * 2000, places)
    publisher.publish_run("topic", (b"", b""), run, None, too_large=unexpected)
    publisher.finish()
    in_limit = 5.0 / max(0.01, size / 1e6)
    assert sum(broker.sizes) == 2000
    assert all(in_limit <= one <= 1.6 * in_limit for one in broker.sizes[:-1])
    assert broker.sizes[-1] <= 1.6 * in_limit


def unexpected(_at: int, error: TooLargeError) -> None:
    raise error
