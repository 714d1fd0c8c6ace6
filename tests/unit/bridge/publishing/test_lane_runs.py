"""Publishing runs of records, and transactions that stay open for long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.errors import TooLargeError
from bridge.model.counters import LaneCounters
from bridge.model.kept_formats import LaneProgress
from bridge.publishing.lane_publisher import LanePublisher
from bridge.publishing.lane_recovery import LaneTask
from tests.chaos.fault_points import IN_PRODUCER, FaultError, Point
from tests.unit.bridge.encoded_runs import run_of
from tests.unit.bridge.fake_kafka import PROGRESS, Broker, Client
from tests.unit.bridge.publishing.lane_fakes import (
    CLOSING,
    LAYOUT,
    at,
    batch,
    first_start,
    fixed_size,
    make,
    position,
)


def work_in_runs(publisher: LanePublisher, task: LaneTask, sizes: Iterator[int]) -> None:
    """Publish groups of one record, in runs or one by one; a record that is too large goes elsewhere."""

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
    """Records, transactions and counts are the same. After a crash only the rest is published."""
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
        for size in (1 + number % 7 for number in range(40)):
            (fits if limit is None or size <= limit else dead).append(size)
        assert [len(value or b"") for _, value in broker.committed.get("topic", [])] == fits
        assert [value for _, value in broker.committed.get("dead", [])] == [b"%d" % size for size in dead]
    assert seen[0] == seen[1]


def test_transaction_that_is_open_for_long_ends_with_its_group() -> None:
    """However little it holds: Kafka aborts a transaction that a slow broker keeps open for too long."""
    broker, now_s = Broker(), 100.0
    first_start(broker)
    publisher = LanePublisher(
        lambda: Client(broker, "id"),
        lambda: broker.markers.get(0),
        progress_topic=PROGRESS,
        owner="job",
        most_records=1000,
        size=fixed_size(10**9),
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
    """The publisher checks the age every so many records or bytes, however long the run."""
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
        size=fixed_size(10**9),
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


@pytest.mark.parametrize("in_runs", [False, True])
def test_nothing_is_open_while_the_next_part_is_looked_for(in_runs: bool) -> None:
    """Its first group may take longer to come than a transaction may be open."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    publisher = make(broker)
    publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=True)
    publisher.publish("topic", b"k", b"0/30.0", position(30, 0), {})
    publisher.enter(1)
    assert [value for _, value in broker.committed["topic"]] == [b"0/30.0"]
    if in_runs:
        run = run_of([b"k"], [b"1/11.0"], [position(11, 0)])
        publisher.publish_run("topic", (b"", b""), run, None, too_large=lambda _at, error: pytest.fail(str(error)))
    else:
        publisher.publish("topic", b"k", b"1/11.0", position(11, 0), {})
    publisher.finish()
    assert [value for _, value in broker.committed["topic"]] == [b"0/30.0", b"1/11.0"]


def test_part_without_records_costs_no_transaction() -> None:
    """The micro-batch has the one that moves the cursor."""
    broker = Broker()
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    publisher = make(broker)
    publisher.start(LaneTask("ks", "t", 0, CLOSING), fresh=True)
    before = broker.transactions
    publisher.enter(1)
    publisher.publish("topic", b"k", b"1/11.0", position(11, 0), {})
    publisher.finish()
    assert broker.transactions == before + 1


@pytest.mark.parametrize("in_runs", [False, True])
def test_transaction_that_grows_old_while_the_lane_waits_is_committed(in_runs: bool) -> None:
    """It ends with the last group; the next attempt continues behind that."""
    broker, clock = Broker(), 0.0
    make(broker).write_progress(LaneProgress(0, LAYOUT, at(10)), instead_of=None)
    task = LaneTask("ks", "t", 0, CLOSING)
    publisher = make(broker, most_s=15.0, clock=lambda: clock)
    publisher.start(task, fresh=True)
    publisher.commit_if_full()
    values = [b"30", b"31"]
    places = [position(30, 0), position(31, 0)]
    if in_runs:
        run = run_of([b"k"] * 2, values, places)
        publisher.publish_run("topic", (b"", b""), run, None, too_large=unexpected)
    else:
        for value, place in zip(values, places, strict=True):
            publisher.publish("topic", b"k", value, place, {})
    clock = 14.9
    publisher.commit_if_full()
    assert "topic" not in broker.committed
    clock = 15.1
    for _ in range(2):
        publisher.commit_if_full()
        assert [value for _, value in broker.committed["topic"]] == values
    publisher.close()
    progress = LaneProgress.from_bytes(broker.markers[0])
    assert progress.done is not None
    assert (progress.done.part, progress.done.group.time_us) == (0, 31)
    assert make(broker).start(task, fresh=True).done == progress.done


def test_attempt_after_a_transaction_inside_the_second_part_repeats_nothing() -> None:
    """The position that the run has reached contains the part."""
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
